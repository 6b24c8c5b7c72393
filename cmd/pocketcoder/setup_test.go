package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"
	"rsc.io/qr"

	"pocketcoder/handlers/account"
)

var aSetup = account.Setup{Token: "T0k_en-of-the-setup", Expires: time.Now().Add(30 * time.Minute)}

func TestSetupLinkIsShownOnceAndPlainly(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var out bytes.Buffer
	newProgress(&out).setup("https://code.example.org", aSetup)
	is.Equal(strings.Count(out.String(), aSetup.Token), 1)
	is.True(strings.Contains(out.String(), "\n  https://code.example.org/setup#T0k_en-of-the-setup\n"))
	is.True(!strings.ContainsAny(out.String(), "█▀▄\x1b")) // it is no terminal: a file or a log
}

// The picture is read back as a camera would: every module of the code is where it must be.
func TestSetupLinkIsAQRCodeOnATerminal(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var out bytes.Buffer
	writeSetup(&out, "http://127.0.0.1:8090", aSetup, true)
	want, err := qr.Encode("http://127.0.0.1:8090/setup#T0k_en-of-the-setup", qr.L)
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
