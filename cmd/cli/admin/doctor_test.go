package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"

	"pocketcoder/cmd/app"
	"pocketcoder/cmd/cli"
	"pocketcoder/cmd/cmdtest"
	"pocketcoder/cmd/datadir"
	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/events/secret"
	"pocketcoder/ops/expect"
	"pocketcoder/ops/natsconf"
	"pocketcoder/web/routes"
	"pocketcoder/web/webtest"
)

func TestDoctorOnAnEmptyMachineSaysWhatToGet(t *testing.T) {
	is := is.New(t)
	t.Setenv("PATH", t.TempDir())
	env, out := environment(nil)
	err := Doctor(t.Context(), env,
		[]string{"--json", "--data", filepath.Join(t.TempDir(), "data"), "--http", "127.0.0.1:0"})
	is.True(errors.Is(err, cli.ExitCode(1)))
	var checks []check
	is.NoErr(json.Unmarshal(out.Bytes(), &checks))
	state := map[string]checkState{}
	for _, c := range checks {
		state[c.Name] = c.State
		is.True(c.For != "")
		is.True(c.State == checkOK || c.Get != "") // what is not ok can be had
	}
	delete(state, "sshd")   // which is looked for beyond PATH
	delete(state, "limits") // which depend on the machine alone
	is.Equal(state, map[string]checkState{
		"node": checkMissing, "npm": checkMissing, "opencode": checkMissing, "rg": checkMissing,
		"git": checkOptional, "tmux": checkOptional, "isolation": checkOptional, "nats": checkOK, "data": checkOK, "disk": checkOK, "quarantine": checkOK, "http": checkOK, "log": checkOK, "events": checkOK, "consumers": checkOK,
	})
}

func TestDoctorNeedsNoNPMForWhatIsThere(t *testing.T) {
	is := is.New(t)
	bin := t.TempDir()
	t.Setenv("PATH", bin)
	for name, version := range map[string]string{"opencode": "1.18.33", "rg": "ripgrep 14"} {
		is.NoErr(os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\necho "+version+"\n"), 0o755))
	}
	env, out := environment(nil)
	is.NoErr(Doctor(t.Context(), env, []string{"--data", filepath.Join(t.TempDir(), "data"), "--http", "127.0.0.1:0"}))
	expect.Contains(t, out.String(), "optional  node ")
	expect.Contains(t, out.String(), "1.18.33, "+bin+"/opencode")
}

func TestDoctorNamesTheEventsThatTheLogHasLost(t *testing.T) {
	is := is.New(t)
	d := datadir.Dir(t.TempDir())
	is.NoErr(os.Mkdir(d.Path("report"), 0o700))
	note := `{"lost": [{"stream": "EVENTS", "sequences": [{"first": 7, "last": 9}], "reason": "the file 1.blk is damaged", "directory": "` + d.Path("report") + `"}]}`
	is.NoErr(os.WriteFile(d.Path("log-note.json"), []byte(note), 0o600))
	c := checkLosses(d)
	is.Equal(c.State, checkWrong)
	expect.Contains(t, c.Found, "3 events are lost: #7 to #9; the file 1.blk is damaged; report and damaged files: "+
		d.Path("report"))
	is.NoErr(os.Remove(d.Path("report")))
	c = checkLosses(d)
	is.Equal(c.State, checkOK) // a person has acknowledged it
	expect.Contains(t, c.Found, "#7 to #9")
}

func TestDoctorCountsWhatIsInTheQuarantine(t *testing.T) {
	is := is.New(t)
	d := datadir.Dir(t.TempDir())
	is.Equal(checkQuarantine(d).Found, "0 below "+string(d))
	for _, dir := range []string{"quarantine/ONE/item", "quarantine/TWO", "quarantine/replaced/THREE",
		"projects/web/quarantine/ONE/item"} {
		is.NoErr(os.MkdirAll(d.Path(dir), 0o700))
	}
	is.NoErr(os.WriteFile(d.Path("quarantine", "TWO", "item"), nil, 0o600))
	is.Equal(checkQuarantine(d).Found, "3 below "+string(d))
}

func TestDoctorNamesWhatIsWrong(t *testing.T) {
	is := is.New(t)
	d := datadir.Dir(filepath.Join(t.TempDir(), "data"))
	is.NoErr(os.Mkdir(string(d), 0o700))
	is.NoErr(os.WriteFile(d.Path("version"), []byte("99\n"), 0o600))
	c := checkData(d)
	is.Equal(c.State, checkWrong)
	expect.Contains(t, c.Found, `version 99`)

	l, err := net.Listen("tcp", "127.0.0.1:0")
	is.NoErr(err)
	defer l.Close()
	c = checkHTTP(t.Context(), doctorOptions{data: d, http: l.Addr().String()})
	is.Equal(c.State, checkWrong)
	expect.Contains(t, c.Get, "--http")

	c = checkNATS(t.Context(), doctorOptions{data: d})
	is.Equal(c.State, checkOK)
	expect.Contains(t, c.Found, "embedded")
	c = checkNATS(t.Context(), doctorOptions{data: d, nats: "nats://127.0.0.1:1"})
	is.Equal(c.State, checkWrong)
	expect.Contains(t, c.Found, "no keys to ask nats://127.0.0.1:1 with")
	_, err = natsconf.LoadKeys(d.Path("keys"))
	is.NoErr(err)
	c = checkNATS(t.Context(), doctorOptions{data: d, nats: "nats://127.0.0.1:1"})
	expect.Contains(t, c.Found, "check versions of NATS at nats://127.0.0.1:1")

	c = checkOpenCode(t.Context(), doctorOptions{data: d, opencode: "/nonexistent/opencode"}, true)
	is.Equal(c.State, checkWrong)
}

func TestDoctorShowsTheHealthOfWhatRuns(t *testing.T) {
	is := is.New(t)
	status := http.StatusOK
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		w.Write([]byte(`{"data":{"opencode":{"state":"starting"},"log":{"state":"ready"}}}`))
	}))
	defer s.Close()
	o := doctorOptions{data: servedAt(t, s.URL)}
	c := checkHTTP(t.Context(), o)
	is.Equal(c.State, checkOK)
	is.Equal(c.Found, s.URL+": log ready, opencode starting")
	status = http.StatusServiceUnavailable
	is.Equal(checkHTTP(t.Context(), o).State, checkWrong)
}

