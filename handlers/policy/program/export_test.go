package program

// ValueKind is what an option takes, for tests.
type ValueKind = valueKind

// The kinds of values that a test chooses from.
const (
	Nothing  = nothing
	Attached = attached
	Text     = text
)

// Options returns the harmless options of the program or sub-command of git that words begin with, and whether long
// ones begin with one dash.
func Options(words []string) (options map[string]ValueKind, oneDash bool) {
	p := programs[words[0]]
	if words[0] == "git" {
		p = gitProgram(words[1:])
	}
	return p.options, p.oneDash
}
