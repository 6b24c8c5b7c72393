package app

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"
	"rsc.io/qr"

	"pocketcoder/handlers/account"
	"pocketcoder/ops/expect"
)

var aSetup = account.Setup{Token: "T0k_en-of-the-setup", Expires: time.Now().Add(30 * time.Minute)}

func TestSetupLinkIsShownOnceAndPlainly(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var out bytes.Buffer
	newProgress(&out).Setup("https://code.example.org", aSetup)
	is.Equal(strings.Count(out.String(), aSetup.Token), 1)
	expect.Contains(t, out.String(), "\n  https://code.example.org/setup#T0k_en-of-the-setup\n")
	is.True(!strings.ContainsAny(out.String(), "█▀▄\x1b")) // it is no terminal: a file or a log
}

func TestAnAddressThatAPhoneCannotReachIsNoQRCode(t *testing.T) {
	t.Parallel()
	for base, reached := range map[string]bool{
		"http://127.0.0.1:8090": false, "http://localhost:8090": false, "http://[::1]:8090": false, "http://0.0.0.0:8090": false, "http://pc.localhost:8090": false,
		"https://code.example.org": true, "http://192.168.1.20:8090": true,
	} {
		is := is.New(t)
		var out bytes.Buffer
		writeSetup(&out, base, aSetup, true)
		expect.Contains(t, out.String(), base+"/setup#"+aSetup.Token)
		is.Equal(strings.ContainsAny(out.String(), "█▀▄"), reached)
		is.Equal(strings.Contains(out.String(), "That address works only on this machine"), !reached)
		is.Equal(strings.Contains(out.String(), "ssh -L 8090:127.0.0.1:8090 HOST"), !reached)
	}
}

// The picture is read back as a camera would: every module of the code is where it must be.
func TestSetupLinkIsAQRCodeOnATerminal(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var out bytes.Buffer
	writeSetup(&out, "https://code.example.org", aSetup, true)
	want, err := qr.Encode("https://code.example.org/setup#T0k_en-of-the-setup", qr.L)
	is.NoErr(err)
	var rows [][]bool // true is dark; two for each line
	for line := range strings.Lines(out.String()) {
		if line = strings.TrimSuffix(line, "\n"); line == "" || strings.Trim(line, "█▀▄ ") != "" {
			continue
		}
		var upper, lower []bool
		for _, r := range line {
			upper, lower = append(upper, r == ' ' || r == '▄'), append(lower, r == ' ' || r == '▀')
		}
		rows = append(rows, upper, lower)
	}
	top := slices.IndexFunc(rows, func(row []bool) bool { return slices.Contains(row, true) })
	is.True(top > 0) // a quiet zone is above it
	left := slices.Index(rows[top], true)
	is.True(left > 0)
	for y := range want.Size {
		for x := range want.Size {
			is.Equal(rows[top+y][left+x], want.Black(x, y))
		}
	}
}
