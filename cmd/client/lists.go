package client

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"pocketcoder/events"
	"pocketcoder/events/opencode"
	"pocketcoder/handlers/permission/explanation"
	"pocketcoder/projections"
)

// Chat is a chat with the number of requests that wait for a person, those of its delegates too.
type Chat struct {
	projections.Chat
	Requests int `json:"requests"`
}

func (s *System) Chats(ctx context.Context, limit int) ([]Chat, error) {
	var rows []projections.Chat
	if err := s.Query(ctx, "chats", map[string]any{"limit": limit, "offset": 0}, &rows); err != nil {
		return nil, err
	}
	pending, err := s.Requests(ctx)
	if err != nil {
		return nil, err
	}
	var below []projections.Delegate
	if err := s.Query(ctx, "workers", map[string]any{"limit": 10_000}, &below); err != nil {
		return nil, err
	}
	roots, waiting := map[string]string{}, map[string]int{}
	for _, w := range below {
		roots[w.ID] = w.Root
	}
	for _, r := range pending {
		waiting[cmp.Or(roots[r.Chat], r.Chat)]++
	}
	all := make([]Chat, 0, len(rows))
	for _, c := range rows {
		all = append(all, Chat{c, waiting[c.ID]})
	}
	return all, nil
}

// NextTurn names the side that must act: a person or the assistant.
func (c Chat) NextTurn() string {
	switch {
	case c.Requests == 1:
		return "you: 1 request"
	case c.Requests > 1:
		return fmt.Sprintf("you: %d requests", c.Requests)
	case c.Turn == projections.TurnUser:
		return "you"
	}
	return c.Turn
}

// Request is a request for permission, a question or an MCP server that waits for a person.
type Request struct {
	Chat  string `json:"chat"`
	ID    string `json:"id"`   // of its record: "pocketcoder policy why" takes that of a permission
	Type  string `json:"type"` // bash, edit, …, question, or mcp_server
	What  string `json:"what"`
	Why   string `json:"why,omitempty"` // the policy left it to a person
	Since string `json:"since"`
}

// Requests lists what waits for a person, the oldest first.
func (s *System) Requests(ctx context.Context) ([]Request, error) {
	var permissions []projections.Permission
	if err := s.QueryNow(ctx, "permissions", map[string]any{"status": projections.PermissionDraft},
		&permissions); err != nil {
		return nil, err
	}
	var open []projections.Question
	if err := s.QueryNow(ctx, "questions", map[string]any{"status": projections.QuestionAsked}, &open); err != nil {
		return nil, err
	}
	all := []Request{}
	for _, p := range permissions {
		if p.WaitsForPerson() {
			all = append(all, Request{p.Chat, p.ID, p.Permission, strings.TrimPrefix(p.Message, p.Permission+": "),
				p.ReferredReason, p.Created})
		}
	}
	for _, q := range open {
		all = append(all, Request{Chat: q.Chat, ID: q.ID, Type: "question", What: q.Question, Since: q.Created})
	}
	servers, err := Call[[]struct {
		ID, Name, Status, Command, URL, Reason string
		Hosts                                  []string
	}](ctx, s, "mcp.list", struct{}{})
	if err != nil {
		return nil, err
	}
	for _, m := range servers {
		if m.Status == "pending" {
			what := m.Name + ": " + m.Command + m.URL
			if len(m.Hosts) > 0 {
				what += ", reaches " + strings.Join(m.Hosts, " ")
			}
			all = append(all, Request{ID: m.ID, Type: "mcp_server", What: what, Why: m.Reason})
		}
	}
	slices.SortStableFunc(all, func(a, b Request) int { return cmp.Compare(a.Since, b.Since) })
	return all, nil
}

// LastRequest is OpenCode's id of the newest request of a chat.
func (s *System) LastRequest(ctx context.Context, chat string) (id string, err error) {
	var newest uint64
	for _, subject := range []string{events.ChatOpenCodeSubject(chat, "permission.asked"),
		events.ChatSubject(chat, events.PermissionRequested{}.Kind())} {
		_, err := s.Log.Fold(ctx, subject, 0, func(e events.Event) error {
			if e.Seq < newest {
				return nil
			}
			switch d, _ := events.Decode(e); d := d.(type) {
			case events.PermissionRequested:
				id, newest = d.Permission, e.Seq
			case events.OpenCode:
				ask, _ := opencode.Read[events.PermissionAsk](d) // an unreadable request has no id
				id, newest = ask.ID, e.Seq
			}
			return nil
		})
		if err != nil {
			return "", err
		}
	}
	if id == "" {
		return "", fmt.Errorf("chat %s has no request yet", chat)
	}
	return id, nil
}

// Why asks the running system about an ask, by OpenCode's id or that of its record.
func (s *System) Why(ctx context.Context, id string) (why explanation.Why, err error) {
	var found projections.Permission
	if err := s.QueryNow(ctx, "permission", map[string]any{"permission": id}, &found); err != nil {
		return why, err
	}
	return Call[explanation.Why](ctx, s, "permission.why", explanation.ExplainRequest{Chat: found.Chat,
		Permission: found.EnginePermission})
}
