package site

import (
	"bytes"
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers/policy/display"
	"pocketcoder/web/api"
	"pocketcoder/web/pages/visible"
	"pocketcoder/web/stream"
)

// clockSkew is how much older than the record of its message or execution a fragment may be, because the clocks of two
// machines differ.
const clockSkew = 10 * time.Second

// FragmentsSince returns the earliest time of the fragments that a page of the chat needs: what began returns, or now,
// less clockSkew. began returns the time of the oldest message or execution that fragments belong to, "" for none.
func (s *Site) FragmentsSince(ctx context.Context, caller api.Caller, chat string,
	began func(ctx context.Context, db dbx.Builder, chat string) (string, error)) (time.Time, error) {
	since := time.Now()
	err := s.API.SlowView(ctx, caller.Key(), func(db dbx.Builder, _ uint64) error {
		if _, err := s.Chat(ctx, db, caller, chat); err != nil {
			return err
		}
		text, err := began(ctx, db, chat)
		if at, wrong := time.Parse(events.TimeFormat, text); wrong == nil {
			since = at
		}
		return err
	})
	return since.Add(-clockSkew), err
}

// maxFragments is the largest number of fragments that wait for a stream.
const maxFragments = 256

// Fragment is a piece of a text that is being written.
type Fragment struct {
	Part string `json:"part"`
	Text string `json:"text"`
}

// Writing returns a source of the texts that are being written: what fragmentOf makes of the deltas that were stored
// since a time and match one of filters. It sends together what arrived together.
func (s *Site) Writing(since time.Time, filters []string, fragmentOf func(context.Context, log.Delta) (Fragment,
	bool)) Source {
	return func(ctx context.Context, out *stream.EventWriter) error {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		arrived := make(chan Fragment, maxFragments)
		go func() {
			cancel(s.Log.ReadDeltas(ctx, since, filters, func(d log.Delta) {
				if f, ok := fragmentOf(ctx, d); ok {
					select {
					case arrived <- f:
					case <-ctx.Done():
					}
				}
			}))
		}()
		for {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case f := <-arrived:
				if err := sendFragments(out, f, arrived); err != nil {
					return err
				}
			}
		}
	}
}

// sendFragments sends a fragment and those that arrived since, the fragments of a part in a row as one.
func sendFragments(out *stream.EventWriter, f Fragment, arrived <-chan Fragment) error {
	var text strings.Builder
	text.WriteString(f.Text)
	send := func() error {
		return out.Send("", "text", jsonText(Fragment{f.Part, display.Prose(text.String())}))
	}
	for range len(arrived) {
		next := <-arrived
		if next.Part != f.Part {
			if err := send(); err != nil {
				return err
			}
			f = next
			text.Reset()
		}
		text.WriteString(next.Text)
	}
	return send()
}

// maxLiveOutput is how much of what a command prints a page shows while the command runs, in bytes. When it has ended,
// the page shows its beginning and its end.
const maxLiveOutput = 64 << 10

// LiveOutput is how much of the output of running executions was sent, in bytes.
type LiveOutput map[string]int

// ExecutionOf returns the execution whose output a delta is.
func ExecutionOf(d log.Delta) string { return d.Subject[strings.LastIndexByte(d.Subject, '.')+1:] }

// Piece returns the text of a piece of output, and whether the page shows it. It leaves out the sequences that set
// colours.
func (l LiveOutput) Piece(d log.Delta) (text string, ok bool) {
	exec := ExecutionOf(d)
	if l[exec] > maxLiveOutput {
		return "", false
	}
	if l[exec] += len(d.Data); l[exec] > maxLiveOutput {
		return "\n… The command prints more. The page shows the end of the output when the command has ended.", true
	}
	var b strings.Builder
	for _, token := range visible.Colored(string(bytes.ToValidUTF8(d.Data, []byte(string(utf8.RuneError))))) {
		b.WriteString(token.Text)
	}
	return b.String(), true
}
