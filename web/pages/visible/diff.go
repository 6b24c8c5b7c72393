package visible

import "strings"

// DiffLine is a line of a diff.
type DiffLine struct {
	Class string
	Text  string // with its line end
}

// DiffLines returns the lines of a diff.
func DiffLines(diff string) (lines []DiffLine) {
	for text := range strings.Lines(diff) {
		class := map[byte]string{'+': "added", '-': "removed", '@': "hunk"}[text[0]]
		lines = append(lines, DiffLine{class, text})
	}
	return lines
}
