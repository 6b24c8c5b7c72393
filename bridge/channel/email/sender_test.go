package email

import (
	"fmt"
	"strings"
	"testing"

	"github.com/emersion/go-message"
	"github.com/matryer/is"

	"pocketcoder/handlers/channel"
	"pocketcoder/ops/expect"
)

// A server may name the sender in a comment, as "domain of ann@example.org designates 192.0.2.1". A quoted local part
// can hold any characters.
func TestASenderNamedInACommentWritesNoResult(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	_, results, err := parseResults(`mx.example.org; spf=pass (domain of ann@example.com designates 192.0.2.1)
 smtp.mailfrom=ann@example.com`)
	is.NoErr(err)
	is.True(passes(results, "example.com"))
	_, results, err = parseResults(`mx.example.org; spf=pass (domain of "a);dkim=pass header.d=example.org;spf=pass
 ("@example.com designates 192.0.2.1) smtp.mailfrom="x"@example.com`)
	is.True(err != nil)
	is.True(!passes(results, "example.org"))
}

func TestTheOperatorLearnsWhichServerAMailNames(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m := Mailbox{channel: channel.Channel{Authserv: "mx1.example.org mx2.example.org"}, address: "assistant@example.org"}
	sender := func(results string) (string, error) {
		e, err := message.Read(strings.NewReader(results + "From: ann@example.org\r\nTo: assistant@example.org\r\n\r\n"))
		is.NoErr(err)
		address, _, err := m.sender(&e.Header)
		return address, err
	}
	for _, trusted := range []string{"mx1.example.org", "MX2.example.org"} {
		address, err := sender("Authentication-Results: " + trusted + "; dkim=pass header.d=example.org\r\n")
		is.NoErr(err)
		is.Equal(address, "ann@example.org")
	}
	for results, reason := range map[string]string{
		"": "it has no Authentication-Results header",
		"Authentication-Results: mx3.example.org; dkim=pass header.d=example.org\r\n":                                                 `is of "mx3.example.org", and the channel trusts only mx1.example.org mx2.example.org`,
		"Authentication-Results: spf=pass (sender IP is 192.0.2.1)\r\n smtp.mailfrom=example.org; dkim=pass header.d=example.org\r\n": "does not begin with the name of a server",
	} {
		address, err := sender(results)
		expect.Contains(t, fmt.Sprint(err), reason)
		is.Equal(address, "")
	}
	// an earlier version stored what the headers of Microsoft 365 begin with
	m.channel.Authserv = "spf=pass"
	address, err := sender("Authentication-Results: spf=pass; dkim=pass header.d=example.org\r\n")
	is.True(err != nil)
	is.Equal(address, "")
}
