package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	opencode "pocketcoder/bridge/opencode/client"
	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
	"pocketcoder/web/api"
)

// check checks the invariants of a system whose turns have ended. seen are events that were in the log earlier.
func (p *process) check(t *testing.T, seen []events.Event) {
	t.Helper()
	all := p.allEvents(t)
	checkNothingRemoved(t, all, seen)
	checkNoDuplicates(t, all)
	checkExecutions(t, all)
	p.checkMessages(t, all)
	p.checkHistory(t)
	p.checkModel(t)
}

// allEvents returns every event of the log.
func (p *process) allEvents(t *testing.T) (all []events.Event) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), eventTimeout)
	defer cancel()
	err := p.Log.Read(ctx, 0, nil, func(b log.Batch) error {
		if all = append(all, b.Events...); b.Behind == 0 {
			return events.ErrStop
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// checkNothingRemoved checks that every earlier event is still in the log, unchanged and with the same sequence.
func checkNothingRemoved(t *testing.T, all, seen []events.Event) {
	t.Helper()
	for _, e := range seen {
		i, found := slices.BinarySearchFunc(all, e.Seq, func(e events.Event, seq uint64) int {
			return cmp.Compare(e.Seq, seq)
		})
		if !found {
			t.Fatalf("#%d %s is gone", e.Seq, e.RawSubject)
		}
		want, _ := json.Marshal(e)
		if got, _ := json.Marshal(all[i]); !bytes.Equal(got, want) {
			t.Errorf("#%d was %s and is %s", e.Seq, want, got)
		}
	}
}

// countThere returns how many events are still in the log.
func countThere(all, seen []events.Event) (there int) {
	ids := map[string]bool{}
	for _, e := range all {
		ids[e.ID] = true
	}
	for _, e := range seen {
		if ids[e.ID] {
			there++
		}
	}
	return there
}

// checkNoDuplicates checks that no event is stored twice, and that the durable events of a session are in OpenCode's
// order.
func checkNoDuplicates(t *testing.T, all []events.Event) {
	t.Helper()
	ids, last := map[string]uint64{}, map[string]events.Event{}
	for _, e := range all {
		if e.Malformed != nil {
			t.Error(e.Malformed)
		}
		if first, twice := ids[e.ID]; twice {
			t.Errorf("event %s is there twice, at #%d and #%d %s", e.ID, first, e.Seq, e.RawSubject)
		}
		ids[e.ID] = e.Seq
		if e.OpenCodeSeq < 0 {
			continue
		}
		var of struct{ SessionID string }
		if err := json.Unmarshal(e.Data, &of); err != nil || of.SessionID == "" {
			t.Fatalf("#%d %s names no session: %s", e.Seq, e.RawSubject, e.Data)
		}
		if before, ok := last[of.SessionID]; ok && e.OpenCodeSeq <= before.OpenCodeSeq {
			t.Errorf("session %s: #%d has sequence %d, and #%d after it %d", of.SessionID, before.Seq, before.OpenCodeSeq,
				e.Seq, e.OpenCodeSeq)
		}
		last[of.SessionID] = e
	}
}

// checkExecutions checks that every execution has one result, that every approval of a person was used for at most one
// execution, and that every request was decided at most once. A person's own shell needs no approval.
func checkExecutions(t *testing.T, all []events.Event) {
	t.Helper()
	decided, requested, finished, used := map[string]events.PermissionDecided{}, map[string]int{}, map[string]int{},
		map[string]string{}
	for _, e := range all {
		body, err := events.Decode(e)
		if err != nil {
			t.Fatal(err)
		}
		switch d := body.(type) {
		case events.PermissionDecided:
			if _, twice := decided[d.Permission]; twice {
				t.Errorf("#%d: permission %s is decided again", e.Seq, d.Permission)
			}
			decided[d.Permission] = d
		case events.ExecRequested:
			requested[d.Exec]++
			if d.Terminal {
				continue
			}
			approval := d.Permission
			for decided[approval].ApprovalOf != "" {
				approval = decided[approval].ApprovalOf
			}
			if decided[approval].Decision != events.Authorized {
				t.Errorf("#%d: exec %s was not approved", e.Seq, d.Exec)
			}
			if other, twice := used[approval]; twice {
				t.Errorf("#%d: the approval of %s was used for %s and %s", e.Seq, approval, other, d.Exec)
			}
			used[approval] = d.Exec
		case events.ExecFinished:
			finished[d.Exec]++
		}
	}
	for exec := range requested {
		if requested[exec] != 1 || finished[exec] != 1 {
			t.Errorf("exec %s was requested %d times and finished %d times", exec, requested[exec], finished[exec])
		}
	}
}

// checkMessages checks that the messages of people were delivered once and in order, and that OpenCode has exactly
// these.
func (p *process) checkMessages(t *testing.T, all []events.Event) {
	t.Helper()
	// message -> text; session -> ids and texts in the order they were sent
	texts, sent := map[string]string{}, map[string][]string{}
	queued := map[string][]string{} // chat -> messages submitted and not yet sent
	sending, delivered := map[string]int{}, map[string]int{}
	bound, sessions := map[string]int{}, map[string]string{} // by chat
	for _, e := range all {
		body, _ := events.Decode(e) // checkExecutions has decoded every event
		switch d := body.(type) {
		case events.SessionBound:
			bound[e.Subject.ID]++
			sessions[e.Subject.ID] = d.Session
		case events.Deleted:
			delete(bound, e.Subject.ID)
			delete(sessions, e.Subject.ID)
		case events.MessageSubmitted:
			if _, twice := texts[d.Message]; twice {
				t.Errorf("#%d: message %s is submitted again", e.Seq, d.Message)
			}
			texts[d.Message] = d.Parts[0].Text
			queued[e.Subject.ID] = append(queued[e.Subject.ID], d.Message)
		case events.MessageEdited:
			texts[d.Message] = d.Parts[0].Text
		case events.MessageMoved:
			queued[e.Subject.ID] = reordered(queued[e.Subject.ID], d.Message, d.Before)
		case events.MessageSteered: // no test steers two messages of a chat
			queued[e.Subject.ID] = reordered(queued[e.Subject.ID], d.Message, queued[e.Subject.ID][0])
		case events.MessageWithdrawn:
			if sending[d.Message] > 0 {
				t.Errorf("#%d: message %s is deleted after it was sent", e.Seq, d.Message)
			}
			delete(texts, d.Message)
			queued[e.Subject.ID] = slices.DeleteFunc(queued[e.Subject.ID], func(id string) bool { return id == d.Message })
		case events.MessageSending:
			if sending[d.Message]++; texts[d.Message] == "" {
				t.Errorf("#%d: message %s is sent after it was deleted", e.Seq, d.Message)
			}
			if queue := queued[e.Subject.ID]; len(queue) == 0 || queue[0] != d.Message {
				t.Errorf("#%d: message %s is sent before %v", e.Seq, d.Message, queue)
			} else {
				queued[e.Subject.ID] = queue[1:]
			}
			sent[d.Session] = append(sent[d.Session], d.EngineMessage+" "+texts[d.Message])
		case events.MessageDelivered:
			delivered[d.Message]++
		case events.MessageFailed:
			t.Errorf("#%d: message %s failed: %s", e.Seq, d.Message, d.Error)
		}
	}
	for message := range texts {
		if sending[message] != 1 || delivered[message] > 1 {
			t.Errorf("message %s: sending %d times, delivered %d times", message, sending[message], delivered[message])
		}
	}
	for chat, n := range bound {
		if n != 1 {
			t.Errorf("chat %s has %d sessions", chat, n)
		}
		for _, m := range rows[projections.ShownMessage](t, p, "messages", chat) {
			if m.UserStatus != "" && m.UserStatus != "delivered" {
				t.Errorf("message %s is %s", m.ID, m.UserStatus)
			}
		}
	}
	api, _ := p.engine(t)
	for _, session := range sessions {
		held, err := api.Messages(t.Context(), session)
		if err != nil {
			t.Fatal(err)
		}
		if has := assistantTexts(t, held); !slices.Equal(has, sent[session]) {
			t.Errorf("session %s was sent %q and has %q", session, sent[session], has)
		}
	}
}

// reordered puts a message of a queue before another one, or at the end.
func reordered(queue []string, message, before string) []string {
	if message == before {
		return queue
	}
	queue = slices.DeleteFunc(queue, func(id string) bool { return id == message })
	at := slices.Index(queue, before)
	if at < 0 {
		at = len(queue)
	}
	return slices.Insert(queue, at, message)
}

// assistantTexts lists the user messages among what OpenCode holds, by id and text.
func assistantTexts(t *testing.T, held []opencode.Message) (texts []string) {
	t.Helper()
	for _, m := range held {
		if m.Info.Role != "user" {
			continue
		}
		text := m.Info.ID
		for _, part := range m.Parts {
			var body struct{ Text string }
			if err := json.Unmarshal(part, &body); err != nil {
				t.Fatal(err)
			}
			text += " " + body.Text
		}
		texts = append(texts, text)
	}
	return texts
}

// checkHistory checks that the log has every durable event of OpenCode, except for the growing output of tool parts.
func (p *process) checkHistory(t *testing.T) {
	t.Helper()
	api, _ := p.engine(t)
	var history []opencode.Event
	err := api.History(t.Context(), nil, func(page []opencode.Event) error {
		history = append(history, page...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	expect.Eventually(t, "the log has all OpenCode has", func() bool { // the last of it may be on its way
		stored := map[string]int64{}
		for _, e := range p.allEvents(t) {
			stored[e.ID] = e.OpenCodeSeq
		}
		for _, has := range history {
			seq, found := stored[has.ID]
			if found && seq != has.Seq {
				t.Fatalf("%s %s is number %d in the log and number %d in OpenCode", has.Type, has.ID, seq, has.Seq)
			}
			if !found && !(has.Type == "message.part.updated" && strings.Contains(string(has.Properties),
				`"status":"running"`)) {
				return false
			}
		}
		return true
	})
}

// checkModel checks that rebuilt read models are equal, that there are no dead letters, and that every part is ready.
func (p *process) checkModel(t *testing.T) {
	t.Helper()
	if stdout, stderr, code := p.cli(t, "", "admin", "rebuild"); code != 0 {
		t.Errorf("rebuild: %d %s%s", code, stdout, stderr)
	}
	resp, err := http.Get(p.HTTP + "/api/health")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var body struct{ Data map[string]api.Part }
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
		t.Fatal(err)
	}
	for name, part := range body.Data {
		if part.State != api.Ready {
			t.Errorf("%s is %+v", name, part)
		}
	}
	if strings.Contains(p.output.String(), "moved to") {
		t.Errorf("something was set aside: %s", p.output)
	}
}
