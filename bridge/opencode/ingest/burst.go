package ingest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sort"
	"strings"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/events/log/sleep"
)

const heartbeat = "server.heartbeat" // every 10 s

// ignoredTypes holds the event types that are counted but not stored: heartbeats, and what OpenCode reports while it
// starts.
var ignoredTypes = map[string]bool{
	heartbeat: true, "plugin.added": true, "catalog.updated": true, "integration.updated": true, "reference.updated": true,
}

// errGap means that the live stream skipped a durable event. The caller must fetch the history and try again.
var errGap = errors.New("the live stream has a gap")

// takeLive appends a burst of the stream. It fills a gap from the history at its place: what came before it in the
// burst is stored first.
func (in *Ingest) takeLive(ctx context.Context, burst []client.Event) error {
	err := in.take(ctx, burst, false)
	if !errors.Is(err, errGap) {
		return err
	}
	in.Logger.Warn("opencode stream", "err", err)
	before := sort.Search(len(burst), func(n int) bool { return in.hasGap(ctx, burst[:n+1]) })
	if err := in.take(ctx, burst[:before], false); err != nil {
		return err
	}
	if err := in.fetchHistory(ctx); err != nil {
		return err
	}
	return in.take(ctx, burst[before:], false)
}

// hasGap reports whether there is a gap in the first events of a burst.
func (in *Ingest) hasGap(ctx context.Context, events []client.Event) bool {
	_, err := in.divide(ctx, events, false)
	return errors.Is(err, errGap)
}

// take appends a burst: its facts as one batch, in order, and its fragments to DELTAS. After errGap it has stored
// nothing. After another error the caller connects again, and fetches the history.
func (in *Ingest) take(ctx context.Context, burst []client.Event, reconciled bool) error {
	p, err := in.divide(ctx, burst, reconciled)
	if err != nil {
		return err
	}
	in.ignored.Add(p.noise)
	in.publish(p.order[:p.leading], p.fragments) // so that clients get the end of a sentence before the tool call
	if err := in.append(ctx, p.facts); err != nil {
		return err
	}
	in.running = p.running // after the append, because a failed burst is taken again
	for session, reached := range p.reached {
		in.tracker.advance(session, reached)
	}
	in.publish(p.order[p.leading:], p.fragments)
	return nil
}

// divide returns the facts and the fragments of a burst. It stores nothing, except that it binds new sessions to chats.
func (in *Ingest) divide(ctx context.Context, burst []client.Event, reconciled bool) (sortedBurst, error) {
	p := sortedBurst{fragments: map[string]log.Delta{}, reached: map[string]progress{}, running: maps.Clone(in.running)}
	for _, e := range burst {
		if ignoredTypes[e.Type] {
			p.noise++
			continue
		}
		if err := in.add(ctx, &p, e, reconciled); err != nil {
			return p, err
		}
	}
	return p, nil
}

// sortedBurst is a burst, divided into facts and fragments.
type sortedBurst struct {
	facts     []events.Event
	fragments map[string]log.Delta // the newest fragment of each key
	order     []string             // keys of fragments, in order of arrival
	leading   int                  // number of fragments before the first fact
	reached   map[string]progress  // by session
	noise     uint64               // number of events that are not stored
	running   map[string]bool      // tool parts that are running
}

func (in *Ingest) add(ctx context.Context, p *sortedBurst, e client.Event, reconciled bool) error {
	s, err := in.findSession(ctx, e)
	if err != nil {
		return err
	}
	if reached, ok := p.reached[e.Session]; ok {
		s.progress = reached
	}
	if e.Seq >= 0 {
		if e.Seq <= s.seq { // the event is already in the log
			return nil
		}
		if e.Seq > s.seq+1 && !reconciled {
			return fmt.Errorf("session %s: %w from %d to %d", e.Session, errGap, s.seq, e.Seq)
		}
		answer, isAhead := begin(e, s.answer)
		if isAhead && !reconciled {
			return fmt.Errorf("session %s: %w before %d, the end of an answer", e.Session, errGap, e.Seq)
		}
		p.reached[e.Session] = progress{e.Seq, answer}
	}
	if d, key, ok := fragment(s.chat, e, p.running); ok {
		if _, seen := p.fragments[key]; !seen {
			p.order = append(p.order, key)
		}
		p.fragments[key] = d // the newest fragment of a growing part contains the earlier ones
		return nil
	}
	fact, err := in.fact(s.chat, e)
	if err != nil {
		return err
	}
	if reconciled {
		fact = fact.Reconciled()
	}
	if len(p.facts) == 0 {
		p.leading = len(p.order)
	}
	p.facts = append(p.facts, fact)
	return nil
}

