package stream

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/web/api"
)

// chatEvents streams the stored and the new events of a chat, while the caller may see the chat.
func (s *Streams) chatEvents(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	chat := r.PathValue("id")
	sees := func() error {
		if caller.IsOperator { // also of a deleted chat, whose events stay in the log
			return nil
		}
		return s.API.MayView(r.Context(), caller, "chats", chat)
	}
	since := s.API.Model.Seq() // before the caller's access is checked
	if err := sees(); err != nil {
		return err
	}
	ctx, cancel := s.API.WhileAllowed(r, caller, chat, since, sees)
	defer cancel()
	r = r.WithContext(ctx)
	var kinds [][]string
	if text := r.URL.Query().Get("kinds"); text != "" {
		for kind := range strings.SplitSeq(text, ",") {
			kinds = append(kinds, strings.Split(kind, "."))
		}
	}
	return s.serveHistory(w, r, caller, events.ChatFilter(chat), kinds, func(ctx context.Context, e events.Event) error {
		return s.API.StillAllowed(ctx, e, sees)
	})
}

// allEvents streams the events of the log, or those that a subject filter matches.
func (s *Streams) allEvents(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	filter := events.AllEvents
	if text := r.URL.Query().Get("subject"); text != "" {
		var err error
		if filter, err = events.ParseFilter(text); err != nil {
			return api.BadField("subject", "validation_invalid_value", "%v", err)
		}
	}
	return s.serveHistory(w, r, caller, filter, nil, func(context.Context, events.Event) error { return nil })
}

