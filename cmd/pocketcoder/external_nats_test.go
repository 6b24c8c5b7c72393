package main

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats-server/v2/server"
)

// startExternalNATS starts a NATS server with the configuration that a new data directory has printed for it.
func startExternalNATS(t *testing.T, p *process) (restart func()) {
	t.Helper()
	is := is.New(t)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	is.NoErr(err)
	address := free.Addr().String()
	is.NoErr(free.Close())
	dir := t.TempDir()
	conf, stderr, code := p.cli(t, "", "admin", "nats-config", "--listen", address, "--store", filepath.Join(dir, "store"))
	t.Log(stderr)
	is.Equal(code, 0)
	file := filepath.Join(dir, "nats.conf")
	is.NoErr(os.WriteFile(file, []byte(conf), 0o600))
	var s *server.Server
	begin := func() {
		o, err := server.ProcessConfigFile(file)
		is.NoErr(err)
		o.NoSigs, o.NoLog = true, true
		s, err = server.NewServer(o)
		is.NoErr(err)
		go s.Start()
		is.True(s.ReadyForConnections(eventTimeout))
	}
	end := func() { s.Shutdown(); s.WaitForShutdown() }
	begin()
	t.Cleanup(func() { end() })
	p.args = append(p.args, "--nats", "nats://"+address)
	return func() { end(); begin() }
}

// Whenever the server goes away around a decision, the approved command runs, once.
func TestApprovedCommandRunsOnceAlthoughNATSRestarts(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := prepare(t, t.TempDir())
	restart := startExternalNATS(t, p)
	p.runForTest()
	for _, after := range []time.Duration{0, 20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond} {
		name := "ran" + after.String()
		chat := p.chat(t, bash("echo run >> "+name+"; sleep 2; echo end >> "+name))
		p.approve(t, chat, 0)
		time.Sleep(after) // the moment at which the server goes
		restart()
		f := p.finished(t, chat, 0)
		text, err := os.ReadFile(filepath.Join(p.workspace, name))
		is.NoErr(err)
		is.Equal(string(text), "run\nend\n")
		t.Log(after, f.Reason, f.Error)
		is.Equal(f.ExitCode, 0)
	}
}

func TestNewDataDirectoryWithAnExternalNATS(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := prepare(t, t.TempDir())
	startExternalNATS(t, p)
	p.runForTest()
	_, stderr, code := p.cli(t, "", "admin", "nats-config") // the system runs
	t.Log(stderr)
	is.Equal(code, 0)
	chat := p.chat(t, bash("echo there"))
	p.approve(t, chat, 0)
	is.Equal(p.finished(t, chat, 0).ExitCode, 0)
	p.turnEnds(t, chat)
}