// begin returns the newest answer of the event's session that has begun, and reports whether the event shows the end of
// an answer whose beginning has not been taken. OpenCode encodes the message when it sends the event. On a busy machine
// a short answer is over by then, although the events of its parts come later (behaviour late-beginning). The history
// has the message as it was.
func begin(e client.Event, newest string) (answer string, isAhead bool) {
	if e.Type != "message.updated" {
		return newest, false
	}
	var p struct {
		Info struct {
			ID, Role string
			Time     struct{ Completed float64 }
		}
	}
	if json.Unmarshal(e.Properties, &p) != nil || p.Info.Role != "assistant" || p.Info.ID <= newest {
		return newest, false
	}
	return p.Info.ID, p.Info.Time.Completed != 0
}

// unstorable is the type under which an event is stored whole if its own type is not a valid subject, or if it has no
// properties.
const unstorable = "unstorable"

func (in *Ingest) fact(chat string, e client.Event) (events.Event, error) {
	fact, err := events.NewOpenCode(chat, in.Engine, e.ID, e.Seq,
		events.OpenCode{Type: e.Type, Form: e.Form, Properties: e.Properties})
	if err == nil {
		return fact, nil
	}
	in.Logger.Error("store opencode event under the type unstorable", "type", e.Type, "id", e.ID, "err", err)
	body, err := json.Marshal(map[string]any{"id": e.ID, "type": e.Type, "session": e.Session, "seq": e.Seq,
		"properties": string(e.Properties)})
	if err != nil {
		return fact, err
	}
	return events.NewOpenCode("", in.Engine, events.NewID(), -1, events.OpenCode{Type: unstorable, Properties: body})
}

func (in *Ingest) publish(keys []string, fragments map[string]log.Delta) {
	for _, key := range keys {
		if err := in.Log.PublishDelta(fragments[key]); err != nil {
			in.Logger.Warn("delta not published", "err", err) // the closing event of the part contains it
		}
	}
}

