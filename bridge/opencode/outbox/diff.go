package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/handlers"
)

// Errors of Diff and Todo.
var (
	ErrUnknownChat = errors.New("there is no such chat")
	ErrUnavailable = handlers.Refuse(handlers.Unavailable, "OpenCode does not answer; try again.")
)

// connectTimeout limits the wait for an OpenCode that is starting.
const connectTimeout = 4 * time.Second

var emptyList = json.RawMessage("[]")

// Diff returns the file changes of the turn that a person's message began, or of the last turn if message is empty.
// message is OpenCode's id. The result is OpenCode's list of {file, patch, additions, deletions, status}. The error may
// be ErrUnknownChat or ErrUnavailable.
func (o *Outbox) Diff(ctx context.Context, chat, message string) (json.RawMessage, error) {
	session, err := o.sessionOf(ctx, chat)
	if err != nil || session == "" {
		return emptyList, err
	}
	if message == "" {
		if message, err = o.lastPrompt(ctx, chat, session); err != nil {
			return nil, err
		}
	}
	if !strings.HasPrefix(message, "msg") {
		return emptyList, nil // not an id of OpenCode, which would refuse it
	}
	return o.fetchList(ctx, func(ctx context.Context) (json.RawMessage, error) {
		return o.Ingest.Current().Diff(ctx, session, message)
	})
}

// Todo returns the assistant's todo list of a chat: OpenCode's list of {content, status, priority}. The error may be
// ErrUnknownChat or ErrUnavailable.
func (o *Outbox) Todo(ctx context.Context, chat string) (json.RawMessage, error) {
	session, err := o.sessionOf(ctx, chat)
	if err != nil || session == "" {
		return emptyList, err
	}
	return o.fetchList(ctx, func(ctx context.Context) (json.RawMessage, error) {
		return o.Ingest.Current().Todo(ctx, session)
	})
}

// sessionOf returns the session of a chat, "" if it has none yet.
func (o *Outbox) sessionOf(ctx context.Context, chat string) (string, error) {
	row, known, err := o.Model.Chat(ctx, chat)
	if err != nil {
		return "", err
	}
	if !known || row.Removed {
		return "", fmt.Errorf("chat %s: %w", chat, ErrUnknownChat)
	}
	return row.Session, nil
}

// lastPrompt returns OpenCode's id of the last message of a person in the chat's own conversation, "" for none.
func (o *Outbox) lastPrompt(ctx context.Context, chat, session string) (message string, err error) {
	all, err := o.Model.Messages(ctx, chat)
	for _, m := range all {
		if m.Session == session && m.Role != "assistant" {
			message = m.EngineMessage
		}
	}
	return message, err
}

// fetchList waits for OpenCode and fetches a list from it. The list of a lost session is empty.
func (o *Outbox) fetchList(ctx context.Context, fetch func(context.Context) (json.RawMessage,
	error)) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := o.Ingest.WaitConnected(ctx); err != nil {
		return nil, ErrUnavailable
	}
	switch out, err := fetch(ctx); {
	case errors.Is(err, client.ErrGone):
		return emptyList, nil
	case client.Retryable(err):
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	default:
		return out, err
	}
}
