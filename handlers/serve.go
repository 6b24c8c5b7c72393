package handlers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"pocketcoder/events/log"
)

// enginePrefix returns the prefix of requests to the node that runs an engine: engine.<engine>.<name>. Only core may
// publish there.
func enginePrefix(engine string) string { return "engine." + engine + "." }

// Accepted is the result of a command that was carried out.
type Accepted struct {
	Seq    uint64          `json:"seq"`              // of its event
	Result json.RawMessage `json:"result,omitempty"` // of a query
}

// answer is the encoded response: a result or a refusal.
type answer struct {
	Accepted *Accepted `json:"accepted,omitempty"`
	Refused  *Refused  `json:"refused,omitempty"`
	Error    string    `json:"error,omitempty"`
}

const commandTimeout = 20 * time.Second

// Commands holds the handlers of the commands that other nodes send to the node with an engine, by name. CommandOf
// makes a handler.
type Commands map[string]func(ctx context.Context, body []byte) (Accepted, error)

// CommandOf returns a handler that decodes the JSON of a command and carries it out.
func CommandOf[C any](carryOut func(context.Context, C) (Accepted, error)) func(context.Context, []byte) (Accepted,
	error) {
	return func(ctx context.Context, body []byte) (Accepted, error) {
		var c C
		d := json.NewDecoder(bytes.NewReader(body))
		d.DisallowUnknownFields()
		if err := d.Decode(&c); err != nil {
			return Accepted{}, Refuse(Invalid, "the command cannot be decoded: %v", err)
		}
		return carryOut(ctx, c)
	}
}

// QueryOf returns a handler that decodes the JSON of a query and returns the result of answer.
func QueryOf[C, R any](answer func(context.Context, C) (R, error)) func(context.Context, []byte) (Accepted, error) {
	return CommandOf(func(ctx context.Context, c C) (Accepted, error) {
		r, err := answer(ctx, c)
		if err != nil {
			return Accepted{}, err
		}
		body, err := json.Marshal(r)
		return Accepted{Result: body}, err
	})
}

// ServeEngine handles commands of other nodes for an engine until ctx ends. These commands name their actors.
func (all Commands) ServeEngine(ctx context.Context, nc *nats.Conn, engine string, log *slog.Logger) error {
	for name, carryOut := range all {
		sub, err := nc.QueueSubscribe(enginePrefix(engine)+name, "handlers", func(m *nats.Msg) {
			go func() {
				ctx, cancel := context.WithTimeout(ctx, commandTimeout)
				defer cancel()
				accepted, err := carryOut(ctx, m.Data)
				if err := respond(m, accepted, err); err != nil {
					log.Error("answer command", "command", name, "err", err)
				}
			}()
		})
		if err != nil {
			return fmt.Errorf("serve command %s: %w", name, err)
		}
		defer sub.Unsubscribe()
	}
	<-ctx.Done()
	return ctx.Err()
}

func respond(m *nats.Msg, accepted Accepted, err error) error {
	a := answer{Accepted: &accepted}
	if err != nil {
		a = answer{Error: err.Error()}
		if r := (Refused{}); errors.As(err, &r) {
			a = answer{Refused: &r}
		}
		if u := log.Unavailable(""); errors.As(err, &u) {
			a = answer{Refused: &Refused{Code: Unavailable, Text: u.Error()}}
		}
	}
	body, err := json.Marshal(a)
	if err != nil {
		return err
	}
	err = m.Respond(body)
	if errors.Is(err, nats.ErrMaxPayload) {
		return respond(m, Accepted{}, Refuse(Invalid, "the answer is %d bytes, more than a NATS message holds",
			len(body)))
	}
	return err
}

// SendToEngine sends a command to the node that runs an engine. It returns a Refused if the command is refused, and
// nats.ErrNoResponders if no node runs the engine.
func SendToEngine(ctx context.Context, nc *nats.Conn, engine, name string, command any) (Accepted, error) {
	body, err := json.Marshal(command)
	if err != nil {
		return Accepted{}, fmt.Errorf("send %s: %w", name, err)
	}
	if limit := nc.MaxPayload(); int64(len(body)) > limit {
		return Accepted{}, Refuse(Invalid, "the command is %d bytes; the limit is %d", len(body), limit)
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	m, err := nc.RequestWithContext(ctx, enginePrefix(engine)+name, body)
	if err != nil {
		return Accepted{}, fmt.Errorf("send %s: %w", name, err)
	}
	var a answer
	if err := json.Unmarshal(m.Data, &a); err != nil {
		return Accepted{}, fmt.Errorf("send %s: %w", name, err)
	}
	switch {
	case a.Refused != nil:
		return Accepted{}, *a.Refused
	case a.Error != "" || a.Accepted == nil:
		return Accepted{}, fmt.Errorf("send %s: %s", name, a.Error)
	}
	return *a.Accepted, nil
}
