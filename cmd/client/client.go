// Package client is the connection to a running system on this machine, over NATS with the operator's rights: queries
// of the read model, commands, the log, and the lists that several commands show.
//
// Promises: the log is read only. A query with the argument after is answered from a read model that holds at least
// that event.
//
// It must not know terminals, flags, or how an answer is shown.
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"pocketcoder/cmd/datadir"
	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers"
	"pocketcoder/ops/natsconf"
)

// System is a running PocketCoder.
type System struct {
	datadir.Running
	Conn *nats.Conn
	Log  *log.Log // read only
}

func Connect(ctx context.Context, d datadir.Dir) (*System, error) {
	r, err := d.Running()
	if err != nil {
		return nil, err
	}
	keys, err := natsconf.LoadKeys(d.Path("keys"))
	if err != nil {
		return nil, err
	}
	opts, err := keys.Options(natsconf.Operator, "pocketcoder cli")
	if err != nil {
		return nil, err
	}
	nc, err := nats.Connect(r.NATS, opts...)
	if err != nil {
		return nil, fmt.Errorf("connect to pid %d at %s: %w", r.PID, r.NATS, err)
	}
	log, err := log.Attach(nc, natsconf.ReaderAPI)
	if err != nil {
		nc.Close()
		return nil, err
	}
	return &System{r, nc, log}, nil
}

func (s *System) Close() { s.Conn.Close() }

// Connected returns a channel that receives false when the connection is lost, and true when it is back.
func (s *System) Connected() <-chan bool {
	states := make(chan bool, 8)
	tell := func(up bool) {
		select {
		case states <- up:
		default:
		}
	}
	s.Conn.SetDisconnectErrHandler(func(*nats.Conn, error) { tell(false) })
	s.Conn.SetReconnectHandler(func(*nats.Conn) { tell(true) })
	return states
}

// Query queries the read model and decodes the answer into out. With the argument after, the answer includes the event
// with that sequence.
func (s *System) Query(ctx context.Context, name string, args map[string]any, out any) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	body, err := json.Marshal(args)
	if err != nil {
		return fmt.Errorf("query %s: %w", name, err)
	}
	m, err := s.Conn.RequestWithContext(ctx, "query."+name, body)
	if err != nil {
		return fmt.Errorf("query %s: %w", name, err)
	}
	if text := m.Header.Get("Error"); text != "" {
		return fmt.Errorf("query %s: %w", name, errors.New(text))
	}
	if err := json.Unmarshal(m.Data, out); err != nil {
		return fmt.Errorf("query %s: %w", name, err)
	}
	return nil
}

// QueryNow is Query for an answer that includes all events there are.
func (s *System) QueryNow(ctx context.Context, name string, args map[string]any, out any) error {
	last, err := s.Log.Last(ctx)
	if err != nil {
		return err
	}
	args["after"] = last
	return s.Query(ctx, name, args, out)
}

// Do sends a command that has no result.
func (s *System) Do(ctx context.Context, name string, command any) error {
	_, err := handlers.Send(ctx, s.Conn, name, command)
	return err
}

// Call sends a command and returns its result.
func Call[R any](ctx context.Context, s *System, name string, command any) (result R, err error) {
	a, err := handlers.Send(ctx, s.Conn, name, command)
	if err != nil {
		return result, err
	}
	if err := json.Unmarshal(a.Result, &result); err != nil {
		return result, fmt.Errorf("read the answer to %s: %w", name, err)
	}
	return result, nil
}

// NewCommand returns the fields of a new command that all commands have.
func NewCommand() handlers.Command { return handlers.Command{ID: events.NewID()} }

// ReconnectTime is how long a lost connection may take to come back.
const ReconnectTime = 20 * time.Second

// Send sends v, unless ctx ends first.
func Send[V any](ctx context.Context, to chan<- V, v V) error {
	select {
	case to <- v:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
