package main

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/expect"
)

// Clients keep their login, a pending request and their position in a stream across a crash.
func clientsGoOn(t *testing.T, p *process, repeated *repeatedMessages) {
	is := is.New(t)
	admin := p.admin(t)
	waiting := admin.create(t, "chats", record{"title": "survived"})
	admin.say(t, waiting, bash(fmt.Sprintf(shortCommand, "survived")))
	draft := admin.awaitRequest(t, waiting)
	talking := admin.create(t, "chats", record{"title": "talking"})
	admin.say(t, talking, "@@text n=10000 delay=20") // lasts longer than what comes before the crash

	stream := newCutStream(t, "/api/events?subject=evt.chat.>")
	begun := func(f frame) bool {
		return f.event == "opencode.message.part.updated" && strings.Contains(f.data, talking) &&
			strings.Contains(f.data, `"step-start"`)
	}
	is.NoErr(stream.until(t.Context(), admin, begun))
	open, cut := make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := stream.connect(t.Context(), admin, math.MaxInt64, func(f frame) bool {
			if f.event == "caught-up" {
				close(open)
			}
			return false
		})
		cut <- err
	}()
	select {
	case <-open:
	case err := <-cut:
		t.Fatalf("the stream ended before it had caught up: %v", err)
	}
	repeated.crash(t, func() { killOpenCode(t, p); p.kill() })
	is.NoErr(<-cut)
	p.turnEnds(t, repeated.chat)

	// with the token from before
	drafts := admin.list(t, "permissions", `status = "draft" && chat = "`+waiting+`"`)
	is.Equal(len(drafts), 1)
	is.Equal(drafts[0]["id"], draft["id"])
	is.Equal(p.timesRun(t, "survived"), 0)
	decided := admin.authorize(t, draft)
	is.Equal([]any{decided["status"], decided["approved_by"]}, []any{"authorized", admin.id})
	p.finishAfterCrash(t, waiting)
	resumedByApproval(t, p, waiting)
	ran := admin.list(t, "executions", `chat = "`+waiting+`"`)
	is.Equal(len(ran), 1)
	is.Equal(ran[0]["status"], events.ExecutionCompleted)
	p.finishAfterCrash(t, talking)
	turnIsLost(t, p, talking)

	last := admin.end(t, waiting)
	is.NoErr(stream.until(t.Context(), admin, last))
	expectSameText(t, sent(stream.received), sent(admin.whole(t, stream.path, last)))
	ofChat := admin.whole(t, "/api/chats/"+waiting+"/events", last)
	stdout, _, code := p.cli(t, "", "replay", waiting, "--json", "--to", ofChat[len(ofChat)-1].id)
	is.Equal(code, 0)
	expectSameText(t, facts(ofChat), stdout)
}

// healthcheckFollows returns a check that the stored health record of a part follows the state of the part.
func healthcheckFollows(part string) incidentCheck {
	return incidentCheck{"the health check follows", func(t *testing.T, p *process) (check func(*testing.T, *process)) {
		is := is.New(t)
		admin := p.admin(t)
		states := func() map[string]string {
			found := map[string]string{}
			for _, r := range admin.list(t, "healthchecks", "") {
				found[r["name"].(string)] = r["status"].(string)
			}
			return found
		}
		expect.Eventually(t, "every part is recorded", func() bool { return maps.Equal(states(), p.health(t).states) })
		is.Equal(len(states()), 6)
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := admin.follow(ctx, "/api/events?subject=evt.config.healthchecks.>", "")
		is.NoErr(err)
		r := bufio.NewReader(stream)
		becomes := func(t *testing.T, state string) {
			t.Helper()
			defer time.AfterFunc(eventTimeout, cancel).Stop()
			for {
				f, err := nextFrame(r)
				if err != nil {
					t.Fatalf("%s did not become %s: %v", part, state, err)
				}
				if strings.Contains(f.data, `"name":"`+part+`"`) && strings.Contains(f.data, `"status":"`+state+`"`) {
					return
				}
			}
		}
		becomes(t, "ready")
		return func(t *testing.T, _ *process) {
			defer cancel()
			defer stream.Close()
			becomes(t, "starting")
			becomes(t, "ready")
			expect.Eventually(t, "the records say so", func() bool { return states()[part] == "ready" })
		}
	}}
}
