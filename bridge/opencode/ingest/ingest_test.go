package ingest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"

	"pocketcoder/bridge/opencode/bridgetest"
	"pocketcoder/bridge/opencode/client"
	"pocketcoder/bridge/opencode/opencodetest"
	"pocketcoder/events"
	"pocketcoder/ops/expect"
)

func TestMain(m *testing.M) { expect.Run(m) }

// recordedEvent is an event of a recording.
type recordedEvent struct {
	ID, Type, Session string
	Seq               int64
	Properties        string
}

// readRecording divides frames into facts and fragments, independently of the code under test.
func readRecording(frames [][]byte) (facts, deltas []recordedEvent) {
	twins, running := map[string]bool{}, map[string]bool{}
	for _, f := range frames {
		if p := bridgetest.Parsed(f).Payload; p.Type == "sync" {
			twins[p.SyncEvent.ID] = true
		}
	}
	for _, f := range frames {
		p := bridgetest.Parsed(f).Payload
		e := recordedEvent{p.ID, p.Type, "", -1, string(p.Properties)}
		if p.Type == "sync" {
			s := p.SyncEvent
			e = recordedEvent{s.ID, s.Type[:strings.LastIndexByte(s.Type, '.')], s.AggregateID, s.Seq, string(s.Data)}
		}
		var properties struct {
			SessionID string
			Part      struct {
				ID, Type string
				State    struct{ Status string }
			}
		}
		_ = json.Unmarshal([]byte(e.Properties), &properties)
		e.Session = properties.SessionID
		on := properties.Part.Type == "tool" && properties.Part.State.Status == "running"
		switch {
		case p.Type != "sync" && twins[p.ID], noisy(e.Type):
		case e.Type == "message.part.delta", on && running[properties.Part.ID]:
			deltas = append(deltas, e)
		default:
			facts = append(facts, e)
			running[properties.Part.ID] = on
		}
	}
	return facts, deltas
}

func noisy(typ string) bool {
	return slices.Contains([]string{"server.heartbeat", "plugin.added", "catalog.updated", "integration.updated",
		"reference.updated"}, typ)
}

// roots maps the sessions of a recording to their root sessions. It also returns frames with the history of sessions
// that existed before the recording.
func roots(o *bridgetest.OpenCode, frames [][]byte) (root map[string]string, before [][]byte) {
	root = map[string]string{}
	for _, f := range frames {
		p := bridgetest.Parsed(f).Payload
		s := p.SyncEvent
		if _, seen := root[s.AggregateID]; p.Type != "sync" || seen {
			continue
		}
		var body struct{ Info client.Session }
		_ = json.Unmarshal(s.Data, &body)
		root[s.AggregateID] = s.AggregateID
		if parent, known := root[body.Info.ParentID]; known {
			root[s.AggregateID] = parent
		}
		for seq := range s.Seq {
			typ := "session.updated"
			if seq == 0 {
				typ = "session.created"
			}
			info := fmt.Sprintf(`{"sessionID":%q,"info":{"id":%q,"directory":"/workspace"}}`, s.AggregateID, s.AggregateID)
			before = append(before, o.Durably(s.AggregateID, typ, info)...)
		}
	}
	return root, before
}

func listen(t *testing.T, nc *nats.Conn) func() []*nats.Msg {
	is := is.New(t)
	sub, err := nc.SubscribeSync(events.AllDeltas)
	is.NoErr(err)
	is.NoErr(nc.Flush())
	return func() (all []*nats.Msg) {
		for {
			m, err := sub.NextMsg(200 * time.Millisecond) // fragments are published without an acknowledgement
			if err != nil {
				return all
			}
			all = append(all, m)
		}
	}
}

