package policy_test

import (
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers/policy/display"
)

func TestADiffHasNoNamesOfItsOnlyFile(t *testing.T) {
	const rule = "===================================================================\n"
	named := func(before, after string) string { return "--- " + before + "\n+++ " + after + "\n" }
	const hunk = "@@ -1,2 +1 @@\n-one\n--- two\n+=====\n"
	for name, c := range map[string]struct{ diff, kinds, text string }{
		"of OpenCode":       {"Index: a\n" + rule + named("a", "a") + hunk, "@--+", hunk},
		"no names":          {hunk, "@--+", hunk},
		"names that differ": {named("stored", "file") + hunk, "00@--+", named("stored", "file") + hunk},
		"two files": {"Index: a\n" + rule + named("a", "a") + hunk + "Index: b\n" + rule + named("b", "b") + hunk,
			"00@--+00@--+", named("a", "a") + hunk + named("b", "b") + hunk},
		"no hunk":                              {named("a", "a") + "+one\n-two", "+-", "+one\n-two"},
		"lines of a hunk that look like names": {"@@ -1 +1 @@\n--- a\n+++ a\n", "@-+", "@@ -1 +1 @@\n--- a\n+++ a\n"},
		"no line end at the end": {"@@ -1 +1,2 @@\n-a\n\\ No newline at end of file\n+a\n+b\n", `@-\++`,
			"@@ -1 +1,2 @@\n-a\n\\ No newline at end of file\n+a\n+b\n"},
		"empty": {"", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			var kinds, text strings.Builder
			for _, l := range display.Diff(c.diff) {
				if l.Kind == 0 {
					l.Kind = '0'
				}
				kinds.WriteByte(l.Kind)
				text.WriteString(l.Text)
			}
			is.Equal(kinds.String(), c.kinds)
			is.Equal(text.String(), c.text)
		})
	}
}
