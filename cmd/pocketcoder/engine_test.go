package main

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode"
	"pocketcoder/events"
	"pocketcoder/projections"
)

func TestOpenCodeThatDiesIsStartedAgainAndNothingIsMissing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := start(t)
	streaming, waiting := p.chat(t, "@@text n=2000 delay=20"), p.chat(t, bash("echo approved late"))
	ask := p.ask(t, waiting, 0)
	eventually(t, "some text was streamed", func() bool { return len(p.fragments(t, "delta.chat."+streaming+".>")) > 3 })
	_, pid := p.engine(t)
	is.NoErr(syscall.Kill(pid, syscall.SIGKILL))
	eventually(t, "health says that OpenCode is away", func() bool { code, _ := p.health(t); return code == 503 })
	p.submit(t, streaming, "@@say first") // while it is down
	p.submit(t, streaming, "@@say second")

	p.event(t, streaming, "turn.lost", nil)
	p.turnEnds(t, streaming)
	answers := rows[projections.ShownMessage](t, p, "messages", streaming)
	is.Equal(answers[1].EngineStatus, "failed")
	is.Equal(answers[1].ErrorDomain, "infrastructure")
	is.Equal(delivered(t, p, streaming), submitted(t, p, streaming)) // each once, in order
	is.True(strings.HasSuffix(p.text(t, streaming), "|first|second"))

	p.event(t, waiting, "turn.lost", nil)
	p.event(t, waiting, "permission.interrupted", nil)
	p.decide(t, waiting, ask, events.Authorized, "") // it resumes the turn, and is used up by the same request
	p.finished(t, waiting, 0)
	p.turnEnds(t, waiting)
	runs := rows[projections.Run](t, p, "executions", waiting)
	is.Equal(len(runs), 1)
	is.Equal(outputsOf(t, runs[0]).Stdout.Text, "approved late\n")

	client, again := p.engine(t)
	is.True(again != pid)
	p.holdsAllOf(t, client)
	code, _ := p.health(t)
	is.Equal(code, 200)
}

// holdsAllOf says that EVENTS has every durable event OpenCode has, each once, in its order; but for the growing output of
// a tool that runs, which is in DELTAS.
func (p *process) holdsAllOf(t testing.TB, client *opencode.Client) {
	t.Helper()
	theirs, err := client.History(t.Context(), map[string]int64{})
	if err != nil {
		t.Fatal(err)
	}
	ours, newest := map[string]bool{}, map[string]int64{}
	_, err = p.log.Fold(t.Context(), events.AllEvents, 0, func(e events.Event) error {
		if e.OpenCodeSeq < 0 {
			return nil
		}
		var body struct{ SessionID string }
		if err := json.Unmarshal(e.Data, &body); err != nil {
			return err
		}
		if last, ok := newest[body.SessionID]; ok && e.OpenCodeSeq <= last {
			t.Errorf("#%d is event %d of session %s, after %d", e.Seq, e.OpenCodeSeq, body.SessionID, last)
		}
		newest[body.SessionID], ours[e.ID] = e.OpenCodeSeq, true
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range theirs {
		var body struct {
			Part struct{ State struct{ Status string } }
		}
		if err := json.Unmarshal(e.Properties, &body); err != nil {
			t.Fatal(err)
		}
		if !ours[e.ID] && body.Part.State.Status != "running" {
			t.Errorf("the log lacks event %d of session %s: %s", e.Seq, e.Session, e.Type)
		}
	}
	if len(theirs) == 0 {
		t.Error("OpenCode has no history")
	}
}

func TestSessionMadeInOpenCodeBecomesAChat(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	client, _ := p.engine(t)
	s, err := client.CreateSession(t.Context(), opencode.NewSession{Directory: p.workspace, Title: "made elsewhere"})
	is.NoErr(err)
	is.NoErr(client.Prompt(t.Context(), s.ID, opencode.Prompt{Parts: []opencode.TextPart{{Text: bash("echo adopted")}}}))
	var chat string
	eventually(t, "the session is adopted", func() bool {
		for _, c := range rows[projections.Chat](t, p, "chats", "") {
			if c.Session == s.ID {
				chat = c.ID
			}
		}
		return chat != ""
	})
	p.approve(t, chat, 0)
	p.finished(t, chat, 0)
	p.turnEnds(t, chat)
	is.Equal(p.text(t, chat), "done")
	c := p.row(t, chat)
	is.True(c.Adopted)
	is.Equal(c.Title, "made elsewhere")
	is.Equal(outputsOf(t, rows[projections.Run](t, p, "executions", chat)[0]).Stdout.Text, "adopted\n")
	p.submit(t, chat, "@@say from here") // and it goes on from here
	p.turnEnds(t, chat)
	is.Equal(p.text(t, chat), "done|from here")
}
