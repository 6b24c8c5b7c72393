package egress_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers/exec"
	"pocketcoder/handlers/permission"
	"pocketcoder/ops/expect"
	"pocketcoder/sandbox"
	"pocketcoder/sandbox/isolation"
	"pocketcoder/sandbox/netrelay"
	"pocketcoder/sandbox/wire"
)

// TestMain lets the test binary also be the program between bubblewrap and a command.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == netrelay.Name {
		os.Exit(netrelay.Run(os.Args[2:], os.Stderr))
	}
	os.Exit(expect.Run(m))
}

// sandboxed has commands of chat c1 run behind bubblewrap, the whole way from the shell's request.
func sandboxed(t *testing.T, w *proxyFixture) (run func(call, command string) (wire.Result, string)) {
	t.Helper()
	is := is.New(t)
	choice, err := isolation.Choose(string(isolation.Bwrap))
	switch {
	case err != nil && os.Getenv("CI") != "":
		t.Fatal(err)
	case err != nil:
		t.Skip(err)
	}
	workspace, err := filepath.EvalSymlinks(t.TempDir())
	is.NoErr(err)
	worker, err := sandbox.Open(sandbox.Config{Workspace: workspace, Home: t.TempDir(), Isolation: choice,
		Quarantine: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	is.NoErr(err)
	t.Cleanup(worker.Close)
	x := &exec.Executions{
		Permissions: w.Network.Gate.Permissions, Log: w.log, Conn: w.nc, Engine: "local", Pool: "local", Workspace: workspace, Network: w.Network, Logger: slog.New(slog.DiscardHandler),
		Session: func(string) (permission.Session, bool) {
			return permission.Session{Chat: "c1", Directory: workspace}, true
		},
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- x.Run(ctx) }()
	go func() {
		ended <- wire.Serve(ctx, w.nc, wire.RunSubject("local"), wire.Server{Handle: worker.Exec})
	}()
	t.Cleanup(func() { cancel(); <-ended; <-ended })
	return func(call, command string) (wire.Result, string) {
		ask, _ := json.Marshal(map[string]any{
			"id": "per_" + call, "sessionID": "ses_1", "permission": "bash", "patterns": []string{command}, "metadata": map[string]string{"command": command},
			"tool": map[string]string{"messageID": "msg_1", "callID": call},
		})
		e, err := events.NewOpenCode("c1", "local", "evt_"+call, -1,
			events.OpenCode{Type: events.PermissionAsked, Properties: ask})
		is.NoErr(err)
		_, err = w.log.Append(t.Context(), e)
		is.NoErr(err)
		w.decide("per_"+call, events.Authorized)
		var out bytes.Buffer
		result := x.Exec(t.Context(), wire.Request{Session: "ses_1", Call: call, Command: command, Cwd: workspace}, &out,
			&out)
		return result, out.String()
	}
}

func TestACommandInTheSandboxReachesWhatItMayThroughTheProxyAndNothingElse(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t, permission.NetworkOff)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "a page\n")
	}))
	defer s.Close()
	w.Instead("www.test.example:80", host(s.URL))
	run := sandboxed(t, w)
	site := strings.Replace(host(s.URL), ":", "/", 1)
	result, out := run("call_1", fmt.Sprintf(`
env | grep -i http_proxy
to=${http_proxy#http://}; auth=$(printf %%s "${to%%@*}" | base64 -w0); to=${to##*@}
exec 3<>/dev/tcp/${to%%:*}/${to##*:}
printf 'GET http://www.test.example/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\nProxy-Authorization: Basic %%s\r\n\r\n' "$auth" >&3
cat <&3
(exec 4<>/dev/tcp/%s) && echo reached the site
(exec 4<>/dev/tcp/%s) && echo reached the proxy
(exec 4<>/dev/tcp/1.1.1.1/80) && echo reached the internet
exit 7`, site, strings.Replace(w.address, ":", "/", 1)))
	t.Log(out)
	is.Equal(result.ExitCode, 7)
	expect.Contains(t, out, "HTTP/1.1 200 OK")
	expect.Contains(t, out, "a page")
	expect.Lacks(t, out, "reached")
	is.Equal(strings.Count(out, ": Connection refused"), 4)
	is.Equal(strings.Count(out, ": Network is unreachable"), 2) // all three are the kernel's words
	all := w.connected()
	is.Equal(len(all), 1)
	is.Equal(all[0].Host, "www.test.example")

	_, token, _ := strings.Cut(out, "http://")
	token, _, _ = strings.Cut(token, "@")
	_, token, _ = strings.Cut(token, ":")
	is.Equal(len(token), 26)
	is.NoErr(w.log.Read(t.Context(), 0, nil, func(b log.Batch) error {
		for _, e := range b.Events {
			expect.Lacks(t, string(e.Data), token) // although the command printed it
		}
		if b.Behind == 0 {
			return events.ErrStop
		}
		return nil
	}))
}

func TestACommandInTheSandboxHasNoProxyWhenNothingAllowsOne(t *testing.T) {
	t.Parallel()
	w := open(t, permission.NetworkOff)
	w.Network.Gate.Rules = nil
	_, out := sandboxed(t, w)("call_1", "env | grep -i _proxy; (exec 4<>/dev/tcp/"+
		strings.Replace(w.address, ":", "/", 1)+") && echo reached")
	t.Log(out)
	expect.Lacks(t, strings.ToLower(out), "_proxy=")
	expect.Lacks(t, out, "reached")
}
