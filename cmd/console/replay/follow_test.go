package replay

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/cmdtest"
	"pocketcoder/cmd/console/render"
	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

// followed is a transcript of chat1 over its own log.
type followed struct {
	t    *testing.T
	log  *log.Log
	seen expect.Buffer
}

// followTranscript follows chat1 for as long as the test lasts. These events are there before.
func followTranscript(t *testing.T, o FollowOptions, before ...events.Data) *followed {
	t.Helper()
	system := webtest.NewSystem(t)
	f := &followed{t: t, log: system.Log}
	f.append(append([]events.Data{events.ChatCreated{Title: "a chat"},
		events.SessionBound{Session: "ses_1", Directory: "/workspace"}}, before...)...)
	o.Chat = "chat1"
	transcript := newTranscript(render.New(render.NewScreen(&f.seen, false, false)), client.At(system.Local(t)), o)
	transcript.outputTimeout = 90 * time.Second // on a busy machine fragments take their time
	expect.Background(t, transcript.run)
	f.shows("the commands of chat chat1")
	return f
}

func (f *followed) append(all ...events.Data) {
	f.t.Helper()
	var list []events.Event
	for _, d := range all {
		list = append(list, cmdtest.Own(f.t, 0, "engine:local", d))
	}
	if _, err := f.log.AppendAll(f.t.Context(), list); err != nil {
		f.t.Fatal(err)
	}
}

// prints publishes output of a command.
func (f *followed) prints(exec string, offset int64, text string) {
	f.t.Helper()
	err := f.log.PublishDelta(log.Delta{Subject: events.ExecDeltaSubject("chat1", exec), Type: log.ExecOutput,
		Stream: "stdout", Offset: offset, Data: []byte(text)})
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *followed) shows(text string) {
	f.t.Helper()
	expect.Eventually(f.t, "it shows "+text, func() bool { return strings.Contains(f.seen.String(), text) })
}

func TestTranscriptShowsAllOutputOnceAndInOrder(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	line := strings.Repeat("x", 1023) + "\n"
	request := events.ExecRequested{Exec: "x1", Session: "ses_1", Command: "make", Cwd: "/workspace/sub",
		Permission: "per_1"}
	f := followTranscript(t, FollowOptions{}, events.PermissionDecided{Permission: "per_1", Decision: events.Authorized,
		RuleRef: events.RuleRef{Rule: "bash: make*"}}, request)
	// otherwise its end may arrive with its start, and output of commands that ended long ago is not waited for
	f.shows("$ make\n")
	const lines = 3 * log.MaxInline / 1024
	for i := range int64(lines) {
		f.prints("x1", i*1024, fmt.Sprintf("%08d%s", i, line[8:]))
	}
	f.append(events.ExecFinished{Exec: "x1", ExitCode: 2, DurationMS: 1500,
		Stdout: events.Output{Bytes: lines * 1024, Blob: &events.Blob{Name: "x1.stdout", Size: lines * 1024}}})
	f.shows("└ exit 2, 1.5s")
	var numbers []string
	for shown := range strings.Lines(f.seen.String()) {
		if body, ok := strings.CutPrefix(shown, "  │ "); ok {
			numbers = append(numbers, body[:8])
		}
	}
	is.Equal(len(numbers), lines) // all of it, though no event holds it
	for i, n := range numbers {
		is.Equal(n, fmt.Sprintf("%08d", i))
	}
	expect.Contains(t, f.seen.String(), "the assistant · allowed by the rule bash: make* · /workspace/sub\n$ make\n")
}

func TestTranscriptShowsEarlierOutputOfARunningCommand(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	f := followTranscript(t, FollowOptions{}, events.ExecRequested{Exec: "x0", Session: "ses_1", Command: "true"},
		events.ExecFinished{Exec: "x0"},
		events.ExecRequested{Exec: "x1", Session: "ses_1", Command: "make"})
	f.prints("x1", 0, "early\n")
	f.shows("│ early")
	f.prints("x1", 100, "late\n")
	f.shows("… 94 bytes of stdout were missed\n  │ late")
	f.append(events.ExecFinished{Exec: "x1", Reason: "cancelled", Signal: "SIGKILL",
		Stdout: events.Output{Bytes: 105, Text: "early\n" + strings.Repeat("-", 94) + "late\n"}})
	f.shows("└ cancelled, KILL")
	is.Equal(strings.Count(f.seen.String(), "late"), 1)
}

func TestTranscriptBeginsWithTheLastCommands(t *testing.T) {
	t.Parallel()
	var before []events.Data
	for i := range transcriptBefore + 10 {
		id := fmt.Sprintf("x%d", i)
		before = append(before, events.ExecRequested{Exec: id, Session: "ses_1", Command: "echo " + id + "."},
			events.ExecFinished{Exec: id, Stdout: events.Output{Bytes: 1, Text: "o"}})
	}
	f := followTranscript(t, FollowOptions{}, before...)
	f.shows(fmt.Sprintf("$ echo x%d.\n", transcriptBefore+9))
	expect.Lacks(t, f.seen.String(), "echo x9.")
	expect.Contains(t, f.seen.String(), "echo x10.")
}

func TestTranscriptHidesOutputOfPrivateShells(t *testing.T) {
	t.Parallel()
	f := followTranscript(t, FollowOptions{}, events.ExecRequested{Exec: "x1", Terminal: true},
		events.ExecRequested{Exec: "x2", Terminal: true, Private: true})
	f.prints("x1", 0, "\x1b[2Jdrawn\n")
	f.append(events.ExecFinished{Exec: "x1", DurationMS: 5000, Stdout: events.Output{Bytes: 10, Text: "\x1b[2Jdrawn\n"}})
	f.shows("ended: exit 0, 5s")
	f.shows("own, x2\n  (private: what it prints is not recorded)\n")
	expect.Lacks(t, f.seen.String(), "drawn")
}

func TestTranscriptOfASubagentEndsWithItsTurn(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, all := openLogWithTrace(t, "child-shell")
	var child string
	for _, e := range all {
		p := render.ReadPayload(events.OpenCode{Properties: e.Data})
		if e.Subject.Kind == "opencode.session.created" && p.Info.ParentID != "" {
			child = p.SessionID
		}
	}
	is.True(child != "")
	var seen expect.Buffer
	// it is over already
	is.NoErr(newTranscript(render.New(render.NewScreen(&seen, false, false)), s,
		FollowOptions{Chat: "chat1", Session: child}).run(t.Context()))
}
