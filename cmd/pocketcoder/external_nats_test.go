package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"
	"github.com/nats-io/nats-server/v2/server"

	"pocketcoder/events"
	"pocketcoder/ops/expect"
)

// startExternalNATS starts a NATS server with the configuration that a new data directory has printed for it.
func startExternalNATS(t *testing.T, p *process) (restart func()) {
	t.Helper()
	is := is.New(t)
	address, dir := expect.Address(t), t.TempDir()
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

func TestWorkGoesOnAfterConnectionsBreak(t *testing.T) {
	expect.Long(t, "runs a NATS server and a system of its own")
	t.Parallel()
	egress := expect.Address(t)
	p := prepareInside(t, t.TempDir(), "--egress", egress)
	restart := startExternalNATS(t, p)
	p.runForTest()
	runStages(t, p, stage{"a new data directory with an external NATS that restarts", func(t *testing.T, p *process) {
		externalNATSRestarts(t, p, restart)
	}}, stage{"a delegate outlives the MCP connection of its parent", func(t *testing.T, p *process) {
		delegateOutlivesMCPConnection(t, p, egress)
	}})
}

func externalNATSRestarts(t *testing.T, p *process, restart func()) {
	is := is.New(t)
	_, stderr, code := p.cli(t, "", "admin", "nats-config") // the system runs
	t.Log(stderr)
	is.Equal(code, 0)
	chat := p.chat(t, bash("echo there"))
	p.approve(t, chat, 0)
	is.Equal(p.finished(t, chat, 0).ExitCode, 0)
	p.turnEnds(t, chat)

	// If the server stops around a decision, the approved command runs once, or the chat shows why it did not.
	chat = p.chat(t, bash("echo run >> ran; sleep 2; echo end >> ran"))
	p.approve(t, chat, 0)
	restart()
	var requested, finished, refused int
	expect.Eventually(t, "the end of the command is in the log", func() bool {
		requested, finished, refused = 0, 0, 0
		_, err := p.Log.Fold(t.Context(), events.ChatSubject(chat, "exec.*"), 0, func(e events.Event) error {
			switch e.Subject.Kind {
			case events.ExecRequested{}.Kind():
				requested++
			case events.ExecFinished{}.Kind():
				finished++
			case events.ExecRefused{}.Kind():
				refused++
			}
			return nil
		})
		return err == nil && finished+refused > 0
	})
	ran := expect.ReadFile(t, filepath.Join(p.workspace, "ran"))
	t.Log(requested, finished, refused, ran)
	is.True(requested == 1 && finished == 1 && refused == 0 && strings.HasPrefix("run\nend\n", ran) || requested == 0 &&
		refused == 1 && ran == "")
}
