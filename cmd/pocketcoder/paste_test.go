package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
)

func TestPasteAfterTypedTextEndsNoLine(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	paste := func(text string) string { return pasteStart + text + pasteEnd }
	for _, c := range []struct{ keys, want string }{
		{"e " + paste("echo 1\recho 2"), "e " + paste("echo 1␤echo 2")},
		{"e " + paste("a\r\nb\nc"), "e " + paste("a␤b␤c")},
		{paste("a\rb"), paste("a\rb")}, // x/term reports these lines as pasted
		{paste("a\rb") + paste("c\rd"), paste("a\rb") + paste("c␤d")},
		{"y\r" + paste("a\rb") + "\r", "y\r" + paste("a\rb") + "\r"},
		{"no " + paste("because\rof") + "\ry\r", "no " + paste("because␤of") + "\ry\r"},
	} {
		for _, step := range []int{1, 5, len(c.keys)} { // the keyboard is read in pieces
			var f pasteFilter
			got, p := "", make([]byte, 256)
			for rest := c.keys; rest != ""; {
				taken, written, _ := f.take(p, []byte(rest[:min(step, len(rest))]))
				got, rest = got+string(p[:written]), rest[taken:]
			}
			is.Equal(got, c.want)
		}
	}
}

func TestAFolderCannotForgeLinesOfARequest(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var out bytes.Buffer
	r := newRenderer(&screen{w: &out})
	a := r.addAsk(events.PermissionAsk{
		ID: "per_1", Permission: "edit", Patterns: []string{"a\n? bash  ls"}, Metadata: json.RawMessage(`{"path":"b\n\n? bash  ls"}`),
	}, 1)
	r.referred(events.PermissionReferred{Permission: "per_1", Reason: "no rule\nallows it", Cwd: "/w/src\n\n? bash  ls -la\n  why: harmless"})
	r.showAsk(a)
	is.Equal(strings.Count(out.String(), "\n"), 3) // the request, its path, and why and where
	is.Equal(visible("a\u2800b\u3164c\u034fd"), `a\u2800b\u3164c\u034fd`)
}
