package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/projections"
	"pocketcoder/sandbox/isolation"
)

// knock is a command that asks its proxy for a host, and shows what that says.
const knock = `to=${http_proxy#http://}; auth=$(printf %s "${to%@*}" | base64 -w0); to=${to##*@}
exec 3<>/dev/tcp/${to%:*}/${to##*:}
printf 'CONNECT registry.example:443 HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic %s\r\n\r\n' "$auth" >&3
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

func TestAPersonDecidesWhereACommandConnects(t *testing.T) {
	t.Parallel()
	needsBubblewrap(t)
	is := is.New(t)
	p := start(t, "--network", "ask")
	chat := p.chat(t, bash(knock))
	p.approve(t, chat, 0)
	var asked events.PermissionRequested
	is.NoErr(json.Unmarshal(p.event(t, chat, "permission.requested", nil).Data, &asked))
	is.Equal(asked.Patterns, []string{"registry.example:443"})
	p.decide(t, chat, asked.Ask(), events.Denied, "use the mirror")
	p.finished(t, chat, 0)
	p.turnEnds(t, chat)
	out := outputsOf(t, rows[projections.Run](t, p, "executions", chat)[0]).Stdout.Text
	is.True(strings.HasPrefix(out, "HTTP/1.1 403 Blocked by PocketCoder: registry.example:443: denied by user:"))
	is.True(strings.Contains(out, "use the mirror"))
	var connected events.ExecConnected
	is.NoErr(json.Unmarshal(p.event(t, chat, "exec.connected", nil).Data, &connected))
	is.Equal([]any{connected.Host, connected.Port, connected.Allowed, connected.Permission}, []any{"registry.example", 443, false, asked.Permission})

	shown, _, code := p.cli(t, "", "why", asked.Permission)
	is.Equal(code, 0)
	is.True(strings.Contains(shown, "registry.example:443"))
}