func TestEveryEventOfARecordingIsStoredOnceAsItCame(t *testing.T) {
	for _, name := range opencodetest.RecordingNames(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			s := bridgetest.NewSystem(t)
			deltas := listen(t, s.NC)
			frames := opencodetest.RecordedEvents(t, name)[1:] // without server.connected, which the script sends
			root, before := roots(s.OpenCode, frames)
			s.AppendUnsent(before...)
			b := s.Start().Connected()
			s.Happen(frames...)
			s.Drained()

			history, _ := readRecording(before)
			want, fragments := readRecording(frames)
			want = append(history, want...)
			chats := map[string]string{}
			i := 0
			for _, e := range s.Events(events.AllEvents) {
				typ, ok := e.Subject.OpenCodeType()
				if !ok || typ == "server.connected" {
					continue
				}
				is.True(i < len(want)) // an event too many
				w := want[i]
				i++
				is.Equal(typ, w.Type)
				is.Equal(e.ID, w.ID)
				is.Equal(string(e.Data), w.Properties)
				is.Equal(e.OpenCodeSeq, w.Seq)
				is.Equal(e.Source == events.SourceReconcile, i <= len(history))
				if root[w.Session] == "" {
					is.Equal(e.RawSubject, events.EngineOpenCodeSubject(b.Engine, w.Type))
					continue
				}
				is.Equal(e.Subject.Scope, events.ScopeChat)
				if chat, seen := chats[root[w.Session]]; seen {
					is.Equal(e.Subject.ID, chat)
				}
				chats[root[w.Session]] = e.Subject.ID
			}
			is.Equal(i, len(want)) // an event too few
			for r, chat := range chats {
				created, bound := bridgetest.Facts[events.ChatCreated](s, chat), bridgetest.Facts[events.SessionBound](s, chat)
				is.Equal(len(created), 1)
				is.True(created[0].Adopted)
				is.Equal(len(bound), 1) // chats of different roots are different chats
				is.Equal(bound[0].Session, r)
			}
			checkDeltas(t, deltas(), fragments, func(session string) string { return chats[root[session]] })
		})
	}
}

func TestBurstsDoNotChangeTheFacts(t *testing.T) {
	for _, n := range []int{1, 2, 7} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			s := bridgetest.NewSystem(t)
			frames := opencodetest.RecordedEvents(t, turn)[1:]
			var all []client.Event
			for _, f := range frames {
				if e, ok, _ := client.ParseEvent(f); ok {
					all = append(all, e)
				}
			}
			b, _ := s.Outbox()
			in := b.Ingest
			for burst := range slices.Chunk(all, n) {
				is.NoErr(in.Take(t.Context(), burst))
			}
			want, _ := readRecording(frames)
			var got []string
			for _, e := range s.Events(events.AllEvents) {
				if _, ok := e.Subject.OpenCodeType(); ok {
					got = append(got, e.ID)
				}
			}
			is.Equal(len(got), len(want))
			for i, w := range want {
				is.Equal(got[i], w.ID)
			}
		})
	}
}

// checkDeltas checks that every text delta was published once, in order, and at least the last update of a growing tool
// output.
func checkDeltas(t *testing.T, got []*nats.Msg, want []recordedEvent, chat func(session string) string) {
	is := is.New(t)
	is.Helper()
	var texts []string
	updates := map[string]string{} // part -> newest
	for _, w := range want {
		var p struct{ Part struct{ ID string } }
		is.NoErr(json.Unmarshal([]byte(w.Properties), &p))
		if w.Type == "message.part.delta" {
			texts = append(texts, events.PartDeltaSubject(chat(w.Session))+" "+w.Properties)
		} else {
			updates[p.Part.ID] = w.Properties
		}
	}
	for _, m := range got {
		switch typ := m.Header.Get("ce-type"); typ {
		case "opencode.message.part.delta":
			is.True(len(texts) > 0)
			is.Equal(m.Subject+" "+string(m.Data), texts[0])
			texts = texts[1:]
		case "opencode.message.part.updated":
			maps.DeleteFunc(updates, func(_, newest string) bool { return newest == string(m.Data) })
		default:
			t.Errorf("a delta of type %q", typ)
		}
	}
	is.Equal(len(texts), 0)
	is.Equal(len(updates), 0)
}

func TestASessionMadeForAChatBelongsToIt(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := bridgetest.NewSystem(t)
	chat := s.Chat()
	s.Start().Connected()
	frames := opencodetest.RecordedEvents(t, "05-perm-bash-once")[1:]
	for i, f := range frames {
		frames[i] = bytes.ReplaceAll(f, []byte(`"info": {"id": "ses_`),
			[]byte(`"info": {"metadata": {"pocketcoder_chat": "`+chat+`"}, "id": "ses_`))
	}
	s.Happen(frames...)
	s.Drained()
	created := bridgetest.Facts[events.ChatCreated](s, chat)
	is.Equal(len(created), 1)
	is.True(!created[0].Adopted)
	want, _ := readRecording(frames)
	n := 0
	for _, e := range s.Events(events.AllEvents) {
		if typ, ok := e.Subject.OpenCodeType(); ok && typ != "server.connected" && e.Subject.ID == chat {
			n++
		}
	}
	is.Equal(n, len(want))
}
