package visible

import "pocketcoder/handlers/policy/display"

type DiffLine struct {
	Class string
	Text  string // with its line end
}

// DiffLines returns the lines of a diff. The names of files are neither added nor removed.
func DiffLines(diff string) []DiffLine { return Diff(display.Diff(diff)) }

func Diff(lines []display.DiffLine) (all []DiffLine) {
	for _, l := range lines {
		class := map[byte]string{'+': "added", '-': "removed", '@': "hunk", 0: "hunk"}[l.Kind]
		all = append(all, DiffLine{class, l.Text})
	}
	return all
}
