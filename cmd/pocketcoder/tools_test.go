package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"

	"pocketcoder/events/eventstest"
	"pocketcoder/expect"
	"pocketcoder/ops/natsconf"
)

// toEnvironment is an environment without a terminal, whose output is kept.
func toEnvironment(vars map[string]string) (environment, *bytes.Buffer) {
	var out bytes.Buffer
	return environment{stdin: strings.NewReader(""), stdout: &out, stderr: &out, getenv: func(name string) string { return vars[name] }}, &out
}

// announced is a data directory that says that this process runs on it.
func announced(t *testing.T, http string) dataDir {
	t.Helper()
	d := dataDir(t.TempDir())
	if err := d.announce(running{PID: os.Getpid(), NATS: "nats://127.0.0.1:4333", HTTP: http}); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestNATSContextIsReadOnly(t *testing.T) {
	is := is.New(t)
	d, config := announced(t, ""), t.TempDir()
	env, out := toEnvironment(map[string]string{"XDG_CONFIG_HOME": config})
	is.NoErr(runNATSContext(t.Context(), env, []string{"--data", string(d)}))
	path := filepath.Join(config, "nats", "context", "pocketcoder.json")
	body, err := os.ReadFile(path)
	is.NoErr(err)
	is.Equal(string(body), strings.ReplaceAll(`{
  "description": "PocketCoder at DATA, read only",
  "url": "nats://127.0.0.1:4333",
  "nkey": "DATA/keys/observer.nk",
  "inbox_prefix": "_INBOX_OBSERVER",
  "jetstream_api_prefix": "READ.API"
}
`, "DATA", string(d)))
	expect.Contains(t, out.String(), "wrote "+path)
	expect.Contains(t, out.String(), "nats --context pocketcoder sub 'evt.chat.*.opencode.permission.>'")
	info, err := os.Stat(string(d) + "/keys/observer.nk")
	is.NoErr(err)
	is.Equal(info.Mode().Perm(), os.FileMode(0o600))
}

func TestPrintedNATSContextWritesNothing(t *testing.T) {
	is := is.New(t)
	d, config := announced(t, ""), t.TempDir()
	env, out := toEnvironment(map[string]string{"XDG_CONFIG_HOME": config})
	is.NoErr(runNATSContext(t.Context(), env, []string{"--data", string(d), "--print"}))
	is.True(json.Valid(out.Bytes()))
	left, err := os.ReadDir(config)
	is.NoErr(err)
	is.Equal(len(left), 0)
}

func TestDoctorOnAnEmptyMachineSaysWhatToGet(t *testing.T) {
	is := is.New(t)
	t.Setenv("PATH", t.TempDir())
	env, out := toEnvironment(nil)
	err := runDoctor(t.Context(), env, []string{"--json", "--data", filepath.Join(t.TempDir(), "data"), "--http", "127.0.0.1:0"})
	is.True(errors.Is(err, exitCode(1)))
	var checks []check
	is.NoErr(json.Unmarshal(out.Bytes(), &checks))
	state := map[string]checkState{}
	for _, c := range checks {
		state[c.Name] = c.State
		is.True(c.For != "")
		is.True(c.State == checkOK || c.Get != "") // what is not ok can be had
	}
	delete(state, "sshd") // which is looked for beyond PATH
	is.Equal(state, map[string]checkState{
		"node": checkMissing, "npm": checkMissing, "opencode": checkMissing, "rg": checkMissing,
		"git": checkOptional, "tmux": checkOptional, "isolation": checkOptional, "nats": checkOK, "data": checkOK, "disk": checkOK, "http": checkOK,
	})
}

func TestDoctorNeedsNoNPMForWhatIsThere(t *testing.T) {
	is := is.New(t)
	bin := t.TempDir()
	t.Setenv("PATH", bin)
	for name, version := range map[string]string{"opencode": "1.18.33", "rg": "ripgrep 14"} {
		is.NoErr(os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\necho "+version+"\n"), 0o755))
	}
	env, out := toEnvironment(nil)
	is.NoErr(runDoctor(t.Context(), env, []string{"--data", filepath.Join(t.TempDir(), "data"), "--http", "127.0.0.1:0"}))
	expect.Contains(t, out.String(), "optional  node ")
	expect.Contains(t, out.String(), "1.18.33, "+bin+"/opencode")
}

func TestDoctorNamesWhatIsWrong(t *testing.T) {
	is := is.New(t)
	d := dataDir(filepath.Join(t.TempDir(), "data"))
	is.NoErr(os.Mkdir(string(d), 0o700))
	is.NoErr(os.WriteFile(d.path("version"), []byte("99\n"), 0o600))
	c := checkData(d)
	is.Equal(c.State, checkWrong)
	expect.Contains(t, c.Found, `version "99"`)

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
	_, err = natsconf.LoadKeys(d.path("keys"))
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
	o := doctorOptions{data: announced(t, s.URL)}
	c := checkHTTP(t.Context(), o)
	is.Equal(c.State, checkOK)
	is.Equal(c.Found, s.URL+": log ready, opencode starting")
	status = http.StatusServiceUnavailable
	is.Equal(checkHTTP(t.Context(), o).State, checkWrong)
}

func TestVersionNamesWhatItIsMadeOf(t *testing.T) {
	is := is.New(t)
	out, _, err := runApp(t, "version", "--json")
	is.NoErr(err)
	var v map[string]string
	is.NoErr(json.Unmarshal([]byte(out), &v))
	is.Equal(v["opencode"], "1.18.33")
	for _, name := range []string{"pocketcoder", "go", "nats_server"} {
		is.True(v[name] != "")
	}
}

// rebuilding answers query.rebuild with the given messages.
func rebuilding(t *testing.T, answers ...*nats.Msg) *nats.Conn {
	t.Helper()
	nc := eventstest.Conn(t, eventstest.Server(t, t.TempDir()))
	_, err := nc.Subscribe("query.rebuild", func(m *nats.Msg) {
		for _, a := range answers {
			a.Subject = m.Reply
			nc.PublishMsg(a)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return nc
}

func TestRebuildReportsProgressAndEquality(t *testing.T) {
	is := is.New(t)
	step := func(text string) *nats.Msg { return &nats.Msg{Data: []byte(text)} }
	env, out := toEnvironment(nil)
	nc := rebuilding(t, step(`{"done":5,"total":10}`), step(`{"done":5,"total":10}`), step(`{"done":10,"total":10,"rebuilt":{"events":10,"seconds":0.5,"before":"aa","after":"aa"}}`))
	is.NoErr(rebuild(t.Context(), env, nc))
	is.Equal(out.String(), "5 of 10 events\n10 events in 0.50 s: 20 events/s\nbefore  aa\nafter   aa\nthe read models are the same, byte for byte\n")

	env, out = toEnvironment(nil)
	nc = rebuilding(t, step(`{"rebuilt":{"events":1,"seconds":1,"before":"aa","after":"bb"}}`))
	is.True(errors.Is(rebuild(t.Context(), env, nc), exitCode(1)))
	expect.Contains(t, out.String(), "DIFFER")
}

func TestRebuildThatFailsSaysWhy(t *testing.T) {
	is := is.New(t)
	env, _ := toEnvironment(nil)
	failed := nats.NewMsg("")
	failed.Header.Set("Error", "another rebuild is running")
	err := rebuild(t.Context(), env, rebuilding(t, failed))
	is.True(err != nil)
	expect.Contains(t, err.Error(), "another rebuild is running")

	alone := eventstest.Conn(t, eventstest.Server(t, t.TempDir()))
	is.True(errors.Is(rebuild(t.Context(), env, alone), nats.ErrNoResponders))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	is.True(errors.Is(rebuild(ctx, env, rebuilding(t)), context.Canceled))
}
