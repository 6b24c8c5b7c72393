// Package queries answers queries of the read models over NATS, for the command line: query.<name>, with JSON in both
// directions. The header Error holds a refusal. query.rebuild computes the read models again and is answered several
// times, with its progress and then with the result. ServeOne answers a query about the process itself.
//
// Promises: an answer includes the changes of the event at Query.After, and fits into one message of NATS.
//
// It must not know the command line, nor change anything but the file of the read models.
package queries

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"pocketcoder/events"
	"pocketcoder/projections"
	"pocketcoder/projections/store"
)

const (
	prefix      = "query."
	errorHeader = "Error"
	timeout     = 15 * time.Second
)

// Query holds the parameters of a query over NATS. The answer includes the changes of the event at After.
type Query struct {
	Chat       string `json:"chat,omitempty"`
	Collection string `json:"collection,omitempty"` // of config records
	Permission string `json:"permission,omitempty"` // OpenCode's id or the record's
	Execution  string `json:"execution,omitempty"`
	Schedule   string `json:"schedule,omitempty"`
	Status     string `json:"status,omitempty"`
	User       string `json:"user,omitempty"`
	Day        string `json:"day,omitempty"` // 2006-01-02, in UTC
	Limit      int    `json:"limit,omitempty"`
	Offset     int    `json:"offset,omitempty"`
	After      uint64 `json:"after,omitempty"`
}

// answers holds the function that answers each query, by its name.
func answers(m *projections.Model) map[string]func(context.Context, Query) (any, error) {
	return map[string]func(context.Context, Query) (any, error){
		"chats": func(ctx context.Context, q Query) (any, error) { return m.Chats(ctx, q.Limit, q.Offset) },
		"newest": func(ctx context.Context, q Query) (any, error) {
			chat, _, err := m.NewestChat(ctx, q.User) // without an id if there is none
			return chat, err
		},
		"chat": func(ctx context.Context, q Query) (any, error) {
			chat, ok, err := m.Chat(ctx, q.Chat)
			if err == nil && (!ok || chat.Removed) {
				err = fmt.Errorf("there is no chat %s", q.Chat)
			}
			return chat, err
		},
		"messages":    func(ctx context.Context, q Query) (any, error) { return m.Messages(ctx, q.Chat) },
		"queue":       func(ctx context.Context, q Query) (any, error) { return m.Queue(ctx, q.Chat) },
		"permissions": func(ctx context.Context, q Query) (any, error) { return m.Permissions(ctx, q.Chat, q.Status) },
		"permission": func(ctx context.Context, q Query) (any, error) {
			p, ok, err := m.FindPermission(ctx, q.Permission)
			if err == nil && !ok {
				err = fmt.Errorf("there is no permission request %s", q.Permission)
			}
			return p, err
		},
		"questions":  func(ctx context.Context, q Query) (any, error) { return m.Questions(ctx, q.Chat, q.Status) },
		"executions": func(ctx context.Context, q Query) (any, error) { return m.Executions(ctx, q.Chat) },
		"running":    func(ctx context.Context, _ Query) (any, error) { return m.RunningExecutions(ctx) },
		"latest":     func(ctx context.Context, q Query) (any, error) { return m.LatestExecutions(ctx, q.Limit) },
		"execution": func(ctx context.Context, q Query) (any, error) {
			x, ok, err := m.Execution(ctx, q.Execution)
			if err == nil && !ok {
				err = fmt.Errorf("there is no execution %s", q.Execution)
			}
			if err == nil {
				x.Outputs, err = shortened(x.Outputs)
			}
			return x, err
		},
		"subagents": func(ctx context.Context, q Query) (any, error) { return m.Subagents(ctx, q.Chat) },
		"workers":   func(ctx context.Context, q Query) (any, error) { return m.Delegates(ctx, q.Chat, q.Limit) },
		"worker": func(ctx context.Context, q Query) (any, error) {
			w, ok, err := m.Delegate(ctx, q.Chat)
			if err == nil && !ok {
				err = fmt.Errorf("there is no delegate %s", q.Chat)
			}
			return w, err
		},
		"schedule_runs": func(ctx context.Context, q Query) (any, error) {
			return m.ScheduleRuns(ctx, q.Schedule, q.Limit)
		},
		"usage":    func(ctx context.Context, q Query) (any, error) { return m.UsageByModel(ctx, q.Chat) },
		"config":   func(ctx context.Context, q Query) (any, error) { return m.Config(ctx, q.Collection) },
		"outgoing": func(ctx context.Context, q Query) (any, error) { return m.ChannelMessages(ctx, q.Limit) },
		"webhook_failures": func(ctx context.Context, q Query) (any, error) {
			return m.WebhookFailures(ctx, q.Limit)
		},
		"spent": func(ctx context.Context, q Query) (any, error) {
			return m.Spending(ctx, projections.SpendingSpan{Chat: q.Chat, User: q.User, Day: q.Day})
		},
		"dead_letters": func(ctx context.Context, q Query) (any, error) { return m.DeadLetters(ctx, q.Limit) },
		"digest":       func(ctx context.Context, _ Query) (any, error) { return m.Digest(ctx) },
	}
}

