package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/cmd/datadir"
	"pocketcoder/events/atomicfile"
	"pocketcoder/events/recovery"
	"pocketcoder/ops/natsconf"
	"pocketcoder/projections/store"
)

// logServerOptions select the server of the log.
type logServerOptions struct {
	Data   datadir.Dir
	URL    string          // of an external server; "" for the embedded one
	Config natsconf.Config // of the embedded one
	Logger *slog.Logger
}

// logServer is the NATS server of the log, and a connection to it: the embedded server, whose files were checked, or
// one that runs elsewhere. An embedded server has the address of its last start, if that address is free.
type logServer struct {
	*nats.Conn
	*recovery.Guard
	Embedded *natsconf.Server // nil for an external server
	URL      string
	o        logServerOptions
	js       jetstream.JetStream
	compared bool
}

// openLogServer checks the files and starts the embedded server, or connects to an external one. What the log has lost
// since the last start is known before anything reads the log.
func openLogServer(ctx context.Context, o logServerOptions, keys natsconf.Keys) (s *logServer, err error) {
	s = &logServer{o: o, URL: o.URL}
	if s.Guard, err = recovery.Open(string(o.Data), o.Logger); err != nil {
		return nil, err
	}
	options, err := keys.Options(natsconf.Core, "pocketcoder")
	if err != nil {
		return nil, err
	}
	if o.URL != "" {
		if _, err := natsconf.CheckServers(ctx, o.URL, keys); err != nil {
			return nil, err
		}
	} else {
		if s.Embedded, err = s.start(ctx); err != nil {
			return nil, err
		}
		s.URL = s.Embedded.ClientURL()
		options = append(options, nats.InProcessServer(s.Embedded.Server))
	}
	if s.Conn, err = nats.Connect(o.URL, options...); err == nil {
		s.js, err = jetstream.New(s.Conn)
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("connect to NATS at %s: %w", s.URL, err)
	}
	return s, nil
}

// start starts the embedded server at its last address if that is free. Clients that reconnect, and contexts of the
// nats CLI, then find it again.
func (s *logServer) start(ctx context.Context) (*natsconf.Server, error) {
	d := s.o.Data
	c := s.o.Config
	c.Log = s.o.Logger
	c.Check = func(ctx context.Context, streams string) error {
		return s.Check(ctx, streams, store.Applied(ctx, d.ReadModels()))
	}
	free := c.Listen
	last, _ := os.ReadFile(d.Path("nats-address")) // "" if there is none
	if at, err := netip.ParseAddrPort(strings.TrimSpace(string(last))); err == nil && at.Addr().IsLoopback() {
		c.Listen = at.String()
	}
	server, err := natsconf.Start(ctx, c)
	if errors.Is(err, natsconf.ErrAddressInUse) {
		c.Listen = free
		server, err = natsconf.Start(ctx, c)
	}
	if err != nil {
		return nil, err
	}
	if err := atomicfile.Write(d.Path("nats-address"), []byte(server.Addr().String()+"\n")); err != nil {
		server.Close()
		return nil, err
	}
	return server, nil
}

// Compare compares the log with the note about it, after its streams were opened. It moves the files of the read models
// aside if they may show lost events, and removes those of another log.
func (s *logServer) Compare(ctx context.Context) error {
	if err := s.Observe(ctx, s.js); err != nil {
		return err
	}
	s.compared = true
	dir, stale, err := s.Stale()
	if err != nil || !stale {
		return err
	}
	if err := store.Move(s.o.Data.ReadModels(), dir); err != nil {
		return err
	}
	return s.MarkReadModelsRenewed()
}

// Run compares the log with its note, and the files of the embedded server with their checksums, until ctx ends.
func (s *logServer) Run(ctx context.Context) error {
	if s.Embedded != nil {
		go s.Verify(ctx)
	}
	return s.Guard.Run(ctx, s.js)
}

// lastNote limits the wait for the log at the end.
const lastNote = 2 * time.Second

// Close notes the position of the log, closes the connection, and stops the embedded server.
func (s *logServer) Close() {
	if s.compared {
		ctx, cancel := context.WithTimeout(context.Background(), lastNote)
		defer cancel()
		if err := s.Observe(ctx, s.js); err != nil {
			s.o.Logger.Warn(err.Error())
		}
	}
	if s.Conn != nil {
		s.Conn.Close()
	}
	if s.Embedded != nil {
		s.Embedded.Close()
	}
}
