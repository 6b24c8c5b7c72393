package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/mcpserver"
	"pocketcoder/handlers/model"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/record"
	"pocketcoder/projections"
)

// Chat is a chat with the number of requests that wait for a person, those of its delegates too.
type Chat struct {
	projections.Chat
	Requests int `json:"requests"`
}

// Chats lists the chats that the caller may see and no chat has delegated to, the last active first.
func (s *System) Chats(ctx context.Context, limit int) ([]Chat, error) {
	rows, err := List[projections.Chat](ctx, s, "chats", Select{Filter: `parent = ""`, Sort: "-last_active,id",
		Limit: limit})
	if err != nil {
		return nil, err
	}
	pending, err := s.Requests(ctx)
	if err != nil {
		return nil, err
	}
	waiting := map[string]int{}
	for _, r := range pending {
		waiting[r.root]++
	}
	all := make([]Chat, 0, len(rows))
	for _, c := range rows {
		all = append(all, Chat{c, waiting[c.ID]})
	}
	return all, nil
}

// NewestChat returns the last active chat that is not archived, of an account or of all. Its id is empty if there is
// none.
func (s *System) NewestChat(ctx context.Context, user string) (projections.Chat, error) {
	filter := `parent = "" && archived = false`
	if user != "" {
		filter += ` && user = "` + user + `"`
	}
	all, err := List[projections.Chat](ctx, s, "chats", Select{Filter: filter, Sort: "-last_active,id", Limit: 1})
	if err != nil || len(all) == 0 {
		return projections.Chat{}, err
	}
	return all[0], nil
}

// FindChat returns a chat.
func (s *System) FindChat(ctx context.Context, id string) (projections.Chat, error) {
	c, err := View[projections.Chat](ctx, s, "chats", id)
	if handlers.CodeOf(err) == handlers.NotFound {
		err = handlers.Refuse(handlers.NotFound, "there is no chat %s", id)
	}
	return c, err
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

	root string // chat at the root of the tree of its chat
}

// inChat is a record with the chat that it belongs to.
type inChat[R any] struct {
	Record R
	Expand struct{ Chat projections.Chat }
}

func (c *inChat[R]) UnmarshalJSON(b []byte) error {
	var expanded struct {
		Expand struct{ Chat projections.Chat }
	}
	err := json.Unmarshal(b, &expanded)
	c.Expand = expanded.Expand
	return errors.Join(err, json.Unmarshal(b, &c.Record))
}

// root returns the chat at the root of the tree of the record's chat.
func (c *inChat[R]) root() string { return cmp.Or(c.Expand.Chat.Root, c.Expand.Chat.ID) }

// Requests lists what waits for a person, the oldest first.
func (s *System) Requests(ctx context.Context) ([]Request, error) {
	permissions, err := List[inChat[projections.Permission]](ctx, s, "permissions",
		Select{Filter: `status = "` + events.Draft + `" && ` + record.DecidesInChat, Sort: "position", Expand: "chat"})
	if err != nil {
		return nil, err
	}
	open, err := List[inChat[projections.Question]](ctx, s, "questions",
		Select{Filter: `status = "` + projections.QuestionAsked + `" && ` + record.DecidesInChat,
			Sort: "created,index", Expand: "chat"})
	if err != nil {
		return nil, err
	}
	all := []Request{}
	for _, r := range permissions {
		if p := r.Record; p.WaitsForPerson() {
			all = append(all, Request{p.Chat, p.ID, p.Permission, strings.TrimPrefix(p.Message, p.Permission+": "),
				p.ReferredReason, p.Created, r.root()})
		}
	}
	for _, r := range open {
		q := r.Record
		all = append(all, Request{Chat: q.Chat, ID: q.ID, Type: "question", What: q.Question, Since: q.Created,
			root: r.root()})
	}
	servers, err := s.MCPServers(ctx)
	if err != nil {
		return nil, err
	}
	for _, m := range servers {
		if m.Status == mcpserver.Pending {
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

// MCPServers lists the MCP servers, none if the caller may not see them.
func (s *System) MCPServers(ctx context.Context) ([]mcpserver.Stored, error) {
	return List[mcpserver.Stored](ctx, s, mcpserver.Collection, Select{Sort: "updated,id"})
}

// LastRequest returns the id of the record of the newest permission request of a chat.
func (s *System) LastRequest(ctx context.Context, chat string) (id string, err error) {
	newest, err := List[Created](ctx, s, "permissions", Select{Filter: fmt.Sprintf("chat = %q", chat),
		Sort: "-created,-id", Fields: "id", Limit: 1})
	if err != nil {
		return "", err
	}
	if len(newest) == 0 {
		return "", fmt.Errorf("chat %s has no request yet", chat)
	}
	return newest[0].ID, nil
}

// FindPermission returns a permission request by the id of its record or by OpenCode's.
func (s *System) FindPermission(ctx context.Context, id string) (projections.Permission, error) {
	found, err := List[projections.Permission](ctx, s, "permissions",
		Select{Filter: fmt.Sprintf("id = %q || ai_engine_permission_id = %[1]q", id), Limit: 1})
	if err != nil {
		return projections.Permission{}, err
	}
	if len(found) == 0 {
		return projections.Permission{}, handlers.Refuse(handlers.NotFound, "there is no permission request %s", id)
	}
	return found[0], nil
}

// Why explains a permission request, by the id of its record or by OpenCode's.
func (s *System) Why(ctx context.Context, id string) (why permission.Why, err error) {
	p, err := s.FindPermission(ctx, id)
	if err != nil {
		return why, err
	}
	return Read[permission.Why](ctx, s, "/api/pocketcoder/permissions/"+p.ID+"/why")
}

// Models lists the models that can be used, and the one that is selected for a chat, or for all if chat is empty.
func (s *System) Models(ctx context.Context, chat string) (model.Models, error) {
	return Read[model.Models](ctx, s, "/api/pocketcoder/models?"+url.Values{"chat": {chat}}.Encode())
}

// Delegates lists the chats to which a chat or the chats below it have delegated, or the newest of all if chat is
// empty.
func (s *System) Delegates(ctx context.Context, chat string, limit int) ([]projections.Delegate, error) {
	query := url.Values{"chat": {chat}, "limit": {strconv.Itoa(limit)}}
	return Read[[]projections.Delegate](ctx, s, "/api/agents/workers?"+query.Encode())
}

// Delegate returns a chat to which a chat has delegated.
func (s *System) Delegate(ctx context.Context, id string) (projections.DelegateDetail, error) {
	w, err := Read[projections.DelegateDetail](ctx, s, delegate(id)+"/result")
	if handlers.CodeOf(err) == handlers.NotFound {
		err = handlers.Refuse(handlers.NotFound, "there is no delegate %s", id)
	}
	return w, err
}

// StopDelegate stops a chat to which a chat has delegated.
func (s *System) StopDelegate(ctx context.Context, id string) error {
	return s.Send(ctx, http.MethodPost, delegate(id)+"/stop", nil, nil)
}

func delegate(id string) string { return "/api/agents/workers/" + url.PathEscape(id) }
