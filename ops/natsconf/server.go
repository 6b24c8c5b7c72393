package natsconf

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"pocketcoder/events/atomicfile"
)

// ErrInUse means that another server runs on the same store directory.
var ErrInUse = errors.New("another server uses this store directory")

// ErrAddressInUse means that another process listens at the address.
var ErrAddressInUse = errors.New("the address is taken")

// readyReport is how often a start that takes long is reported. A store of a million messages opens in 1.4 s after a
// crash, measured.
const readyReport = 10 * time.Second

const defaultStopWithin = 10 * time.Second // the server writes an index of its files

// account is where the streams are.
const account = "APP"

// Server is a running embedded server. Connect with nats.InProcessServer(s), or at s.ClientURL() when it listens.
type Server struct {
	*server.Server
	unlock func()
	store  server.JetStreamConfig
	check  func(context.Context) error // of the files, before they are opened

	stopWithin time.Duration
}

// Start runs a server in this process and returns when it takes connections. It logs warnings and errors to c.Log and
// handles no signals. It also returns, with an error, soon after ctx ends. The error names the cause: the
// store in use (ErrInUse) or without room, the address taken, the files damaged, the server too old.
func Start(ctx context.Context, c Config) (*Server, error) {
	if err := CheckVersion(Embedded); err != nil {
		return nil, fmt.Errorf("start NATS: %w", err)
	}
	unlock, err := lockStore(c.StoreDir)
	if err != nil {
		return nil, fmt.Errorf("start NATS in %s: %w", c.StoreDir, err)
	}
	check := func(ctx context.Context) error {
		if c.Check == nil {
			return nil
		}
		return c.Check(ctx, filepath.Join(c.StoreDir, "jetstream", account, "streams"))
	}
	if err := check(ctx); err != nil {
		unlock()
		return nil, fmt.Errorf("start NATS in %s: %w", c.StoreDir, err)
	}
	s, err := start(ctx, c, unlock)
	if err != nil {
		return nil, fmt.Errorf("start NATS in %s: %w", c.StoreDir, err)
	}
	s.check = check
	return s, nil
}

// App returns the account that holds the streams.
func (s *Server) App() (*server.Account, error) { return s.LookupAccount("APP") }

// Close stops the server and returns when its files are closed. A server that reads a damaged store can need hours to
// stop; Close then returns before that, and the files stay locked until the server has stopped.
func (s *Server) Close() { s.stop() }

// start starts a server. The server owns the lock of its files, also if it returns an error.
func start(ctx context.Context, c Config, unlock func()) (_ *Server, err error) {
	conf, err := c.Text()
	if err != nil {
		unlock()
		return nil, err
	}
	// The server sends its first PING about 2 s after a client connects. nats.go rejects a PING that comes before the PONG
	// it waits for, so a slow connect fails.
	opts := &server.Options{NoSigs: true, NoLog: true, DontListen: c.Listen == "", DisableShortFirstPing: true}
	if err := opts.ProcessConfigString(conf); err != nil {
		unlock()
		return nil, err
	}
	opts.JetStreamMaxStore = storeLimit
	if c.Bulk {
		opts.SyncAlways, opts.SyncInterval = false, time.Hour
	}
	running, err := server.NewServer(opts)
	if err != nil {
		unlock()
		return nil, err
	}
	s := &Server{Server: running, unlock: unlock, store: storeConfig(opts),
		stopWithin: cmp.Or(c.StopWithin, defaultStopWithin)}
	failed := &logger{log: c.Log, came: make(chan struct{})}
	s.SetLoggerV2(failed, false, false, false)
	go s.Start()
	ready := make(chan struct{})
	go func() {
		defer close(ready)
		for began := time.Now(); !s.ReadyForConnections(readyReport) && ctx.Err() == nil && failed.err() == nil; {
			failed.Warnf("the streams have been opening for %d s", int(time.Since(began).Seconds()))
		}
	}()
	select {
	case <-ready:
		if err = cmp.Or(ctx.Err(), failed.err()); err == nil {
			return s, nil
		}
	case <-failed.came:
		err = failed.err()
	case <-ctx.Done():
		err = ctx.Err()
	}
	if !s.stop() {
		err = fmt.Errorf("%w; it does not stop, and has its files open", err)
	}
	return nil, err
}

// stop stops the server, and releases its files then. It reports whether that took less than stopWithin.
func (s *Server) stop() bool {
	stopped := make(chan struct{})
	go func() {
		s.Shutdown() // waits for the streams
		s.WaitForShutdown()
		s.unlock()
		close(stopped)
	}()
	select {
	case <-stopped:
		return true
	case <-time.After(s.stopWithin):
		return false
	}
}

// lockStore makes the directory and locks it for this process. The kernel releases the lock when the process ends.
func lockStore(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := checkFree(dir); err != nil { // JetStream would start, and soon refuse every event
		return nil, err
	}
	unlock, err = atomicfile.Lock(filepath.Join(dir, "lock"))
	if errors.Is(err, atomicfile.ErrLocked) {
		err = ErrInUse
	}
	return unlock, err
}

// logger passes the server's warnings and errors on. It keeps the first fatal line, the only one that says why the
// server did not start.
type logger struct {
	log  *slog.Logger // nil drops them
	once sync.Once
	came chan struct{}
	line string
}

func (l *logger) Fatalf(format string, v ...any) {
	l.once.Do(func() {
		l.line = line(format, v)
		close(l.came)
	})
}

// err returns the fatal line as an error, nil if there is none yet.
func (l *logger) err() error {
	select {
	case <-l.came:
		if strings.Contains(l.line, syscall.EADDRINUSE.Error()) {
			return fmt.Errorf("%w: %s", ErrAddressInUse, l.line)
		}
		return errors.New(l.line)
	default:
		return nil
	}
}

func (l *logger) Warnf(format string, v ...any) {
	if l.log != nil {
		l.log.Warn("NATS: " + line(format, v))
	}
}

func (l *logger) Errorf(format string, v ...any) {
	if l.log != nil {
		l.log.Error("NATS: " + line(format, v))
	}
}

func line(format string, v []any) string { return strings.TrimSpace(fmt.Sprintf(format, v...)) }

func (l *logger) Noticef(string, ...any) {}
func (l *logger) Debugf(string, ...any)  {}
func (l *logger) Tracef(string, ...any)  {}
