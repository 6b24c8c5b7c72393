package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

// eventTimeout bounds the wait for something that must happen; a loaded machine takes its time.
const eventTimeout = 90 * time.Second

// event waits for the first event of a kind, since the chat began, for which match (nil for any) says true.
func (p *process) event(t testing.TB, chat, kind string, match func(events.Event) bool) (found events.Event) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), eventTimeout)
	defer cancel()
	err := p.Log.Read(ctx, 0, []string{events.ChatSubject(chat, kind)}, func(b log.Batch) error {
		for _, e := range b.Events {
			if match == nil || match(e) {
				found = e
				return events.ErrStop
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("wait for %s in chat %s: %v; it has\n%s", kind, chat, err,
			strings.Join(p.kinds(context.Background(), chat), "\n"))
	}
	return found
}

// history returns every event of a chat so far.
func (p *process) history(t testing.TB, chat string) (all []events.Event) {
	t.Helper()
	if _, err := p.Log.Fold(t.Context(), events.ChatFilter(chat), 0,
		func(e events.Event) error { all = append(all, e); return nil }); err != nil {
		t.Fatal(err)
	}
	return all
}

func (p *process) kinds(ctx context.Context, chat string) (kinds []string) {
	_, _ = p.Log.Fold(ctx, events.ChatFilter(chat), 0, func(e events.Event) error {
		kinds = append(kinds, e.Subject.Kind)
		return nil
	})
	return kinds
}

// turnEnds waits until everything submitted so far has been answered and it is the person's turn again.
func (p *process) turnEnds(t testing.TB, chat string) {
	t.Helper()
	expect.Eventually(t, "the turn of chat "+chat+" ends", func() bool {
		return p.row(t, chat).Turn == projections.TurnUser
	})
}
