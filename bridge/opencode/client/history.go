package client

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

const (
	historyPath     = "/pocketcoder/history"
	historySessions = 100 // sessions that one request names
)

// History calls fn with the durable events after known, in pages of bounded size. known maps a session to its last
// sequence number that the caller has. A session that is not in known has all its events, and a deleted session none.
// The events of a page are in the order of arrival, and so are all events of one session. The pages come from
// PocketCoder's plugin in OpenCode.
func (c *Client) History(ctx context.Context, known map[string]int64, fn func([]Event) error) error {
	var newest map[string]int64
	if err := c.do(ctx, call{op: "get sequence numbers", path: historyPath, out: &newest}); err != nil {
		return err
	}
	held := map[string]int64{}
	for session, seq := range newest {
		last, ok := known[session]
		if !ok {
			last = -1
		}
		if last < seq {
			held[session] = last
		}
	}
	behind := slices.Sorted(maps.Keys(held))
	slices.Reverse(behind) // the ids of later sessions are smaller
	for sessions := range slices.Chunk(behind, historySessions) {
		for len(sessions) > 0 {
			page, err := c.historyPage(ctx, sessions, held)
			if err != nil {
				return err
			}
			if len(page) == 0 {
				break // the sessions were deleted meanwhile
			}
			if err := fn(page); err != nil {
				return err
			}
			for _, e := range page {
				held[e.Session] = max(held[e.Session], e.Seq)
			}
			sessions = slices.DeleteFunc(sessions, func(session string) bool { return held[session] >= newest[session] })
		}
	}
	return nil
}

// historyPage returns events of the sessions that come after those held, as many as one page holds.
func (c *Client) historyPage(ctx context.Context, sessions []string, held map[string]int64) (page []Event, err error) {
	pairs := make([][2]any, len(sessions))
	for i, session := range sessions {
		pairs[i] = [2]any{session, held[session]}
	}
	op := fmt.Sprintf("get history of %d sessions", len(sessions))
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, fmt.Errorf("no answer within %s", requestTimeout))
	defer cancel()
	resp, err := c.send(ctx, call{op: op, method: "POST", path: historyPath, in: pairs})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
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
		typ, form := splitVersion(h.Type)
		page = append(page, Event{ID: h.ID, Type: typ, Form: form, Session: h.AggregateID, Seq: h.Seq, Properties: h.Data})
		return nil
	})
	if err != nil {
		return nil, failed(ctx, op, fmt.Errorf("read answer: %w", err))
	}
	return inOrder(page), nil
}

// inOrder sorts events by id. Events of one session are in order already and stay so, also if the clock went back.
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

// eachElement calls fn for every element of the JSON array at which dec stands; fn decodes it.
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