// running returns a data directory that names a running system, with the connection and the log of that system. The
// system answers nothing yet.
func running(t *testing.T) (datadir.Dir, *log.Log) {
	t.Helper()
	is := is.New(t)
	d := datadir.Dir(expect.MemoryDir(t))
	keys, err := natsconf.LoadKeys(d.Path("keys"))
	is.NoErr(err)
	server, err := natsconf.Start(t.Context(), app.NATSConfig(d, keys))
	is.NoErr(err)
	t.Cleanup(server.Close)
	options, err := keys.Options(natsconf.Core, "test")
	is.NoErr(err)
	nc, err := nats.Connect(server.ClientURL(), options...)
	is.NoErr(err)
	t.Cleanup(nc.Close)
	l, err := log.Open(t.Context(), nc, log.DefaultOptions, secret.NewRedactor())
	is.NoErr(err)
	is.NoErr(d.Announce(datadir.Running{PID: os.Getpid(), NATS: server.ClientURL()}))
	return d, l
}

func TestDoctorNamesTheEventsThatCannotBeApplied(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	system := webtest.NewSystem(t)
	d := cmdtest.Running(t, system.Web.Local())
	var c check
	expect.Eventually(t, "the system answers", func() bool {
		c = checkEvents(t.Context(), d)
		return c.State == checkOK
	})
	is.Equal(c.Found, "all of them can be read")
	last, err := system.Log.Last(t.Context())
	is.NoErr(err)
	for range routes.NamedEvents + 1 {
		e, err := events.New("chat1", events.ActorSandbox, events.ExecFinished{Exec: "never"})
		is.NoErr(err)
		_, err = system.Log.Append(t.Context(), e)
		is.NoErr(err)
	}
	c = checkEvents(t.Context(), d)
	is.Equal(c.State, checkWrong)
	lines := strings.Split(c.Found, "\n")
	is.Equal(len(lines), routes.NamedEvents+2)
	is.Equal([]string{lines[0], lines[routes.NamedEvents+1]}, []string{"6 cannot be read or applied", "and 1 more"})
	expect.Contains(t, lines[1], fmt.Sprint("#", last+1))
	expect.Contains(t, lines[1], "execution never was never requested")
}

func TestDoctorNamesTheConsumersThatDoNoWork(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	is.Equal(checkConsumers(t.Context(), datadir.Dir(t.TempDir())).State, checkOK) // no system runs
	d, l := running(t)
	c := checkConsumers(t.Context(), d)
	is.Equal(c.State, checkWrong) // the system does not answer

	ctx, stop := context.WithCancel(t.Context())
	var working sync.WaitGroup
	t.Cleanup(func() { stop(); working.Wait() })
	cmdtest.Serve(t, d, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		json.NewEncoder(w).Encode(routes.LogState{Stalled: l.StalledConsumers()})
	}))
	becomes := func(state checkState) {
		expect.Eventually(t, string(state), func() bool { c = checkConsumers(t.Context(), d); return c.State == state })
	}
	becomes(checkOK)
	is.Equal(c.Found, "all of them work")
	for _, name := range []string{"gate", "gate-2"} { // the server can create neither
		expect.WriteFile(t, d.Path("nats", "jetstream", "APP", "streams", "EVENTS", "obs", name, "o.dat"), "no state")
	}
	working.Go(func() {
		l.Consume(ctx, "gate", events.ChatFilter("*"),
			func(context.Context, events.Event) error { return nil }, func(events.Event, error) {})
	})
	becomes(checkWrong)
	expect.Contains(t, c.Found, "the consumer gate cannot be opened: ")
}

// servedAt is a data directory that says that this process runs on it.
func servedAt(t *testing.T, http string) datadir.Dir {
	t.Helper()
	d := datadir.Dir(t.TempDir())
	if err := d.Announce(datadir.Running{PID: os.Getpid(), NATS: "nats://127.0.0.1:4333", HTTP: http}); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDoctorNamesWrongModes(t *testing.T) {
	is := is.New(t)
	d := datadir.Dir(t.TempDir())
	_, err := natsconf.LoadKeys(d.Path("keys"))
	is.NoErr(err)
	for path, mode := range map[string]os.FileMode{string(d): 0o700, d.Path("keys", "worker.nk"): 0o600} {
		for _, wrong := range []os.FileMode{0, 0o755} {
			is.NoErr(os.Chmod(path, wrong))
			is.Equal(checkData(d).State, checkWrong)
			is.NoErr(os.Chmod(path, mode))
		}
	}
	is.Equal(checkData(d).State, checkOK)
}

func TestDoctorSaysHowToGetIsolation(t *testing.T) {
	is := is.New(t)
	t.Setenv("PATH", t.TempDir())
	c := checkIsolation("bwrap")
	is.Equal(c.State, checkMissing)
	expect.Contains(t, c.Found, "apt install bubblewrap")
	is.Equal(checkIsolation("none").State, checkWrong)
}
