package main

import (
	"bufio"
	"context"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
)

// streamGoesOn follows a chat over HTTP. After the incident the client resumes the stream where it was cut. It uses the
// same token, and gets each event of the log once.
func streamGoesOn(t *testing.T, p *process) (check func(*testing.T, *process)) {
	is := is.New(t)
	admin := p.admin(t)
	chat := admin.create(t, "chats", record{"title": "talking"})
	admin.say(t, chat, longText)
	stream := newCutStream(t, "/api/chats/"+chat+"/events")
	is.NoErr(stream.until(t.Context(), admin, func(f frame) bool {
		return f.event == "opencode.message.part.updated" && strings.Contains(f.data, `"step-start"`)
	}))
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
	return func(t *testing.T, p *process) {
		is := is.New(t)
		is.NoErr(<-cut)
		p.finishAfterCrash(t, chat)
		turnIsLost(t, p, chat)
		last := admin.end(t, chat)
		is.NoErr(stream.until(t.Context(), admin, last))
		expectSameText(t, sent(stream.received), sent(admin.whole(t, stream.path, last)))
		stdout, _, code := p.cli(t, "", "replay", chat, "--json", "--to", stream.received[len(stream.received)-1].id)
		is.Equal(code, 0)
		expectSameText(t, facts(stream.received), stdout)
	}
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
