package program_test

import (
	"strings"
	"testing"

	"pocketcoder/handlers/policy/program"
)

// A line with ! in an ignore file makes ripgrep read a hidden name.
func TestIgnoreFilesShowHiddenNames(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"!.env": ".env", "a\n !/x/.env \n": ".env", "!*": "*", "!**/.e*": "*", "!.[e]nv": "*", "!.ssh/": ".ssh", `!\.env`: "*", "\ufeff!.env": ".env", "!?env": "*",
		".env": "", "!a.go": "", "!.env.example": ".env.example", "!.gitkeep\r": ".gitkeep", "!": "", "": "", "!/": "", "!docs/": "", "!docs*": "", "!/a/b-*": "",
		"!{.env,x}": "*", "!{a/,.env}": "*", "!.secrets": ".secrets", "!.A\n!/.b/": ".a .b", "!*/": "*", "!docs/**": "*", "!a b": "*", "!.private/x": "",
	} {
		if got := strings.Join(program.ShownNames(text), " "); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
