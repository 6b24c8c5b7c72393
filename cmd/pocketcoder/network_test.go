package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
	"pocketcoder/sandbox/isolation"
)

// connectToHost is a command that asks its proxy to connect to a host, and prints the answer.
const connectToHost = `to=${http_proxy#http://}; auth=$(printf %s "${to%@*}" | base64 -w0); to=${to##*@}
exec 3<>/dev/tcp/${to%:*}/${to##*:}
printf 'CONNECT api.example.com:443 HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic %s\r\n\r\n' "$auth" >&3
cat <&3`

// needsBubblewrap skips what only works behind bubblewrap: a network, and ports.
func needsBubblewrap(t *testing.T) {
	t.Helper()
	_, err := isolation.Choose(string(isolation.Bwrap))
	if err != nil && os.Getenv("CI") != "" {
		t.Fatal(err)
	}
	if err != nil {
		t.Skip(err)
	}
}

func TestPersonDecidesAboutHosts(t *testing.T) {
	t.Parallel()
	needsBubblewrap(t)
	is := is.New(t)
	p := openSystem.system(t)
	chat := p.chat(t, bash(connectToHost))
	p.approve(t, chat, 0)
	var request events.PermissionRequested
	is.NoErr(json.Unmarshal(p.event(t, chat, "permission.requested", nil).Data, &request))
	is.Equal(request.Patterns, []string{"api.example.com:443"})
	p.decide(t, chat, request.Request(), events.Denied, "use the mirror")
	p.finished(t, chat, 0)
	p.turnEnds(t, chat)
	out := outputsOf(t, rows[projections.ShownExecution](t, p, "executions", chat)[0]).Stdout.Text
	is.True(strings.HasPrefix(out, "HTTP/1.1 403 Blocked by PocketCoder: api.example.com:443: denied by user:"))
	expect.Contains(t, out, "use the mirror")
	expect.Lacks(t, out, "[PocketCoder]")
	expect.Contains(t, p.tools(t, chat)[0].State.Output,
		"\n[PocketCoder] api.example.com:443 was refused: denied by user:")
	var connected events.ExecConnected
	is.NoErr(json.Unmarshal(p.event(t, chat, "exec.connected", nil).Data, &connected))
	is.Equal([]any{connected.Host, connected.Port, connected.Allowed, connected.Permission},
		[]any{"api.example.com", 443, false, request.Permission})

	shown, _, code := p.cli(t, "", "why", request.Permission)
	is.Equal(code, 0)
	expect.Contains(t, shown, "api.example.com:443")
}
