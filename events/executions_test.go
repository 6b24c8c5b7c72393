package events

import (
	"testing"

	"github.com/matryer/is"
)

func TestSentenceAboutTheProcessesThatACommandLeft(t *testing.T) {
	is := is.New(t)
	var none *LeftProcesses
	is.Equal(none.Sentence(), "")
	const advice = " Start a server without `&`, in a command of its own that begins with `detach `."
	for want, left := range map[string]LeftProcesses{
		"The command left 1 process, which the sandbox ended: node.":                         {1, []string{"node"}, 0, false},
		"The command left 3 processes, which the sandbox ended: node, sleep.":                {3, []string{"node", "sleep"}, 0, false},
		"The command left 1 process, which still runs: node.":                                {1, []string{"node"}, 0, true},
		"The command left 12 processes, which still run: node, sleep, sort, tee and 3 more.": {12, []string{"node", "sleep", "sort", "tee"}, 3, true},
	} {
		is.Equal(left.Sentence(), want+advice)
	}
}
