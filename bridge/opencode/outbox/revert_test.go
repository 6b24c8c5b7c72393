package outbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode/bridgetest"
	"pocketcoder/bridge/opencode/client"
	"pocketcoder/bridge/opencode/outbox"
	"pocketcoder/bridge/opencode/snapshots"
	"pocketcoder/events"
	"pocketcoder/handlers/chat"
	"pocketcoder/ops/expect"
)

// undoable returns a system in which a turn of session ses_1, which msg_0 began, has changed a file. OpenCode has no
// snapshot of the file, so it cannot be compared.
func undoable(t *testing.T) (s *system, file string, start func() *bridgetest.Running) {
	t.Helper()
	s = newSystem(t)
	workspace, err := filepath.EvalSymlinks(t.TempDir())
	is.New(t).NoErr(err)
	file = filepath.Join(workspace, "dir", "file")
	kept, none := t.TempDir(), t.TempDir()
	start = func() *bridgetest.Running {
		return s.Start(func(o *outbox.Outbox) {
			o.Snapshots = &snapshots.Snapshots{Workspace: workspace, Dir: none, Kept: kept,
				Git: func(context.Context, ...string) (string, error) { panic("there is no repository") }}
		}).Connected()
	}
	r := start()
	s.Session("ses_1", "")
	s.Happen(s.Durably("ses_1", "message.updated", bridgetest.UserMessage("ses_1", "msg_0"))...)
	s.Happen(s.Durably("ses_1", "message.updated", bridgetest.AssistantMessage("ses_1", `{"created":1,"completed":2}`))...)
	s.Happen(s.Durably("ses_1", "message.part.updated", fmt.Sprintf(
		`{"sessionID":"ses_1","part":{"id":"prt_1","messageID":"msg_ses_1","sessionID":"ses_1","type":"patch","hash":"x","files":[%q]}}`,
		file))...)
	s.Drained()
	changed, err := r.Changed(t.Context(), s.ChatOf("ses_1"), "msg_0")
	is.New(t).NoErr(err)
	is.New(t).Equal(changed, []string{file})
	r.Stop()
	return s, file, start
}

// ended waits until a number of effects of a chat are done, and returns what ended them.
func (s *system) ended(chat string, done, failed int) ([]events.EffectDone, []events.EffectFailed) {
	s.T.Helper()
	expect.Eventually(s.T, "the effects have ended", func() bool {
		return len(facts[events.EffectDone](s, chat)) == done && len(facts[events.EffectFailed](s, chat)) == failed
	})
	return facts[events.EffectDone](s, chat), facts[events.EffectFailed](s, chat)
}

// becomesReverted makes OpenCode report that msg_0 is undone.
func (s *system) becomesReverted() {
	var reverted client.Session
	if err := json.Unmarshal([]byte(`{"id":"ses_1","directory":"/workspace","title":"t","revert":{"messageID":"msg_0"}}`),
		&reverted); err != nil {
		s.T.Error(err)
	}
	s.Locked(func() { s.Sessions["ses_1"] = reverted })
}

func TestAnUndoThatIsTriedAgainKeepsTheNewestFile(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, file, start := undoable(t)
	expect.WriteFile(t, file, "a person's\n")
	tries := 0
	s.RefuseWith(func(r bridgetest.Request) int {
		if !strings.HasSuffix(r.Path, "/revert") {
			return 0
		}
		if tries++; tries == 1 {
			expect.WriteFile(t, file, "the person's newest\n") // before the next try
			return 500
		}
		remove(t, file)
		return 0
	})
	start()
	chat := s.ChatOf("ses_1")
	s.revert(chat, "msg_0")
	done, _ := s.ended(chat, 1, 0)
	is.Equal(expect.ReadFile(t, file), "the person's newest\n")
	is.Equal(done[0].Kept, []string{file})
}

func TestAnUndoThatACrashInterruptedNamesTheKeptFiles(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, file, start := undoable(t)
	expect.WriteFile(t, file, "a person's\n")
	arrived, hold := make(chan bool), make(chan bool)
	s.RefuseWith(func(r bridgetest.Request) int {
		if strings.HasSuffix(r.Path, "/revert") {
			remove(t, file)
			s.becomesReverted()
			close(arrived)
			<-hold
		}
		return 0
	})
	r := start()
	chat := s.ChatOf("ses_1")
	s.revert(chat, "msg_0")
	<-arrived
	s.System = s.Killed(func() { r.Stop(); close(hold) })
	s.RefuseWith(func(bridgetest.Request) int { return 0 })
	start()
	done, _ := s.ended(chat, 1, 0)
	is.Equal(expect.ReadFile(t, file), "a person's\n")
	is.Equal(done[0].Kept, []string{file})
	is.Equal(done[0].Copies, "")
	is.Equal(len(s.Requests("POST", "/revert")), 1)
}

