package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
	"pocketcoder/sandbox/isolation"
	"pocketcoder/sandbox/wire"
)

// This program is also a web server that a command of the model starts: it says its port, and greets.
func init() {
	greeting := os.Getenv("POCKETCODER_TEST_GREET")
	if greeting == "" {
		return
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("port %d\n\x1b[31mand colour\n", l.Addr().(*net.TCPAddr).Port)
	fmt.Fprintln(os.Stderr, http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, greeting, " at ", r.URL.Path)
	})))
	os.Exit(1)
}

// background lets the model of a new chat run a command by itself, and gives the chat and the execution once the turn
// is over.
func (p *process) background(t *testing.T, command string) (chat string, run projections.ShownExecution) {
	t.Helper()
	chat = p.chat(t, bash("detach "+command))
	request := p.awaitRequest(t, chat, 0)
	p.awaitReferral(t, chat, request)
	p.decide(t, chat, request, events.Authorized, "")
	p.turnEnds(t, chat)
	all := rows[projections.ShownExecution](t, p, "executions", chat)
	if len(all) != 1 || all[0].Text != command || !all[0].Detached {
		t.Fatalf("asked for %q, ran %+v", command, all)
	}
	return chat, all[0]
}

// logs is what "sandbox logs" says of an execution.
func (p *process) logs(t *testing.T, exec string, args ...string) (stdout, stderr string) {
	t.Helper()
	stdout, stderr, code := p.cli(t, "", append([]string{"sandbox", "logs", exec}, args...)...)
	is.New(t).Equal(code, 0)
	return stdout, stderr
}

func detachedServerLivesOn(t *testing.T, p *process) (after func(*testing.T, *process)) {
	is := is.New(t)
	if _, err := isolation.Choose(string(isolation.Bwrap)); err != nil {
		return func(t *testing.T, _ *process) { needsBubblewrap(t) }
	}
	server := filepath.Join(p.dir(t), "server")
	copyFile(t, os.Args[0], server)
	chat, run := p.background(t, "POCKETCODER_TEST_GREET='hello from inside' "+server)
	is.Equal(run.Status, events.ExecutionRunning) // the turn is over
	is.True(run.Isolation != "" && run.Worker != "")
	expect.Contains(t, p.tools(t, chat)[0].State.Output, "It runs in the background as execution "+run.ID)

	var port int
	expect.Eventually(t, "the server says its port", func() bool {
		out, _ := p.logs(t, run.ID)
		_, err := fmt.Sscanf(out, "port %d", &port)
		return err == nil && strings.Contains(out, "colour")
	})
	out, _ := p.logs(t, run.ID)
	is.Equal(out, fmt.Sprintf("port %d\n␛[31mand colour\n", port)) // control sequences as text
	stdout, _, _ := p.cli(t, "", "sandbox", "ps")
	is.True(strings.Contains(stdout, run.ID) && strings.Contains(stdout, chat) && strings.Contains(stdout, "background"))

	return func(t *testing.T, p *process) { detachedServerAnswers(t, p, chat, run, port) }
}

func detachedServerAnswers(t *testing.T, p *process, chat string, run projections.ShownExecution, port int) {
	is := is.New(t)
	expect.Eventually(t, "OpenCode is there again", func() bool { return p.health(t).code == 200 })
	admin := p.admin(t)
	var opened struct{ Path string }
	admin.must(t, "POST", fmt.Sprintf("/api/chats/%s/ports/%d", chat, port), nil, &opened)
	got := login{process: p}.do(t, "GET", opened.Path+"x/y", nil) // as a browser does, without a token
	is.Equal([]any{got.code, got.body}, []any{200, "hello from inside at /x/y"})
	is.True(strings.HasPrefix(got.header.Get("Content-Security-Policy"), "sandbox allow-scripts"))
	is.Equal(login{process: p}.do(t, "GET", opened.Path, nil, "Origin", "null").code, 200)
	is.Equal(login{process: p}.do(t, "GET", fmt.Sprintf("/api/chats/%s/ports/%d/", chat, port), nil).code, 401)
	address, stderr, code := p.cli(t, "", "ports", chat, fmt.Sprint(port))
	t.Log(address, stderr)
	is.Equal(code, 0)
	is.Equal(p.openAddress(t, strings.TrimSpace(address)), "hello from inside at /") // for the operator, without a login
	_, stderr, code = p.cli(t, "", "ports", "nowhere", fmt.Sprint(port))
	is.Equal(code, 1)
	expect.Contains(t, stderr, "there is no chat nowhere")

	admin.must(t, "POST", "/api/executions/"+run.ID+"/signal", map[string]string{"signal": "SIGTERM"}, nil)
	ended := p.finished(t, chat, 0)
	is.Equal([]string{ended.Exec, ended.Reason}, []string{run.ID, ""})
	is.Equal(ended.Stdout.Text, fmt.Sprintf("port %d\n\x1b[31mand colour\n", port))
	e := p.event(t, chat, "exec.signalled", nil)
	is.Equal(e.Actor, events.UserActor(admin.id))
	is.Equal(admin.do(t, "POST", "/api/executions/"+run.ID+"/signal", nil).code, 409)
	is.Equal(admin.do(t, "GET", fmt.Sprintf("/api/chats/%s/ports/%d/", chat, port), nil).code, 404)
}

