package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// Session holds the fields of OpenCode's session object that we read. Raw is the whole object.
type Session struct {
	ID        string          `json:"id"`
	ParentID  string          `json:"parentID"` // of a subagent's session
	Directory string          `json:"directory"`
	Title     string          `json:"title"`
	Agent     string          `json:"agent"`
	Metadata  json.RawMessage `json:"metadata"`
	Revert    struct {
		MessageID string `json:"messageID"` // the reverted message, empty for none
		Snapshot  string `json:"snapshot"`  // of the files before, empty for none
	} `json:"revert"`
	Permission []json.RawMessage `json:"permission"` // its own rules
	Raw        json.RawMessage   `json:"-"`
}

// UnmarshalJSON keeps the object as it came in Raw.
func (s *Session) UnmarshalJSON(b []byte) error {
	type fields Session
	s.Raw = bytes.Clone(b)
	return json.Unmarshal(b, (*fields)(s))
}

// NewSession describes a session to create. Without a title, OpenCode gives it one that says when it was created, and
// requests another from a model after the first message.
type NewSession struct {
	Directory string
	Title     string
	Metadata  map[string]any
}

// CreateSession makes a session in the given directory.
func (c *Client) CreateSession(ctx context.Context, n NewSession) (Session, error) {
	in := map[string]any{}
	if n.Title != "" {
		in["title"] = n.Title
	}
	if n.Metadata != nil {
		in["metadata"] = n.Metadata
	}
	var s Session
	err := c.do(ctx, call{op: "create session in " + n.Directory, method: "POST", path: "/session",
		query: inDirectory(n.Directory), in: in, out: &s})
	return s, err
}

// Session returns a session, or an error that is ErrGone.
func (c *Client) Session(ctx context.Context, id string) (Session, error) {
	var s Session
	err := c.do(ctx, call{op: "get session " + id, path: sessionPath(id, ""), out: &s})
	return s, err
}

// DeleteSession deletes a session, its messages and its place in the history.
func (c *Client) DeleteSession(ctx context.Context, id string) error {
	return c.do(ctx, call{op: "delete session " + id, method: "DELETE", path: sessionPath(id, "")})
}

// Abort stops the running turn of a session and of its subagents. Aborting an idle session is no error
// (behaviour abort-subagents).
func (c *Client) Abort(ctx context.Context, session string) error {
	return c.do(ctx, call{op: "abort session " + session, method: "POST", path: sessionPath(session, "/abort")})
}

// Prompt is a user message. Sending one again with the same MessageID and part ids neither stores nor runs it twice
// (behaviour message-ids).
type Prompt struct {
	MessageID string   // NewID("msg", …)
	Model     *Model   // the session's when nil
	System    string   // is appended to OpenCode's system prompt for this turn
	Withheld  []string // tools that the session does not offer to the model from now on; nil changes nothing
	Parts     []PromptPart
}

// PromptPart is a part of a Prompt: of type "text" with Text, or "file" with Mime, URL and Filename.
type PromptPart struct {
	ID       string `json:"id"` // NewID("prt", …)
	Type     string `json:"type"`
	Text     string `json:"text,omitempty"`
	Mime     string `json:"mime,omitempty"`
	URL      string `json:"url,omitempty"`
	Filename string `json:"filename,omitempty"`
}

// Prompt sends a message to a session, and returns as soon as OpenCode has accepted it.
func (c *Client) Prompt(ctx context.Context, session string, p Prompt) error {
	in := map[string]any{"messageID": p.MessageID, "parts": p.Parts}
	if p.Model != nil {
		in["model"] = map[string]string{"modelID": p.Model.ID, "providerID": p.Model.Provider}
	}
	if p.System != "" {
		in["system"] = p.System
	}
	if len(p.Withheld) > 0 {
		tools := map[string]bool{}
		for _, name := range p.Withheld {
			tools[name] = false // true would allow the tool without a request
		}
		in["tools"] = tools
	}
	return c.do(ctx, call{op: "prompt session " + session, method: "POST",
		path: sessionPath(session, "/prompt_async"), in: in})
}

// Status is the state of a session that is not idle: "busy", also while it waits for a decision, or "retry".
type Status struct {
	Type string          `json:"type"`
	Raw  json.RawMessage `json:"-"`
}

// UnmarshalJSON keeps the object as it came in Raw.
func (s *Status) UnmarshalJSON(b []byte) error {
	type fields Status
	s.Raw = bytes.Clone(b)
	return json.Unmarshal(b, (*fields)(s))
}

// Statuses returns the states of a directory's sessions that are not idle.
func (c *Client) Statuses(ctx context.Context, directory string) (map[string]Status, error) {
	var out map[string]Status
	err := c.do(ctx, call{op: "get session status in " + directory, path: "/session/status",
		query: inDirectory(directory), out: &out})
	return out, err
}

// Message is a message with its parts, both in the form of message.updated and message.part.updated.
type Message struct {
	Info  MessageInfo       `json:"info"`
	Parts []json.RawMessage `json:"parts"`
}

// MessageInfo is what we look at in a message; Raw is all of it. An assistant message is finished when Time.Completed,
// in Unix milliseconds, is set.
type MessageInfo struct {
	ID   string `json:"id"`
	Role string `json:"role"`
	Time struct {
		Completed int64 `json:"completed"`
	} `json:"time"`
	Error json.RawMessage `json:"error"`
	Raw   json.RawMessage `json:"-"`
}

