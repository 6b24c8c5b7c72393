package visible

import "strings"

// DiffLine is a line of a diff.
type DiffLine struct {
	Class string
	Text  string // with its line end
}

// DiffLines returns the lines of a diff. The names of a file, above its first hunk, are neither added nor removed.
func DiffLines(diff string) (lines []DiffLine) {
	names := false
	for text := range strings.Lines(diff) {
		names = strings.HasPrefix(text, "Index: ") || names && text[0] != '@'
		class := map[byte]string{'+': "added", '-': "removed", '@': "hunk"}[text[0]]
		if names {
			class = "hunk"
		}
		lines = append(lines, DiffLine{class, text})
	}
	return lines
}