// A person changes a file after a crash, and before PocketCoder starts again. The crash is before or after OpenCode's
// revert.
func TestAnUndoThatACrashInterruptedKeepsWhatAPersonWroteSince(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ overwrite, isReverted bool }{
		"reverted":                  {isReverted: true},
		"to be reverted":            {},
		"reverted, overwrite":       {overwrite: true, isReverted: true},
		"to be reverted, overwrite": {overwrite: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			s, file, start := undoable(t)
			expect.WriteFile(t, file, "a person's\n")
			arrived, hold := make(chan bool), make(chan bool)
			s.RefuseWith(func(r bridgetest.Request) int {
				if strings.HasSuffix(r.Path, "/revert") {
					if c.isReverted {
						remove(t, file)
						s.becomesReverted()
					}
					close(arrived)
					<-hold
				}
				return 0
			})
			r := start()
			chatID := s.ChatOf("ses_1")
			_, err := s.Chats.Revert(t.Context(), chat.Revert{Chat: chatID, Message: "msg_0", Overwrite: c.overwrite})
			is.NoErr(err)
			<-arrived
			s.System = s.Killed(func() { r.Stop(); close(hold) }) // in this order: no answer reaches the dead process
			expect.WriteFile(t, file, "a person's newest\n")
			s.RefuseWith(func(r bridgetest.Request) int {
				if strings.HasSuffix(r.Path, "/revert") {
					remove(t, file)
				}
				return 0
			})
			r = start()
			done, _ := s.ended(chatID, 1, 0)
			is.Equal(expect.ReadFile(t, file), "a person's newest\n")
			if c.overwrite && c.isReverted {
				return // nothing was to be restored
			}
			is.Equal(done[0].Kept, []string{file})
			if !c.isReverted {
				is.Equal(done[0].Copies, "")
				return
			}
			copies, err := filepath.Glob(filepath.Join(done[0].Copies, "*-file"))
			is.NoErr(err)
			is.Equal(len(copies), 1)
			is.Equal(expect.ReadFile(t, copies[0]), "a person's\n")
		})
	}
}

// remove deletes a file, as OpenCode's revert does if it has no snapshot.
func remove(t *testing.T, file string) {
	if err := os.Remove(file); err != nil {
		t.Error(err)
	}
}

func TestAnUndoThatCannotRestoreAFileFailsAndTheChatGoesOn(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, file, start := undoable(t)
	expect.WriteFile(t, filepath.Dir(file), "a person's\n") // in the place of the directory
	s.RefuseWith(func(r bridgetest.Request) int {
		if strings.HasSuffix(r.Path, "/revert") {
			remove(t, filepath.Dir(file))
			expect.WriteFile(t, filepath.Join(filepath.Dir(file), "of another program"), "")
			s.becomesReverted()
		}
		return 0
	})
	r := start()
	chat := s.ChatOf("ses_1")
	s.revert(chat, "msg_0")
	_, failed := s.ended(chat, 0, 1)
	expect.Contains(t, failed[0].Reason, "restore dir: a directory with files is in its place")
	expect.Contains(t, failed[0].Reason, "the copies are in "+r.Snapshots.Kept)
	copies, err := filepath.Glob(filepath.Join(r.Snapshots.Kept, "*", "*-dir"))
	is.NoErr(err)
	is.Equal(len(copies), 1)
	is.Equal(expect.ReadFile(t, copies[0]), "a person's\n")
	s.abortTurn(chat, "")
	s.ended(chat, 1, 1)
}

// An undo right after a redo is compared with the files as the redo leaves them.
func TestChangedWaitsForTheEffectsBeforeIt(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, file, start := undoable(t)
	arrived, hold := make(chan bool), make(chan bool)
	s.RefuseWith(func(r bridgetest.Request) int {
		if strings.HasSuffix(r.Path, "/unrevert") {
			close(arrived)
			<-hold
		}
		return 0
	})
	r := start()
	chat := s.ChatOf("ses_1")
	s.revert(chat, "")
	<-arrived
	type answer struct {
		files []string
		err   error
		done  int
	}
	answers := make(chan answer, 1)
	go func() {
		files, err := r.Changed(t.Context(), chat, "msg_0")
		answers <- answer{files, err, len(facts[events.EffectDone](s, chat))}
	}()
	for range 20 { // a while
		s.Drained()
	}
	is.Equal(len(answers), 0)
	close(hold)
	got := <-answers
	is.NoErr(got.err)
	is.Equal(got.files, []string{file})
	is.Equal(got.done, 1)
}
