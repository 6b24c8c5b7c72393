package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers"
	"pocketcoder/ops/natsconf"
)

// system is a running PocketCoder, as a subcommand reaches it: over NATS, with the operator's rights.
type system struct {
	running
	nc  *nats.Conn
	log *log.Log // read only
}

// connect finds the system that runs on a data directory.
func connect(ctx context.Context, d dataDir) (*system, error) {
	r, err := d.running()
	if err != nil {
		return nil, err
	}
	keys, err := natsconf.LoadKeys(d.path("keys"))
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
	return &system{r, nc, log}, nil
}

func (s *system) close() { s.nc.Close() }

// connection tells when the connection is lost, and when it is there again.
func (s *system) connection() <-chan bool {
	states := make(chan bool, 8)
	tell := func(up bool) {
		select {
		case states <- up:
		default:
		}
	}
	s.nc.SetDisconnectErrHandler(func(*nats.Conn, error) { tell(false) })
	s.nc.SetReconnectHandler(func(*nats.Conn) { tell(true) })
	return states
}

// query asks the read model; answer is decoded into out. With a sequence the answer holds at least that event.
func (s *system) query(ctx context.Context, name string, args map[string]any, out any) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	body, err := json.Marshal(args)
	if err != nil {
		return fmt.Errorf("query %s: %w", name, err)
	}
	m, err := s.nc.RequestWithContext(ctx, "query."+name, body)
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

// give gives a command that answers with a result.
func give[R any](ctx context.Context, s *system, name string, command any) (result R, err error) {
	a, err := handlers.Give(ctx, s.nc, name, command)
	if err != nil {
		return result, err
	}
	if err := json.Unmarshal(a.Result, &result); err != nil {
		return result, fmt.Errorf("read the answer to %s: %w", name, err)
	}
	return result, nil
}

func newCommand() handlers.Command { return handlers.Command{ID: events.NewID()} }

// reconnectTime is how long a lost connection may take to come back.
const reconnectTime = 20 * time.Second

// handOn hands something on, unless ctx ends first.
func handOn[V any](ctx context.Context, to chan<- V, v V) error {
	select {
	case to <- v:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
