package admin

import (
	"context"
	"errors"
	"testing"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"

	"pocketcoder/cmd/cli"
	"pocketcoder/cmd/cli/clitest"
	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/expect"
)

// answerRebuild answers query.rebuild with the given messages.
func answerRebuild(t *testing.T, answers ...*nats.Msg) *nats.Conn {
	t.Helper()
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	_, err := nc.Subscribe("query.rebuild", func(m *nats.Msg) {
		for _, a := range answers {
			a.Subject = m.Reply
			nc.PublishMsg(a)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return nc
}

func TestRebuildReportsProgressAndEquality(t *testing.T) {
	is := is.New(t)
	step := func(text string) *nats.Msg { return &nats.Msg{Data: []byte(text)} }
	env, out := clitest.Environment(nil)
	nc := answerRebuild(t, step(`{"done":5,"total":10}`), step(`{"done":5,"total":10}`),
		step(`{"done":10,"total":10,"rebuilt":{"events":10,"seconds":0.5,"before":"aa","after":"aa"}}`))
	is.NoErr(rebuild(t.Context(), env, nc))
	is.Equal(out.String(), "5 of 10 events\n10 events in 0.50 s: 20 events/s\nbefore  aa\nafter   aa\nthe read models are the same, byte for byte\n")

	env, out = clitest.Environment(nil)
	nc = answerRebuild(t, step(`{"rebuilt":{"events":1,"seconds":1,"before":"aa","after":"bb"}}`))
	is.True(errors.Is(rebuild(t.Context(), env, nc), cli.ExitCode(1)))
	expect.Contains(t, out.String(), "DIFFER")
}

func TestFailedRebuildReportsTheReason(t *testing.T) {
	is := is.New(t)
	env, _ := clitest.Environment(nil)
	failed := nats.NewMsg("")
	failed.Header.Set("Error", "another rebuild is running")
	err := rebuild(t.Context(), env, answerRebuild(t, failed))
	is.True(err != nil)
	expect.Contains(t, err.Error(), "another rebuild is running")

	alone := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	is.True(errors.Is(rebuild(t.Context(), env, alone), nats.ErrNoResponders))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	is.True(errors.Is(rebuild(ctx, env, answerRebuild(t)), context.Canceled))
}

func TestPreparePrintsTheNextSteps(t *testing.T) {
	is := is.New(t)
	log, dir := eventstest.Log(t), t.TempDir()
	e, err := events.New("chat1", "user:ann", events.ChatCreated{Title: "Chat"})
	is.NoErr(err)
	_, err = log.Append(t.Context(), e)
	is.NoErr(err)
	env, out := clitest.Environment(nil)
	is.NoErr(prepareModels(t.Context(), env, dir, log))
	expect.Contains(t, out.String(), "1 events in")
	expect.Contains(t, out.String(), "stop the old version and start the new one")
	env, out = clitest.Environment(nil)
	is.NoErr(prepareModels(t.Context(), env, dir, log))
	expect.Contains(t, out.String(), "nothing to prepare")
}
