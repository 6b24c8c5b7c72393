package cli

import (
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/cmd/client"
	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers/account"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
	"pocketcoder/web/webtest"
)

// runningOne is a command without an end.
func runningOne() projections.ShownExecution {
	x := projections.Execution{Chat: "chat1", Status: events.ExecutionRunning, Started: "2026-01-02 03:04:05.000Z"}
	x.ID = "x1"
	return projections.ShownExecution{Execution: x}
}

// fragmentAt is a piece of stdout.
func fragmentAt(chat string, offset int64, text string) log.Delta {
	return log.Delta{Subject: events.ExecDeltaSubject(chat, "x1"), Type: log.ExecOutput, Stream: "stdout",
		Offset: offset, Data: []byte(text)}
}

func TestLogsOfARunningCommandGoOnBehindWhatIsMissing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	system := webtest.NewSystem(t)
	_, token := system.User(t, "ada", account.User)
	x := runningOne()
	x.Chat = system.Chat(t, token, "chat")
	system.AppendExecution(t, x.Chat, "x1", nil)
	// what came first has aged out
	for _, d := range []log.Delta{fragmentAt(x.Chat, 100, "a\n\xe2"), fragmentAt(x.Chat, 150, "b\n")} {
		is.NoErr(system.Log.PublishDelta(d))
	}
	var out, notes strings.Builder
	expect.Eventually(t, "both are stored", func() bool {
		out.Reset()
		notes.Reset()
		p := newOutputPrinter(client.At(system.Local(t)), Environment{Stdout: &out, Stderr: &notes}, x)
		is.NoErr(p.show(t.Context(), false))
		return strings.Contains(out.String(), "b")
	})
	is.Equal(out.String(), "a\n<0xE2>b\n")
	is.Equal(notes.String(), "… 100 bytes of stdout were missed\n… 47 bytes of stdout were missed\n")
}

func TestFollowedLogsHaveEveryByteOnceAndInOrder(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var out, notes strings.Builder
	p := newOutputPrinter(nil, Environment{Stdout: &out, Stderr: &notes}, runningOne())
	p.following = true
	// one was lost on its way
	for _, d := range []log.Delta{fragmentAt("chat1", 100, "a\n"), fragmentAt("chat1", 100, "a\nb\n"),
		fragmentAt("chat1", 109, "c\n"), fragmentAt("chat1", 120, "d\n")} {
		is.NoErr(p.fragment(d))
	}
	is.Equal(out.String(), "a\nb\n")
	is.NoErr(p.finish(t.Context(), events.ExecFinished{Exec: "x1",
		Stdout: events.Output{Text: strings.Repeat("-", 100) + "a\nb\nlost\nc\nand d\n"}}, ""))
	is.Equal(out.String(), "a\nb\nlost\nc\nand d\n")
	is.Equal(notes.String(), "… 100 bytes of stdout were missed\n… 5 bytes of stdout were missed; the rest of the output follows after the end of the command\nended: exit 0, 0s\n")
}

func TestStreamsOfAnEndedCommandHaveAnOrder(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ended := runningOne()
	ended.Status, ended.Outputs = events.ExecutionCompleted, `{"stdout":{"base64":"b3V04g=="},"stderr":{"text":"err\r"}}`
	ended.LeftBehind = "The sandbox ended it."
	for range 30 { // the order of a map would be another one by then
		var both strings.Builder
		is.NoErr(newOutputPrinter(nil, Environment{Stdout: &both, Stderr: &both}, ended).show(t.Context(), false))
		is.Equal(both.String(), "outerr<0xE2>␍\nThe sandbox ended it.\nended: exit 0, 0s\n")
	}
}

func TestLogsOfARefusedCommandSayThatItDidNotRun(t *testing.T) {
	is := is.New(t)
	var notes strings.Builder
	refused := projections.ShownExecution{Execution: projections.Execution{Status: events.ExecutionRefused,
		Reason: "nothing\x1b authorized it"}}
	is.NoErr(newOutputPrinter(nil, Environment{Stderr: &notes}, refused).show(t.Context(), false))
	is.Equal(notes.String(), "it did not run: nothing␛ authorized it\n")
}