// append retries until it succeeds or ctx ends, because OpenCode does not keep the events. The stream waits meanwhile.
func (in *Ingest) append(ctx context.Context, facts []events.Event) error {
	for _, fact := range facts {
		if typ, ok := fact.Subject.OpenCodeType(); ok && typ == events.PermissionAsked {
			in.keepOriginal(fact.Data)
		}
	}
	for {
		seq, err := in.Log.AppendAll(ctx, facts)
		if err == nil {
			if seq > 0 {
				in.last.Store(seq)
				in.stored.Add(uint64(len(facts)))
			}
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		in.Logger.Error("append opencode events", "n", len(facts), "err", err)
		if err := sleep.For(ctx, in.Pause); err != nil {
			return err
		}
	}
}

// keepOriginal passes on a permission request if its stored form differs.
func (in *Ingest) keepOriginal(properties json.RawMessage) {
	var stored, original events.PermissionRequest
	if in.KeepOriginal == nil || json.Unmarshal(in.Log.Redactor().JSON(properties), &stored) != nil || !stored.Redacted() {
		return
	}
	if json.Unmarshal(properties, &original) == nil {
		in.KeepOriginal(original)
	}
}

// fragment reports whether an event is a streaming fragment: a delta, or an update of a tool part that was already
// running. Of fragments with the same key, the later replaces the earlier. fragment updates running.
func fragment(chat string, e client.Event, running map[string]bool) (d log.Delta, key string, ok bool) {
	if chat == "" || len(e.Properties) == 0 {
		return d, "", false
	}
	switch e.Type {
	case "message.part.delta":
		key = e.ID
	case "message.part.updated":
		var p struct { // few fields, because OpenCode sends the whole part for each chunk of output
			Part struct {
				ID, Type string
				State    struct{ Status string }
			}
		}
		if json.Unmarshal(e.Properties, &p) != nil || p.Part.Type != "tool" {
			return d, "", false
		}
		wasRunning := running[p.Part.ID]
		if p.Part.State.Status != "running" {
			delete(running, p.Part.ID)
			return d, "", false
		}
		if running[p.Part.ID] = true; !wasRunning {
			return d, "", false
		}
		key = p.Part.ID
	default:
		return d, "", false
	}
	return log.Delta{Subject: events.PartDeltaSubject(chat), Type: events.OpenCode{Type: e.Type}.Kind(),
		Data: e.Properties}, key, true
}

// findSession returns the session of an event, and binds a new session to a chat. An event without a session, or of a
// deleted session, belongs to no chat. Only ids that begin with ses_ are looked up, because OpenCode answers other ids
// with an error.
func (in *Ingest) findSession(ctx context.Context, e client.Event) (trackedSession, error) {
	if !strings.HasPrefix(e.Session, "ses_") {
		return trackedSession{progress: progress{seq: e.Seq - 1}}, nil
	}
	if s, ok := in.tracker.get(e.Session); ok {
		return s, nil
	}
	info, err := in.sessionInfo(ctx, e)
	if errors.Is(err, client.ErrGone) {
		return trackedSession{progress: progress{seq: e.Seq - 1}}, nil
	}
	if err != nil {
		return trackedSession{}, err
	}
	return in.bindSession(ctx, info)
}

// sessionInfo reads the session from session.created. It asks OpenCode if that event was missed.
func (in *Ingest) sessionInfo(ctx context.Context, e client.Event) (client.Session, error) {
	var created struct{ Info client.Session }
	if e.Type == "session.created" && json.Unmarshal(e.Properties, &created) == nil && created.Info.ID == e.Session {
		return created.Info, nil
	}
	return in.Current().Session(ctx, e.Session)
}

// bindSession binds a session to the chat of its parent, to the chat in its metadata, or to a new chat (an adopted
// session). The copy of a fork is only tracked; the outbox binds it when it is complete.
func (in *Ingest) bindSession(ctx context.Context, info client.Session) (trackedSession, error) {
	s := trackedSession{parent: info.ParentID, directory: info.Directory, progress: progress{seq: -1}}
	if info.ParentID != "" {
		parent, err := in.findSession(ctx, client.Event{Session: info.ParentID, Seq: -1})
		if err != nil {
			return s, err
		}
		if s.chat = parent.chat; s.chat != "" {
			in.tracker.put(info.ID, s)
			return s, nil
		}
	}
	named, isFork := chatOf(info)
	if isTaken, err := in.hasSession(ctx, named); err != nil {
		return s, err
	} else if !isTaken {
		s.chat = named
	}
	if s.chat != "" && isFork {
		in.tracker.put(info.ID, s)
		return s, nil
	}
	actor := events.EngineActor(in.Engine)
	var facts []events.Data
	if s.chat == "" {
		s.chat = events.NewID()
		facts = append(facts, events.ChatCreated{Title: info.Title, Engine: in.Engine, Agent: info.Agent, Adopted: true})
	}
	var all []events.Event
	for _, d := range append(facts, events.SessionBound{Session: info.ID, Directory: info.Directory}) {
		e, err := events.New(s.chat, actor, d)
		if err != nil {
			return s, err
		}
		all = append(all, e)
	}
	if err := in.append(ctx, all); err != nil {
		return s, err
	}
	in.tracker.put(info.ID, s)
	return s, nil
}

// hasSession reports whether a chat has a session that OpenCode still holds. A second session with that chat in its
// metadata was forked in OpenCode itself, which copies the metadata, so it does not belong to the chat.
func (in *Ingest) hasSession(ctx context.Context, chat string) (bool, error) {
	for _, session := range in.tracker.roots(chat) {
		_, err := in.Current().Session(ctx, session)
		if !errors.Is(err, client.ErrGone) {
			return err == nil, err
		}
	}
	return false, nil
}

// chatOf returns the chat in a session's metadata, "" for none, and reports whether the session is the copy of a fork.
func chatOf(s client.Session) (chat string, isFork bool) {
	var metadata map[string]any
	if json.Unmarshal(s.Metadata, &metadata) != nil {
		return "", false
	}
	text, isFork := metadata[MetadataFork].(string)
	if !isFork {
		text, _ = metadata[MetadataChat].(string)
	}
	chat, err := events.ParseID(text)
	if err != nil {
		return "", false
	}
	return chat, isFork
}
