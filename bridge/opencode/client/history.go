package client

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	// historyNames is how many sessions one history request may name: OpenCode makes each a term of one SQL condition,
	// and SQLite refuses an expression more than 1,000 deep (measured: 990 pass, 1,100 are answered with a 500).
	historyNames = 900

	historyTimeout = 5 * time.Minute // there is no limit to what it returns
)

// History returns the durable events that come after known, a map from session to the last sequence number held, -1 for
// none. A session that is not in known comes back whole, a deleted one not at all. The order is that of arrival: by event
// id, and within a session by sequence number.
func (c *Client) History(ctx context.Context, known map[string]int64) ([]Event, error) {
	op := fmt.Sprintf("get history of %d sessions", len(known))
	ctx, cancel := context.WithTimeoutCause(ctx, historyTimeout, fmt.Errorf("no answer within %s", historyTimeout))
	defer cancel()
	resp, err := c.send(ctx, call{op: op, method: "POST", path: "/sync/history", in: longest(known, historyNames)})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var missing []Event
	err = eachElement(json.NewDecoder(resp.Body), func(dec *json.Decoder) error {
		var h struct {
			ID, Type    string
			AggregateID string `json:"aggregate_id"`
			Seq         int64
			Data        json.RawMessage
		}
		if err := dec.Decode(&h); err != nil {
			return err
		}
		if last, ok := known[h.AggregateID]; ok && h.Seq <= last {
			return nil
		}
		typ, form := splitVersion(h.Type)
		missing = append(missing, Event{ID: h.ID, Type: typ, Form: form, Session: h.AggregateID, Seq: h.Seq, Properties: h.Data})
		return nil
	})
	if err != nil {
		return nil, failed(ctx, op, fmt.Errorf("read answer: %w", err))
	}
	return inOrder(missing), nil
}

// longest picks the n sessions with the most events held, so that what OpenCode sends needlessly of the others is little.
// A session of which nothing is held need not be named.
func longest(known map[string]int64, n int) map[string]int64 {
	held := maps.Clone(known)
	maps.DeleteFunc(held, func(_ string, seq int64) bool { return seq < 0 })
	if len(held) <= n {
		return held
	}
	sessions := slices.SortedFunc(maps.Keys(held), func(a, b string) int { return int(held[b] - held[a]) })
	for _, session := range sessions[n:] {
		delete(held, session)
	}
	return held
}

// inOrder sorts events that are in order within each session, as OpenCode returns them, by event id. Should the clock have
// gone back, an event stays behind those of its session that precede it.
func inOrder(events []Event) []Event {
	type keyed struct {
		Event
		key string
	}
	latest := map[string]string{}
	all := make([]keyed, len(events))
	for i, e := range events {
		latest[e.Session] = max(latest[e.Session], e.ID)
		all[i] = keyed{e, latest[e.Session]}
	}
	slices.SortStableFunc(all, func(a, b keyed) int { return strings.Compare(a.key, b.key) })
	for i := range all {
		events[i] = all[i].Event
	}
	return events
}

// eachElement calls fn for every element of the JSON array dec stands before; fn decodes it.
func eachElement(dec *json.Decoder, fn func(*json.Decoder) error) error {
	if t, err := dec.Token(); err != nil {
		return err
	} else if t != json.Delim('[') {
		return fmt.Errorf("%v where an array should begin", t)
	}
	for dec.More() {
		if err := fn(dec); err != nil {
			return err
		}
	}
	_, err := dec.Token()
	return err
}
