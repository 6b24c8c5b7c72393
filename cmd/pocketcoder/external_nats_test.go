package main

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/matryer/is"
	"github.com/nats-io/nats-server/v2/server"
)

// startExternalNATS starts a NATS server with the configuration that a new data directory has printed for it.
func startExternalNATS(t *testing.T, p *process) {
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
	o, err := server.ProcessConfigFile(file)
	is.NoErr(err)
	o.NoSigs, o.NoLog = true, true
	s, err := server.NewServer(o)
	is.NoErr(err)
	go s.Start()
	is.True(s.ReadyForConnections(eventTimeout))
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	p.args = append(p.args, "--nats", "nats://"+address)
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
