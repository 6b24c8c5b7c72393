package visible

import "pocketcoder/handlers/policy/display"

type DiffLine struct {
	Class string
	Text  string // with its line end
}

// DiffLines returns the lines of a diff (display.Diff). The names of files are neither added nor removed.
func DiffLines(diff string) (lines []DiffLine) {
	for _, l := range display.Diff(diff) {
		class := map[byte]string{'+': "added", '-': "removed", '@': "hunk", 0: "hunk"}[l.Kind]
		lines = append(lines, DiffLine{class, l.Text})
	}
	return lines
}