// serveHistory sends the events of a filter after the last one that the client has, then a caught-up event, then new
// events. It sends only events of the kinds, which may have wildcards; nil is all. It calls sent after each event, also
// after one that it leaves out; an error of sent ends the stream.
func (s *Streams) serveHistory(w http.ResponseWriter, r *http.Request, caller api.Caller, filter string,
	kinds [][]string, sent func(context.Context, events.Event) error) error {
	after, err := s.resumeAfter(r)
	if err != nil {
		return err
	}
	deltas, since, err := deltasOf(r)
	if err != nil {
		return err
	}
	release, err := s.open.Acquire(caller, maxStreams,
		"Too many event streams of this account are open. Close some of them.")
	if err != nil {
		return err
	}
	defer release()
	caughtUp := make(chan struct{})
	follow := func(ctx context.Context, out *EventWriter) error {
		return s.API.Tail.Follow(ctx, after, filter, func(e events.Event) error {
			if isOneOf(kinds, e) {
				if err := sendEvent(out, e); err != nil {
					return err
				}
			}
			return sent(ctx, e)
		}, func(seq uint64) error {
			close(caughtUp)
			return out.Send("", "caught-up", []byte(`{"seq":`+strconv.FormatUint(seq, 10)+`}`))
		})
	}
	fragments := func(ctx context.Context, out *EventWriter) error {
		select {
		case <-caughtUp:
			return s.sendDeltas(ctx, out, deltaFilters(filter), since)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	parts := []func(context.Context, *EventWriter) error{follow}
	switch deltas {
	case withDeltas:
		parts = append(parts, fragments)
	case onlyDeltas:
		caughtUp, parts[0] = closed, func(ctx context.Context, out *EventWriter) error {
			return s.API.Tail.Follow(ctx, s.API.Model.Seq(), filter, func(e events.Event) error { return sent(ctx, e) },
				func(uint64) error { return nil })
		}
		parts = append(parts, fragments)
	}
	return ServeEvents(s.API, w, r, s.API.Accounts.Ended(caller.Session), parts...)
}

// isOneOf reports whether an event has one of the kinds, each as the words of a filter. nil is all.
func isOneOf(kinds [][]string, e events.Event) bool {
	kind := strings.Split(e.Subject.Kind, ".")
	return kinds == nil || slices.ContainsFunc(kinds, func(k []string) bool { return events.MatchesFilter(k, kind) })
}

// Which deltas a client gets, besides the events or in place of them.
const (
	withDeltas = "1"
	onlyDeltas = "only"
)

// closed is a channel that is closed.
var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// deltasOf returns which deltas the query asks for, and the time since which stored ones are sent too, zero for live
// ones alone.
func deltasOf(r *http.Request) (deltas string, since time.Time, err error) {
	v := r.URL.Query()
	if text := v.Get("since"); text != "" {
		if since, err = time.Parse(time.RFC3339, text); err != nil {
			return "", since, api.BadField("since", "validation_invalid_type", "want a time, got %q", api.Truncate(text, 40))
		}
	}
	if v.Get("deltas") == onlyDeltas {
		return onlyDeltas, since, nil
	}
	with, err := boolOf(r, "deltas")
	if with {
		deltas = withDeltas
	}
	return deltas, time.Time{}, err
}

// resumeAfter is the sequence of the last event that the client has: from Last-Event-ID, otherwise from the query.
func (s *Streams) resumeAfter(r *http.Request) (uint64, error) {
	query, err := sequenceOf("after", r.URL.Query().Get("after"))
	if err != nil {
		return 0, err
	}
	header, err := sequenceOf("Last-Event-ID", r.Header.Get("Last-Event-ID"))
	if err != nil {
		return 0, err
	}
	field, after := "after", query
	if r.Header.Get("Last-Event-ID") != "" {
		field, after = "Last-Event-ID", header
	}
	last, err := s.Log.Last(r.Context())
	if err != nil {
		return 0, err
	}
	if after > last {
		p := api.BadField(field, "validation_other_log",
			"the log ends at #%d, so #%d is an event of another log: begin at 0", last, after)
		p.Status = http.StatusConflict
		return 0, p
	}
	return after, nil
}

// sequenceOf parses a sequence. An empty text is 0.
func sequenceOf(field, text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	seq, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, api.BadField(field, "validation_invalid_type", "want the sequence of an event, got %q",
			api.Truncate(text, 40))
	}
	return seq, nil
}

func boolOf(r *http.Request, field string) (bool, error) {
	text := r.URL.Query().Get(field)
	if text == "" {
		return false, nil
	}
	is, err := strconv.ParseBool(text)
	if err != nil {
		return false, api.BadField(field, "validation_invalid_type", "want true or false, got %q", api.Truncate(text, 40))
	}
	return is, nil
}

// The names of events without a body: one that cannot be decoded, and one whose body an operator erased.
const (
	malformed = "malformed"
	erased    = "erased"
)

func sendEvent(out *EventWriter, e events.Event) error {
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	name := e.Subject.Kind
	switch {
	case e.IsErased():
		name = erased
	case e.Malformed != nil:
		name = malformed
	}
	return out.Send(strconv.FormatUint(e.Seq, 10), name, data)
}

// deltaFilters returns the filters for the deltas of the chats that a filter of events matches.
func deltaFilters(filter string) []string {
	words := strings.Split(filter, ".")
	switch {
	case len(words) > 2 && words[1] == "chat" && words[2] != ">":
		return events.ChatDeltaFilters(words[2])
	case words[1] == "chat" || words[1] == "*" || words[1] == ">":
		return []string{events.AllDeltas}
	}
	return nil
}

// maxFragments is the largest number of deltas that wait for a client. It misses later ones.
const maxFragments = 64

// fragment is a delta in the form for clients.
type fragment struct {
	Subject string `json:"subject"`
	Type    string `json:"type"`
	Stream  string `json:"stream,omitempty"` // exec.output: stdout or stderr
	Offset  int64  `json:"offset,omitempty"` // exec.output: bytes of that stream before this one
	Data    any    `json:"data"`             // OpenCode's JSON; exec.output: base64
}

// sendDeltas sends live deltas, or every delta since a time.
func (s *Streams) sendDeltas(ctx context.Context, out *EventWriter, filters []string, since time.Time) error {
	buffered := make(chan log.Delta, maxFragments)
	done := make(chan error, 1)
	go func() {
		if !since.IsZero() {
			done <- s.Log.ReadDeltas(ctx, since, filters, func(d log.Delta) {
				select {
				case buffered <- d:
				case <-ctx.Done():
				}
			})
			return
		}
		done <- s.Log.FollowDeltas(ctx, filters, func(d log.Delta) {
			select {
			case buffered <- d:
			default:
			}
		})
	}()
	for {
		select {
		case err := <-done:
			return err
		case d := <-buffered:
			if err := sendDelta(out, d); err != nil {
				return err
			}
		}
	}
}

func sendDelta(out *EventWriter, d log.Delta) error {
	f := fragment{Subject: d.Subject, Type: d.Type, Stream: d.Stream, Offset: d.Offset, Data: d.Data}
	if d.Type != log.ExecOutput && json.Valid(d.Data) {
		f.Data = json.RawMessage(d.Data)
	}
	data, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return out.Send("", "delta", data)
}

// executionDeltas sends the deltas of the output of a command.
func (s *Streams) executionDeltas(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	follow, err := boolOf(r, "follow")
	if err != nil {
		return err
	}
	since := s.API.Model.Seq() // before the caller's access is checked
	x, err := s.API.Find(r.Context(), caller, "executions", r.PathValue("id"))
	if err != nil {
		return err
	}
	release, err := s.open.Acquire(caller, maxStreams,
		"Too many event streams of this account are open. Close some of them.")
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := s.API.WhileAllowed(r, caller, x.Text("chat"), since, func() error {
		return s.API.MayView(r.Context(), caller, "executions", x.ID())
	})
	defer cancel()
	subject := events.ExecDeltaSubject(x.Text("chat"), x.ID())
	return ServeEvents(s.API, w, r.WithContext(ctx), s.API.Accounts.Ended(caller.Session),
		func(ctx context.Context, out *EventWriter) error {
			if !follow {
				_, err := s.Log.FoldDeltas(ctx, subject, 0, func(d log.Delta) error { return sendDelta(out, d) })
				return err
			}
			return s.sendDeltas(ctx, out, []string{subject}, time.Unix(0, 0))
		})
}
