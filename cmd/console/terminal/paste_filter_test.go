package terminal

import (
	"testing"

	"github.com/matryer/is"
)

func TestPasteAfterTypedTextDoesNotEndTheLine(t *testing.T) {
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
