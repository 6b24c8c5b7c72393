package app

import (
	"testing"

	"github.com/matryer/is"

	"pocketcoder/expect"
	"pocketcoder/sandbox/isolation"
)

func TestASystemThatRunsAsRootSaysWhatCommandsCanChange(t *testing.T) {
	t.Parallel()
	confined, all := rootNote(isolation.Bwrap, "/work"), rootNote(isolation.None, "/work")
	expect.Contains(t, confined, "isolation bwrap confines them to /work")
	expect.Contains(t, confined, "belong to root")
	expect.Contains(t, all, "every file of this machine")
	for _, note := range []string{confined, all} {
		expect.Contains(t, note, "Start it as an ordinary user")
	}
	is.New(t).Equal(rootNote("refused", "/work"), "") // no command runs
}