func TestTheModelReachesTheServerThatItStarted(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	if choice, err := isolation.Choose(string(isolation.Bwrap)); err != nil || !choice.SharesLoopback {
		needsBubblewrap(t)
	}
	p := sharedSystem(t)
	server := filepath.Join(p.dir(t), "own-server")
	copyFile(t, os.Args[0], server)
	chat, run := p.background(t, "POCKETCODER_TEST_GREET='hello from inside' "+server)
	expect.Lacks(t, p.tools(t, chat)[0].State.Output, "cannot reach")
	var port int
	expect.Eventually(t, "the server says its port", func() bool {
		out, _ := p.logs(t, run.ID)
		_, err := fmt.Sscanf(out, "port %d", &port)
		return err == nil
	})
	get := fmt.Sprintf("exec 3<>/dev/tcp/127.0.0.1/%d && printf 'GET /own HTTP/1.0\r\n\r\n' >&3 && tail -n 1 <&3", port)
	p.submit(t, chat, bash(get))
	p.approve(t, chat, 1)
	expect.Contains(t, p.outputOf(t, chat, 1), "hello from inside at /own")
	other := p.chat(t, bash(get)) // another chat does not reach it
	p.approve(t, other, 0)
	is.True(p.finished(t, other, 0).ExitCode != 0)
	// a server that is started in another way ends with its command, and the model learns how to start it
	p.submit(t, chat, bash("POCKETCODER_TEST_GREET=hello "+server+" >/dev/null 2>&1 & until grep -q own-server /proc/$!/comm; do :; done; echo started"))
	p.approve(t, chat, 2)
	expect.Contains(t, p.outputOf(t, chat, 2), "started\n\n[PocketCoder] The command left 1 process, which the sandbox ended: "+
		"own-server. Start a server without `&`, in a command of its own that begins with `detach `.")
}

// openAddress opens an address as a browser does: with cookies, and with every name below localhost as this machine.
func (p *process) openAddress(t *testing.T, address string) string {
	t.Helper()
	is := is.New(t)
	jar, err := cookiejar.New(nil)
	is.NoErr(err)
	client := http.Client{Jar: jar, Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, strings.TrimPrefix(p.HTTP, "http://"))
		},
	}}
	resp, err := client.Get(address)
	is.NoErr(err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	is.NoErr(err)
	is.Equal(resp.StatusCode, http.StatusOK)
	return string(body)
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	is := is.New(t)
	in, err := os.Open(from)
	is.NoErr(err)
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	is.NoErr(err)
	_, err = io.Copy(out, in)
	is.NoErr(err)
	is.NoErr(out.Close())
}

func TestRunningCommandIsFollowedAndKilled(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	_, run := p.background(t, "echo begun; while :; do sleep 0.05; done")
	followed := make(chan [2]string, 1)
	go func() {
		out, err, _ := p.cli(t, "", "sandbox", "logs", run.ID, "-f")
		followed <- [2]string{out, err}
	}()
	expect.Eventually(t, "it has begun", func() bool { out, _ := p.logs(t, run.ID); return out == "begun\n" })
	_, stderr, code := p.cli(t, "", "sandbox", "kill", run.ID, "--signal", "SEGV")
	is.Equal(code, 2)
	expect.Contains(t, stderr, "want one of TERM")
	_, stderr, code = p.cli(t, "", "sandbox", "kill", run.ID, "--signal", "sigkill")
	is.Equal(code, 0)
	expect.Contains(t, stderr, "sent KILL to "+run.ID)
	got := <-followed
	is.Equal(got[0], "begun\n")
	expect.Contains(t, got[1], "ended: ")
	expect.Eventually(t, "the end is projected", func() bool {
		_, err := p.logs(t, run.ID)
		return err == got[1]
	})
	_, stderr, code = p.cli(t, "", "sandbox", "kill", run.ID)
	is.Equal(code, 1)
	expect.Contains(t, stderr, "execution "+run.ID+" is not running")

	stdout, _, code := p.cli(t, "", "sandbox", "ps", "--all", "--json", "--limit", "1000")
	is.Equal(code, 0)
	var all []projections.ShownExecution
	is.NoErr(json.Unmarshal([]byte(stdout), &all))
	found := false
	for _, x := range all {
		found = found || x.ID == run.ID && x.Status != events.ExecutionRunning
	}
	is.True(found)
	for _, wrong := range [][]string{{"sandbox", "kill"}, {"sandbox", "logs", "a b"}, {"sandbox", "ps", "--limit", "0"},
		{"sandbox", "shell"}, {"sandbox", "--limit", "5", "ps"}} {
		_, _, code = p.cli(t, "", wrong...)
		is.Equal(code, 2) // wrong usage
	}
	stdout, _, code = p.cli(t, "", "sandbox", "workers", "--json")
	is.Equal(code, 0)
	var workers []wire.WorkerInfo
	is.NoErr(json.Unmarshal([]byte(stdout), &workers))
	is.Equal(len(workers), 1)
	is.True(workers[0].Isolation != "" && workers[0].Name != "" && workers[0].Capacity > 0)
	_, stderr, code = p.cli(t, "", "sandbox", "logs", "nothing")
	is.Equal(code, 1)
	expect.Contains(t, stderr, "there is no execution nothing")
	_, stderr, code = p.cli(t, "", "sandbox", "shell", "nothing")
	is.Equal(code, 1)
	expect.Contains(t, stderr, "it needs a terminal")
}