// Serve answers queries over NATS until ctx ends, with the error of loading while it returns one.
func Serve(ctx context.Context, nc *nats.Conn, m *projections.Model, loading func() error) error {
	for name, ask := range answers(m) {
		sub, err := nc.QueueSubscribe(prefix+name, "projections", func(msg *nats.Msg) {
			go func() {
				respond(nc, msg, func() (any, error) {
					if err := loading(); err != nil {
						return nil, err
					}
					return answer(ctx, m, msg.Data, ask)
				})
			}()
		})
		if err != nil {
			return fmt.Errorf("serve query %s: %w", name, err)
		}
		defer sub.Unsubscribe()
	}
	sub, err := nc.QueueSubscribe(prefix+"rebuild", "projections", func(msg *nats.Msg) {
		if _, err := msg.Metadata(); err == nil {
			return // a stored event, which a reader told JetStream to deliver to this subject
		}
		go serveRebuild(ctx, nc, m, msg)
	})
	if err != nil {
		return fmt.Errorf("serve rebuild: %w", err)
	}
	defer sub.Unsubscribe()
	<-ctx.Done()
	return ctx.Err()
}

// ServeOne answers one query over NATS until ctx ends. The answer is about this process and not from the read models.
func ServeOne(ctx context.Context, nc *nats.Conn, name string, answer func() any) error {
	sub, err := nc.Subscribe(prefix+name, func(msg *nats.Msg) {
		respond(nc, msg, func() (any, error) { return answer(), nil })
	})
	if err != nil {
		return fmt.Errorf("serve query %s: %w", name, err)
	}
	defer sub.Unsubscribe()
	<-ctx.Done()
	return ctx.Err()
}

func answer(ctx context.Context, m *projections.Model, body []byte,
	ask func(context.Context, Query) (any, error)) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	q := Query{Limit: 100}
	if err := json.Unmarshal(body, &q); err != nil {
		return nil, fmt.Errorf("the query is not readable: %w", err)
	}
	if err := m.Wait(ctx, q.After); err != nil {
		return nil, err
	}
	return ask(ctx, q)
}

// shortened encodes text of outputs in base64 where that is shorter, so that the answer fits into a message: JSON
// needs six bytes for a control character.
func shortened(in store.JSON) (store.JSON, error) {
	var o projections.ExecutionOutputs
	if err := json.Unmarshal([]byte(in), &o); err != nil {
		return "", fmt.Errorf("read outputs: %w", err)
	}
	for _, s := range []*events.Output{&o.Stdout, &o.Stderr} {
		text, _ := json.Marshal(s.Text) // a string always encodes
		if len(text) > base64.StdEncoding.EncodedLen(len(s.Text))+len(`""`) {
			s.Text, s.Base64 = "", []byte(s.Text)
		}
	}
	out, err := json.Marshal(o)
	return store.JSON(out), err
}

// respond sends the result of answer, or its error.
func respond(nc *nats.Conn, msg *nats.Msg, answer func() (any, error)) {
	out := nats.NewMsg(msg.Reply)
	body, err := answer()
	if err == nil {
		out.Data, err = json.Marshal(body)
	}
	if err == nil && int64(len(out.Data)) > nc.MaxPayload() {
		err = fmt.Errorf("the answer is %d bytes; ask for less", len(out.Data))
	}
	if err != nil {
		out.Data = nil
		out.Header.Set(errorHeader, err.Error())
	}
	_ = msg.RespondMsg(out) // the caller may have gone
}

// RebuildAnswer is one of the messages that answer query.rebuild. The last one holds the result.
type RebuildAnswer struct {
	Done    uint64         `json:"done"` // sequence reached
	Total   uint64         `json:"total"`
	Rebuilt *RebuildResult `json:"rebuilt,omitempty"`
}

// RebuildResult is store.Rebuilt as it is sent.
type RebuildResult struct {
	Events  uint64  `json:"events"`
	Seconds float64 `json:"seconds"`
	Before  string  `json:"before"` // SHA-256 of the old read models
	After   string  `json:"after"`  // and of the new ones, at the same sequence
}

// progressPause is the shortest time between two progress messages of a rebuild.
const progressPause = 100 * time.Millisecond

func serveRebuild(ctx context.Context, nc *nats.Conn, m *projections.Model, msg *nats.Msg) {
	sent := time.Now()
	result, err := m.Rebuild(ctx, func(done, total uint64) {
		if time.Since(sent) >= progressPause {
			sent = time.Now()
			respond(nc, msg, func() (any, error) { return RebuildAnswer{Done: done, Total: total}, nil })
		}
	})
	respond(nc, msg, func() (any, error) {
		r := RebuildResult{result.Events, result.Duration.Seconds(), result.Before, result.After}
		return RebuildAnswer{Done: result.Events, Total: result.Events, Rebuilt: &r}, err
	})
}
