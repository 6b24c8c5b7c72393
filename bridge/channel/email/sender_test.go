package email

import (
	"testing"

	"github.com/matryer/is"
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