// UnmarshalJSON keeps the object as it came in Raw.
func (m *MessageInfo) UnmarshalJSON(b []byte) error {
	type fields MessageInfo
	m.Raw = bytes.Clone(b)
	return json.Unmarshal(b, (*fields)(m))
}

// messagePage is the number of messages that one request reads.
const messagePage = 100

// Messages returns the messages of a session, oldest first.
func (c *Client) Messages(ctx context.Context, session string) ([]Message, error) {
	var pages [][]Message
	query := url.Values{"limit": {strconv.Itoa(messagePage)}}
	for {
		var page []Message
		header, err := c.doWithHeader(ctx, call{op: "list messages of session " + session,
			path: sessionPath(session, "/message"), query: query, out: &page})
		if err != nil {
			return nil, err
		}
		pages = append(pages, page)
		next := header.Get("X-Next-Cursor")
		if next == "" || len(page) == 0 {
			break
		}
		if next == query.Get("before") {
			return nil, fmt.Errorf("list messages of session %s: cursor %q does not advance", session, next)
		}
		query.Set("before", next)
	}
	slices.Reverse(pages)
	return slices.Concat(pages...), nil
}

func sessionPath(id, rest string) string { return "/session/" + url.PathEscape(id) + rest }

// Fork copies a session under new ids: all its messages, or those before the given one. It returns when the copy is
// complete. OpenCode reports the copy like any other session.
func (c *Client) Fork(ctx context.Context, session, message string) (s Session, err error) {
	in := map[string]string{}
	if message != "" {
		in["messageID"] = message
	}
	err = c.do(ctx, call{op: "fork session " + session, method: "POST", path: sessionPath(session, "/fork"), in: in,
		out: &s, timeout: forkTimeout})
	return s, err
}

func (c *Client) SetMetadata(ctx context.Context, session string, metadata map[string]any) error {
	return c.do(ctx, call{op: "update session " + session, method: "PATCH", path: sessionPath(session, ""),
		in: map[string]any{"metadata": metadata}})
}

// HasMessage returns an error that is ErrGone when the session has no such message.
func (c *Client) HasMessage(ctx context.Context, session, message string) error {
	return c.do(ctx, call{op: "get message " + message, path: messagePath(session, message)})
}

// Message returns a message of a session, or an error that is ErrGone.
func (c *Client) Message(ctx context.Context, session, message string) (m Message, err error) {
	err = c.do(ctx, call{op: "get message " + message, path: messagePath(session, message), out: &m})
	return m, err
}

// ReplacePart stores a part of a message instead of the one with its id.
func (c *Client) ReplacePart(ctx context.Context, session, message, id string, part map[string]any) error {
	return c.do(ctx, call{op: "replace part " + id, method: "PATCH",
		path: messagePath(session, message) + "/part/" + url.PathEscape(id), in: part})
}

// DeleteMessage deletes a message with its parts; OpenCode refuses while a turn is running (behaviour delete-message).
func (c *Client) DeleteMessage(ctx context.Context, session, message string) error {
	return c.do(ctx, call{op: "delete message " + message, method: "DELETE", path: messagePath(session, message)})
}

func messagePath(session, message string) string {
	return sessionPath(session, "/message/"+url.PathEscape(message))
}

// Revert reverts a message of a session, all later messages, and their changes to files. OpenCode keeps the messages
// until the next prompt, and refuses while a turn is running (behaviour revert). An unknown message has no effect.
func (c *Client) Revert(ctx context.Context, session, message string) error {
	return c.do(ctx, call{op: "revert session " + session, method: "POST", path: sessionPath(session, "/revert"),
		in: map[string]string{"messageID": message}})
}

// Unrevert undoes what Revert did, unless the session has been prompted since.
func (c *Client) Unrevert(ctx context.Context, session string) error {
	return c.do(ctx, call{op: "unrevert session " + session, method: "POST", path: sessionPath(session, "/unrevert")})
}

// forkTimeout bounds one fork: OpenCode copies message by message, about 1,000 parts in 3 s.
const forkTimeout = 5 * time.Minute

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
// leave a dead entry (behaviour abort-keeps-requests).
func (c *Client) PermissionRequests(ctx context.Context, directory string) ([]Request, error) {
	var out []Request
	err := c.do(ctx, call{op: "list permission requests in " + directory, path: "/permission",
		query: inDirectory(directory), out: &out})
	return out, err
}

// Allow lets a tool call run once. directory is that of the session.
func (c *Client) Allow(ctx context.Context, directory, request string) error {
	return c.replyTo(ctx, "allow", directory, request, map[string]string{"reply": "once"})
}

// Reject denies a request, and all other pending requests of its session (behaviour rejects-others). With a message,
// the model reads it and continues; without one, the turn stops (behaviour rejection).
func (c *Client) Reject(ctx context.Context, directory, request, message string) error {
	in := map[string]string{"reply": "reject"}
	if message != "" {
		in["message"] = message
	}
	return c.replyTo(ctx, "reject", directory, request, in)
}

func (c *Client) replyTo(ctx context.Context, verb, directory, request string, in map[string]string) error {
	return c.do(ctx, call{op: verb + " request " + request, method: "POST",
		path: "/permission/" + url.PathEscape(request) + "/reply", query: inDirectory(directory), in: in})
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
