package client

import (
	"bytes"
	"context"
	"encoding/json"
	"net/url"
)

// PermissionRequest is a permission OpenCode waits for: the properties of permission.asked, and what Asks lists.
type PermissionRequest struct {
	ID         string          `json:"id"`
	SessionID  string          `json:"sessionID"`
	Permission string          `json:"permission"` // "bash", "edit", …
	Patterns   []string        `json:"patterns"`
	Metadata   json.RawMessage `json:"metadata"`
	Tool       ToolCall        `json:"tool"`
	Raw        json.RawMessage `json:"-"`
}

// ToolCall names the tool call that asks; CallID is the model provider's.
type ToolCall struct {
	MessageID string `json:"messageID"`
	CallID    string `json:"callID"`
}

// UnmarshalJSON keeps the object as it came in Raw.
func (a *PermissionRequest) UnmarshalJSON(b []byte) error {
	type fields PermissionRequest
	a.Raw = bytes.Clone(b)
	return json.Unmarshal(b, (*fields)(a))
}

// PermissionRequests lists the permissions waited for in a directory. A restart of OpenCode empties the list; an abort may leave a
// dead entry behind.
func (c *Client) PermissionRequests(ctx context.Context, directory string) ([]PermissionRequest, error) {
	var out []PermissionRequest
	_, err := c.do(ctx, call{op: "list asks in " + directory, path: "/permission", query: inDirectory(directory), out: &out})
	return out, err
}

// Allow lets the tool call that asked run, this once. directory is the session's.
func (c *Client) Allow(ctx context.Context, directory, ask string) error {
	return c.replyAsk(ctx, "allow", directory, ask, map[string]string{"reply": "once"})
}

// Reject refuses an ask, and with it all other pending asks of its session. With a message the model reads it and goes
// on; without one the turn stops.
func (c *Client) Reject(ctx context.Context, directory, ask, message string) error {
	in := map[string]string{"reply": "reject"}
	if message != "" {
		in["message"] = message
	}
	return c.replyAsk(ctx, "reject", directory, ask, in)
}

func (c *Client) replyAsk(ctx context.Context, verb, directory, ask string, in map[string]string) error {
	_, err := c.do(ctx, call{op: verb + " ask " + ask, method: "POST",
		path: "/permission/" + url.PathEscape(ask) + "/reply", query: inDirectory(directory), in: in})
	return err
}

// QuestionRequest is a question OpenCode waits for: the properties of question.asked, and what Questions lists.
type QuestionRequest struct {
	ID        string          `json:"id"`
	SessionID string          `json:"sessionID"`
	Questions json.RawMessage `json:"questions"` // [{question, header, options: [{label, description}], multiple?}]
	Tool      ToolCall        `json:"tool"`
	Raw       json.RawMessage `json:"-"`
}

// UnmarshalJSON keeps the object as it came in Raw.
func (q *QuestionRequest) UnmarshalJSON(b []byte) error {
	type fields QuestionRequest
	q.Raw = bytes.Clone(b)
	return json.Unmarshal(b, (*fields)(q))
}

// QuestionRequests lists the questions waited for in a directory.
func (c *Client) QuestionRequests(ctx context.Context, directory string) ([]QuestionRequest, error) {
	var out []QuestionRequest
	_, err := c.do(ctx, call{op: "list questions in " + directory, path: "/question", query: inDirectory(directory), out: &out})
	return out, err
}

// Answer answers a question: for each of its questions the labels chosen, or free text.
func (c *Client) Answer(ctx context.Context, directory, question string, answers [][]string) error {
	_, err := c.do(ctx, call{op: "answer question " + question, method: "POST",
		path: "/question/" + url.PathEscape(question) + "/reply", query: inDirectory(directory),
		in: map[string]any{"answers": answers}})
	return err
}

// Dismiss refuses to answer a question; the turn stops.
func (c *Client) Dismiss(ctx context.Context, directory, question string) error {
	_, err := c.do(ctx, call{op: "dismiss question " + question, method: "POST",
		path: "/question/" + url.PathEscape(question) + "/reject", query: inDirectory(directory)})
	return err
}
