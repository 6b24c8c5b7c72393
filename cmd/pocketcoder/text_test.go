package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/projections"
)

func TestTextIsStreamedInFragmentsAndStoredWhole(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	chat := p.chat(t, "@@reason n=4 delay=5\n@@text n=5 delay=5\n@@usage in=100 out=20")
	p.turnEnds(t, chat)

	answers := rows[projections.ShownMessage](t, p, "messages", chat)
	is.Equal(len(answers), 2)
	answer := answers[1]
	is.Equal(answer.EngineStatus, "completed")
	is.Equal(answer.Finish, "stop")
	is.Equal(answers[0].UserStatus, "delivered")
	is.Equal(answer.Parent, answers[0].EngineMessage)
	texts := map[string]part{}
	for _, part := range partsOf(t, answer) {
		texts[part.Type] = part
	}
	is.Equal(strings.TrimSpace(texts["text"].Text), "t0 t1 t2 t3 t4")
	is.Equal(strings.TrimSpace(texts["reasoning"].Text), "r0 r1 r2 r3")
	for kind, n := range map[string]int{"text": 5, "reasoning": 4} {
		var streamed strings.Builder
		fragments := 0
		for _, body := range p.fragments(t, events.PartDeltaSubject(chat)) {
			var d struct{ MessageID, PartID, Delta string }
			is.NoErr(json.Unmarshal([]byte(body), &d))
			if d.MessageID == answer.EngineMessage && d.PartID == texts[kind].ID {
				fragments++
				streamed.WriteString(d.Delta)
			}
		}
		is.Equal(fragments, n)
		is.Equal(streamed.String(), texts[kind].Text) // the fragments add up to the whole
	}
	for _, e := range p.history(t, chat) {
		is.True(e.Subject.Kind != "opencode.message.part.delta") // EVENTS holds no fragment
	}

	row := p.row(t, chat)
	is.Equal(row.Preview, "t0 t1 t2 t3 t4")
	is.True(row.LastActive >= answer.Created)
	is.Equal(row.Turn, projections.TurnUser)
	spent := rows[projections.Usage](t, p, "usage", chat)
	is.Equal(len(spent), 1)
	is.Equal(spent[0].Cost, 0.0) // the demo model is free
	is.Equal(spent[0].Provider+"/"+spent[0].Model, "demo/demo")
	is.Equal([]int64{spent[0].Messages, spent[0].TokensInput, spent[0].TokensOutput}, []int64{1, 100, 20})
	is.Equal([]int64{answer.TokensInput, answer.TokensOutput}, []int64{100, 20})
}

// submitted and delivered are the ids of a chat's messages, in the order of those events.
func submitted(t testing.TB, p *process, chat string) []string {
	return messageIDs(t, p, chat, "message.submitted")
}
func delivered(t testing.TB, p *process, chat string) []string {
	return messageIDs(t, p, chat, "message.delivered")
}

func messageIDs(t testing.TB, p *process, chat, kind string) (ids []string) {
	for _, e := range p.history(t, chat) {
		if e.Subject.Kind == kind {
			var m struct{ Message string }
			if err := json.Unmarshal(e.Data, &m); err != nil {
				t.Fatal(err)
			}
			ids = append(ids, m.Message)
		}
	}
	return ids
}
