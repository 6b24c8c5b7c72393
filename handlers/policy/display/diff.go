package display

import (
	"regexp"
	"strconv"
	"strings"
)

// DiffLine is a line of a unified diff, with its line end.
type DiffLine struct {
	Kind byte // '+', '-' or ' ' in a hunk, '@' for the head of a hunk, 0 for the name of a file
	Text string
}

// hunkHead matches the head of a hunk, with its numbers of old and of new lines; without a number it has one.
var hunkHead = regexp.MustCompile(`^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@`)

// Diff returns the lines of a unified diff, without what OpenCode writes above each file, and without the name of the
// file if there is only one. It leaves out nothing of a hunk.
func Diff(text string) (lines []DiffLine) {
	before, after := 0, 0 // lines of the hunk that are still to come
	for line := range strings.Lines(text) {
		between, kind := before <= 0 && after <= 0, line[0]
		if between && (strings.HasPrefix(line, "Index: ") || strings.Trim(line, "=") == "\n") {
			continue
		}
		switch head := hunkHead.FindStringSubmatch(line); {
		case between && head != nil:
			before, after = hunkLength(head[1]), hunkLength(head[2])
		case between && (strings.HasPrefix(line, "--- ") || strings.HasPrefix(line, "+++ ")):
			kind = 0
		case kind == '-':
			before--
		case kind == '+':
			after--
		case kind != '@' && kind != '\\':
			kind = ' '
			before, after = before-1, after-1
		}
		lines = append(lines, DiffLine{kind, line})
	}
	return withoutName(lines)
}

func hunkLength(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 1
	}
	return n
}

// withoutName leaves out the name above a diff of one file that keeps its name.
func withoutName(lines []DiffLine) []DiffLine {
	names := 0
	for _, l := range lines {
		if l.Kind == 0 {
			names++
		}
	}
	if names == 2 && lines[0].Kind == 0 && lines[1].Kind == 0 && lines[0].Text[4:] == lines[1].Text[4:] {
		return lines[2:]
	}
	return lines
}
