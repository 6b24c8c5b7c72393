package admin

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/cmd/cli"
	"pocketcoder/cmd/client"
	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

// answering returns a connection to a server that answers a rebuild with an event stream.
func answering(t *testing.T, stream string) *client.System {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, stream)
	}))
	t.Cleanup(server.Close)
	return client.At(server.URL)
}

func TestRebuildReportsProgressAndEquality(t *testing.T) {
	is := is.New(t)
	env, out := environment(nil)
	const step = "event: progress\ndata: {\"done\":5,\"total\":10}\n\n"
	s := answering(t, step+step+
		"event: rebuilt\ndata: {\"events\":10,\"seconds\":0.5,\"before\":\"aa\",\"after\":\"aa\"}\n\n")
	is.NoErr(rebuild(t.Context(), env, s))
	is.Equal(out.String(), "5 of 10 events\n10 events in 0.50 s: 20 events/s\nbefore  aa\nafter   aa\nthe read models are the same, byte for byte\n")

	env, out = environment(nil)
	s = answering(t, "event: rebuilt\ndata: {\"events\":1,\"seconds\":1,\"before\":\"aa\",\"after\":\"bb\"}\n\n")
	is.True(errors.Is(rebuild(t.Context(), env, s), cli.ExitCode(1)))
	expect.Contains(t, out.String(), "DIFFER")
}

func TestARebuildOfARunningSystem(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	env, out := environment(nil)
	is.NoErr(rebuild(t.Context(), env, client.At(s.Local(t))))
	expect.Contains(t, out.String(), "the read models are the same, byte for byte")
}

func TestFailedRebuildReportsTheReason(t *testing.T) {
	is := is.New(t)
	env, _ := environment(nil)
	err := rebuild(t.Context(), env, answering(t, "event: failed\ndata: \"another rebuild is running\"\n\n"))
	is.True(err != nil)
	expect.Contains(t, err.Error(), "another rebuild is running")
	is.True(errors.Is(rebuild(t.Context(), env, answering(t, "")), io.EOF)) // the system has ended

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	is.True(errors.Is(rebuild(ctx, env, answering(t, "")), context.Canceled))
}

func TestPreparePrintsTheNextSteps(t *testing.T) {
	is := is.New(t)
	log, dir := eventstest.Log(t), t.TempDir()
	e, err := events.New("chat1", "user:ann", events.ChatCreated{Title: "Chat"})
	is.NoErr(err)
	_, err = log.Append(t.Context(), e)
	is.NoErr(err)
	env, out := environment(nil)
	is.NoErr(prepareModels(t.Context(), env, dir, log))
	expect.Contains(t, out.String(), "1 events in")
	expect.Contains(t, out.String(), "stop the old version and start the new one")
	env, out = environment(nil)
	is.NoErr(prepareModels(t.Context(), env, dir, log))
	expect.Contains(t, out.String(), "nothing to prepare")
}

// environment returns an environment without a terminal and with these variables, and the buffer that stdout and
// stderr go to.
func environment(variables map[string]string) (cli.Environment, *bytes.Buffer) {
	var out bytes.Buffer
	return cli.Environment{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out,
		Getenv: func(name string) string { return variables[name] }}, &out
}
