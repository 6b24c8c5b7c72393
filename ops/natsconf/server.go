package natsconf

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// ErrInUse means that another server runs on the same store directory.
var ErrInUse = errors.New("another server uses this store directory")

const (
	readyWithin = time.Minute // a store of a million messages opens in 1.4 s after a crash, measured
	minFree     = 64 << 20    // bytes: below this JetStream starts but soon refuses every event
)

// Server is a running embedded server. Connect with nats.InProcessServer(s), or at s.ClientURL() when it listens.
type Server struct {
	*server.Server
	lock *os.File
}

// Start runs a server in this process and returns when it takes connections. It logs nothing and handles no signals; an
// error says what stood in the way: the store in use (ErrInUse) or without room, the address taken, the files damaged, the
// server too old.
func Start(ctx context.Context, c Config) (*Server, error) {
	if err := CheckVersion(Embedded); err != nil {
		return nil, fmt.Errorf("start NATS: %w", err)
	}
	lock, err := lockStore(c.StoreDir)
	if err != nil {
		return nil, fmt.Errorf("start NATS in %s: %w", c.StoreDir, err)
	}
	s, err := start(ctx, c)
	if err != nil {
		lock.Close()
		return nil, fmt.Errorf("start NATS in %s: %w", c.StoreDir, err)
	}
	return &Server{Server: s, lock: lock}, nil
}

// Close stops the server and returns when its files are closed.
func (s *Server) Close() {
	s.Shutdown()
	s.WaitForShutdown()
	s.lock.Close()
}

func start(ctx context.Context, c Config) (*server.Server, error) {
	conf, err := c.Text()
	if err != nil {
		return nil, err
	}
	opts := &server.Options{NoSigs: true, NoLog: true, DontListen: c.Listen == ""}
	if err := opts.ProcessConfigString(conf); err != nil {
		return nil, err
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return nil, err
	}
	failed := &failure{came: make(chan struct{})}
	s.SetLoggerV2(failed, false, false, false)
	go s.Start()
	ready := make(chan bool, 1)
	go func() { ready <- s.ReadyForConnections(readyWithin) }()
	select {
	case ok := <-ready:
		if ok && (opts.DontListen || s.ClientURL() != "") {
			return s, nil
		}
		err = fmt.Errorf("not ready within %s", readyWithin)
	case <-failed.came:
		err = failed.err()
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.Shutdown()
	s.WaitForShutdown()
	return nil, err
}

// lockStore makes the directory and holds it for this process; the kernel lets go of the lock when the process ends.
func lockStore(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return nil, err
	}
	if free := fs.Bavail * uint64(fs.Bsize); free < minFree {
		return nil, fmt.Errorf("no disk space: %d MiB are free, at least %d are needed", free>>20, minFree>>20)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, ErrInUse
		}
		return nil, fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	return lock, nil
}

// failure is a logger that keeps the server's first fatal line, which is the only way it says why it did not start.
type failure struct {
	once sync.Once
	came chan struct{}
	line string
}

func (f *failure) Fatalf(format string, v ...any) {
	f.once.Do(func() {
		f.line = strings.TrimSpace(fmt.Sprintf(format, v...))
		close(f.came)
	})
}

func (f *failure) err() error { return errors.New(f.line) }

func (f *failure) Noticef(string, ...any) {}
func (f *failure) Warnf(string, ...any)   {}
func (f *failure) Errorf(string, ...any)  {}
func (f *failure) Debugf(string, ...any)  {}
func (f *failure) Tracef(string, ...any)  {}
