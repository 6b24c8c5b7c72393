package client

import (
	"bytes"
	"context"
	"encoding/json"
	"net/url"
)

// Request is a pending permission or question of OpenCode. Raw holds the properties of permission.asked or
// question.asked.
type Request struct {
	ID        string          `json:"id"`
	SessionID string          `json:"sessionID"`
	Raw       json.RawMessage `json:"-"`
}

// UnmarshalJSON keeps the object as it came in Raw.
func (r *Request) UnmarshalJSON(b []byte) error {
	type fields Request
	r.Raw = bytes.Clone(b)
	return json.Unmarshal(b, (*fields)(r))
}

// PermissionRequests lists the pending permissions of a directory. A restart of OpenCode empties the list. An abort may
// leave a dead entry.
func (c *Client) PermissionRequests(ctx context.Context, directory string) ([]Request, error) {
	var out []Request
	err := c.do(ctx, call{op: "list asks in " + directory, path: "/permission", query: inDirectory(directory), out: &out})
	return out, err
}

// Allow lets a tool call run once. directory is that of the session.
func (c *Client) Allow(ctx context.Context, directory, ask string) error {
	return c.replyAsk(ctx, "allow", directory, ask, map[string]string{"reply": "once"})
}

// Reject denies a request, and all other pending requests of its session. With a message, the model reads it and
// continues; without one, the turn stops.
func (c *Client) Reject(ctx context.Context, directory, ask, message string) error {
	in := map[string]string{"reply": "reject"}
	if message != "" {
		in["message"] = message
	}
	return c.replyAsk(ctx, "reject", directory, ask, in)
}

func (c *Client) replyAsk(ctx context.Context, verb, directory, ask string, in map[string]string) error {
	return c.do(ctx, call{op: verb + " ask " + ask, method: "POST",
		path: "/permission/" + url.PathEscape(ask) + "/reply", query: inDirectory(directory), in: in})
}

// QuestionRequests lists the pending questions of a directory.
func (c *Client) QuestionRequests(ctx context.Context, directory string) ([]Request, error) {
	var out []Request
	err := c.do(ctx, call{op: "list questions in " + directory, path: "/question", query: inDirectory(directory),
		out: &out})
	return out, err
}

// Answer answers the questions of a request, each with the chosen labels or free text.
func (c *Client) Answer(ctx context.Context, directory, question string, answers [][]string) error {
	return c.do(ctx, call{op: "answer question " + question, method: "POST",
		path: "/question/" + url.PathEscape(question) + "/reply", query: inDirectory(directory),
		in: map[string]any{"answers": answers}})
}

// Dismiss declines to answer. The turn then stops.
func (c *Client) Dismiss(ctx context.Context, directory, question string) error {
	return c.do(ctx, call{op: "dismiss question " + question, method: "POST",
		path: "/question/" + url.PathEscape(question) + "/reject", query: inDirectory(directory)})
}
