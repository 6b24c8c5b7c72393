package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/cmd/client"
	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/handlers"
	"pocketcoder/ops/expect"
)

const refusalOfAFullDisk = "The disk of the data directory is full; free some space."

func TestSystemRecoversFromAFullDisk(t *testing.T) {
	expect.Long(t, "fills a disk")
	t.Parallel()
	is := is.New(t)
	fault := expect.CountFault(t, "events stored before", "of them there afterwards")
	dir := t.TempDir()
	eventstest.SmallDisk(t, filepath.Join(dir, "data"), 420)
	p := prepare(t, dir)
	p.runForTest()
	admin := p.admin(t)
	logHealth := func() (code int, state, problem string) {
		r := admin.do(t, "GET", "/api/health", nil)
		var body struct {
			Data map[string]struct {
				State  string
				Detail json.RawMessage
			}
		}
		decode(t, r.body, &body)
		var detail struct{ Error string }
		decode(t, string(body.Data["log"].Detail), &detail)
		return r.code, body.Data["log"].State, detail.Error
	}
	isHealth := func(code int, state string) func() bool {
		return func() bool {
			c, s, _ := logHealth()
			return c == code && s == state
		}
	}
	code, state, problem := logHealth()
	is.Equal([]any{code, state, problem}, []any{http.StatusOK, "ready", ""})
	done := p.chat(t, "@@say before") // a chat whose turn has ended, and one with a pending request
	p.turnEnds(t, done)
	waiting := p.chat(t, bash("echo ran >>ran"))
	request := p.awaitRequest(t, waiting, 0)
	p.awaitReferral(t, waiting, request)
	stored := map[string][]string{}
	for _, chat := range []string{done, waiting} {
		stored[chat] = p.kinds(t.Context(), chat)
	}

	remove := eventstest.FillDisk(t, string(p.data), 200)
	code, state, problem = logHealth()
	is.Equal([]any{code, state}, []any{http.StatusOK, "degraded"})
	expect.Contains(t, problem, "the disk of "+string(p.data)+" is almost full: ")
	remove()

	remove = eventstest.FillDisk(t, string(p.data), 0)
	code, state, problem = logHealth()
	is.Equal([]any{code, state}, []any{http.StatusServiceUnavailable, "offline"})
	is.True(strings.HasPrefix(problem, "the disk of "+string(p.data)+" is full: 0 MiB are free"))
	r := admin.do(t, "POST", "/api/collections/chats/records", record{"title": "none"})
	is.Equal(r.code, http.StatusServiceUnavailable)
	expect.Contains(t, r.body, refusalOfAFullDisk)
	err := p.Decide(t.Context(), request.ID, client.Decision{Status: events.Authorized})
	refused := handlers.Refused{}
	is.True(errors.As(err, &refused))
	is.Equal(refused, handlers.Refused{Code: handlers.Unavailable, Text: refusalOfAFullDisk})
	_, stderr, exit := p.cli(t, "", "chat", "-m", "hello")
	is.True(exit != 0)
	expect.Contains(t, stderr, refusalOfAFullDisk)

	lines := strings.Count(p.output.String(), "no space left on device")
	expect.Eventually(t, "an append has met the full disk, and the operator can read it", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		// an abort is not refused, but its event needs space
		_ = p.Abort(ctx, done)
		return strings.Count(p.output.String(), "no space left on device") > lines
	})

	again := strings.Count(p.output.String(), "commands are accepted again")
	remove()
	expect.Eventually(t, "the log is ready again", isHealth(http.StatusOK, "ready"))
	expect.Eventually(t, "the operator can read it", func() bool { return strings.Count(p.output.String(), "commands are accepted again") > again })
	chat := p.chat(t, "@@say after")
	p.turnEnds(t, chat)
	is.Equal(p.text(t, chat), "after")

	p.decide(t, waiting, request, events.Authorized, "")
	p.turnEnds(t, waiting)
	is.Equal(p.finished(t, waiting, 0).ExitCode, 0)
	fault.Tried()
	for chat, kinds := range stored {
		after := p.kinds(t.Context(), chat)[:len(kinds)]
		is.Equal(after, kinds)
		fault.Saw(len(kinds), len(after))
	}
	select {
	case <-p.exited:
		t.Fatal("up ended")
	default:
	}
}
