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
		"The sandbox ended 1 process that the command left: node.":                         {1, []string{"node"}, 0, false},
		"The sandbox ended 3 processes that the command left: node, sleep.":                {3, []string{"node", "sleep"}, 0, false},
		"1 process that the command left still runs: node.":                                {1, []string{"node"}, 0, true},
		"12 processes that the command left still run: node, sleep, sort, tee and 3 more.": {12, []string{"node", "sleep", "sort", "tee"}, 3, true},
	} {
		is.Equal(left.Sentence(), want+advice)
	}
}
