package app

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/cmd/datadir"
	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/events/secret"
	"pocketcoder/ops/expect"
	"pocketcoder/ops/natsconf"
	"pocketcoder/web/api"
)

// The server keeps the error of a failed write and stores nothing more, although the next write would succeed.
func TestTheLogIsOpenedAgainAfterAFailedWrite(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	d := datadir.Dir(expect.MemoryDir(t))
	keys, err := natsconf.LoadKeys(d.Path("keys"))
	is.NoErr(err)
	opened, err := openLogServer(t.Context(), logServerOptions{Data: d, Config: NATSConfig(d, keys),
		Logger: slog.New(slog.DiscardHandler)}, keys)
	is.NoErr(err)
	t.Cleanup(opened.Close)
	s := &System{nats: opened, nc: opened.Conn, disk: &logDisk{Data: d, Server: opened.Embedded,
		Damaged: opened.HasDamage, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}}
	options := log.DefaultOptions
	options.Refuse = s.disk.Refusal
	s.log, err = log.Open(t.Context(), opened.Conn, options, secret.NewRedactor())
	is.NoErr(err)
	s.disk.Reopened = s.log.Reopened
	n := 0
	commit := func(limit time.Duration) error {
		n++
		text, _ := json.Marshal(rand.Text() + fmt.Sprintf("%x", randomBytes(100_000)))
		e, err := events.NewOpenCode("chat1", "local", fmt.Sprint("evt_", n), -1,
			events.OpenCode{Type: "session.updated", Properties: text})
		is.NoErr(err)
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		_, err = s.log.Commit(ctx, []log.Write{{Event: e}})
		return err
	}
	is.NoErr(commit(time.Minute))
	s.disk.Check(t.Context())
	is.Equal(s.logHealth().State, api.Ready)

	found, err := filepath.Glob(d.Path("nats", "jetstream", "*", "streams", "EVENTS", "msgs"))
	is.NoErr(err)
	is.Equal(len(found), 1)
	away := found[0] + ".away"
	is.NoErr(os.Rename(found[0], away))
	for range 200 { // until a new file is needed
		if err = commit(time.Second); err != nil && opened.Embedded.WriteError() != nil {
			break
		}
	}
	is.True(log.IsUnavailable(err))
	is.Equal(s.logHealth().State, api.Offline) // the append says so
	is.NoErr(os.Rename(away, found[0]))
	is.True(natsconf.IsWriteFailed(opened.Embedded.WriteError())) // for good
	is.True(!natsconf.IsDiskFull(opened.Embedded.WriteError()))

	expect.Eventually(t, "the log is open again", func() bool { return s.disk.Check(t.Context()) == "" })
	is.NoErr(commit(time.Minute))
	is.Equal(s.logHealth().State, api.Ready)
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

// openedLog returns a system with nothing but its log.
func openedLog(t *testing.T, d datadir.Dir) *System {
	t.Helper()
	is := is.New(t)
	keys, err := natsconf.LoadKeys(d.Path("keys"))
	is.NoErr(err)
	server, err := openLogServer(t.Context(), logServerOptions{Data: d, Config: NATSConfig(d, keys),
		Logger: slog.New(slog.DiscardHandler)}, keys)
	is.NoErr(err)
	t.Cleanup(server.Close)
	l, err := log.Open(t.Context(), server.Conn, log.DefaultOptions, secret.NewRedactor())
	is.NoErr(err)
	return &System{nats: server, nc: server.Conn, log: l, disk: &logDisk{Data: d}}
}

func TestALossDegradesHealthUntilAPersonHasAcknowledgedIt(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	d := datadir.Dir(t.TempDir())
	is.NoErr(os.Mkdir(d.Path("report"), 0o700))
	note := `{"last": 2, "lost": [{"stream": "EVENTS", "sequences": [{"first": 1, "last": 2}], "directory": "` +
		d.Path("report") + `"}]}`
	is.NoErr(os.WriteFile(d.Path("log-note.json"), []byte(note), 0o600))
	s := openedLog(t, d)
	health := s.logHealth()
	is.Equal(health.State, api.Degraded)
	is.Equal(health.Detail.(map[string]any)["error"], s.nats.Trouble())
	is.NoErr(os.Remove(d.Path("report")))
	is.Equal(s.logHealth().State, api.Ready)
}

// The read models of this process still show the lost events as done.
func TestALossThatIsFoundWhileItRunsIsComparedAtTheNextStart(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	d := datadir.Dir(t.TempDir())
	note := `{"last": 2, "uncertain": 3, "lost": [{"stream": "EVENTS", "sequences": [{"first": 1, "last": 2}], "directory": "` +
		d.Path("report") + `"}]}`
	is.NoErr(os.WriteFile(d.Path("log-note.json"), []byte(note), 0o600))
	s := openedLog(t, d)
	is.Equal(s.nats.Uncertain(), uint64(3))
	e := &engine{s: s, project: projectPaths{Project: firstProject}}
	is.NoErr(e.holdUncertain(t.Context())) // it holds nothing: there is no outbox here
	is.Equal(s.nats.Uncertain(), uint64(3))
}

// NATS creates no consumer with such a state. Another one then does its work.
func TestAConsumerThatCannotBeOpenedDegradesHealth(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	d := datadir.Dir(expect.MemoryDir(t))
	s := openedLog(t, d)
	expect.WriteFile(t, d.Path("nats", "jetstream", "APP", "streams", "EVENTS", "obs", "gate", "o.dat"), "no state")
	is.Equal(s.consumersHealth().State, api.Ready)
	consuming, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- s.log.Consume(consuming, "gate", events.ChatFilter("*"),
			func(context.Context, events.Event) error { return nil }, func(events.Event, error) {})
	}()
	expect.Eventually(t, "health is degraded", func() bool { return s.consumersHealth().State == api.Degraded })
	reason := s.consumersHealth().Detail.(map[string]any)["error"].(string)
	expect.Contains(t, reason, "the consumer gate cannot be opened: ")
	expect.Eventually(t, "another one works", func() bool { return s.consumersHealth().State == api.Ready })
	stop()
	<-ended
}

func TestSecretsThatCannotBeRedactedDegradeHealth(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := openedLog(t, datadir.Dir(t.TempDir()))
	is.Equal(s.logHealth().State, api.Ready)
	var all []string
	for range secret.Webhooks.Budget() {
		all = append(all, rand.Text()+rand.Text()) // a shorter one may consist of words
	}
	s.log.Conceal(secret.Webhooks, "all", all...)
	health := s.logHealth()
	is.Equal(health.State, api.Degraded)
	is.Equal(health.Detail.(map[string]any)["error"],
		"secrets: no further tokens of webhooks are accepted, because at most 400 can be redacted")
	s.log.Conceal(secret.Webhooks, "all", all[1:]...)
	is.Equal(s.logHealth().State, api.Ready)
}
