package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"

	"pocketcoder/cmd/console"
	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/events/log/direct"
	"pocketcoder/ops/expect"
)

func TestExitStatusOfAScriptedConversation(t *testing.T) {
	t.Parallel()
	p := sharedSystem(t)
	for name, c := range map[string]struct {
		script, stdin string
		code          int
		output        []string // on stdout
	}{
		"a person allows":        {bash("echo al''lowed; exit 4"), "y\n", console.Completed, []string{"? bash  echo", "allowed\n", "exit 4", "done"}},
		"the provider refuses":   {"@@status 400 no credit", "", console.Failed, nil},
		"the answer is cut":      {"@@say half of it\n@@finish length", "", console.Incomplete, []string{"half of it"}},
		"a pipe stops the turn":  {longText, "/abort\n", console.Aborted, nil},
		"a question is answered": {twoQuestions, "2\n1, 2\n", console.Completed, []string{"Which colour?", "Which letters?", "thanks"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			stdout, stderr, code := p.cli(t, c.stdin, "chat", "-m", c.script, "--approve", "ask", "--title", name)
			t.Log(stdout, stderr)
			is.Equal(code, c.code)
			for _, words := range c.output {
				expect.Contains(t, stdout, words) // words
			}
			ran := strings.Contains(stdout, "allowed\n")
			is.Equal(ran, strings.Contains(strings.Join(c.output, ""), "allowed\n"))
			if c.code == console.Incomplete {
				expect.Contains(t, stderr, "The answer was cut: the model reached its limit of output.")
			}
			if c.code == console.Failed {
				expect.Contains(t, stderr, "no credit")
			}
		})
	}
}

func TestReplayShowsTheWholeTurnFromTheLog(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	stdout, _, code := p.cli(t, "", "chat", "-m", bash("echo re''played"), "--approve", "all", "--title", t.Name())
	is.Equal(code, console.Completed)
	chat, _, _ := strings.Cut(strings.TrimPrefix(stdout, "chat "), ":") // its title follows
	stdout, stderr, code := p.cli(t, "", "replay", chat, "--json")
	is.Equal([]any{code, stderr}, []any{0, ""})
	bodies := map[string]string{}
	var request uint64
	for line := range strings.Lines(stdout) {
		var e struct {
			Sequence uint64
			Type     string
			Subject  string
			Data     json.RawMessage
		}
		is.NoErr(json.Unmarshal([]byte(line), &e))
		is.Equal(e.Subject, events.ChatSubject(chat, e.Type))
		bodies[e.Type] += string(e.Data)
		if e.Type == "opencode."+events.PermissionAsked {
			request = e.Sequence
		}
	}
	for kind, words := range map[string]string{
		"message.submitted": "re''played", "message.delivered": "", "opencode.message.updated": "assistant", "opencode.message.part.updated": "done",
		"opencode.permission.asked": "re''played", "permission.decided": "authorized", "opencode.permission.replied": "once",
		"exec.requested": "re''played", "exec.finished": `"text":"replayed\n"`, "opencode.session.idle": "",
	} {
		is.True(bodies[kind] != "")             // kind
		expect.Contains(t, bodies[kind], words) // words
	}

	stdout, _, code = p.cli(t, "", "replay", chat)
	is.Equal(code, 0)
	is.True(strings.Contains(stdout, "replayed\n") && strings.Contains(stdout, "done"))
	at, _, code := p.cli(t, "", "replay", chat, "--at", strconv.FormatUint(request, 10), "--json")
	is.Equal(code, 0)
	var then struct{ Permissions []events.PermissionRequest }
	is.NoErr(json.Unmarshal([]byte(at), &then))
	is.Equal(len(then.Permissions), 1) // it waited then
	expect.Lacks(t, at, "exec.requested")
}

func TestNATSContextIsReadOnly(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	config := t.TempDir()
	getenv := func(name string) string { return map[string]string{"XDG_CONFIG_HOME": config}[name] }
	_, stderr, code := runCommand(t, getenv, "", "nats-context", "--data", string(p.data))
	is.Equal([]any{code, stderr}, []any{0, ""})
	var c struct {
		URL, NKey   string
		InboxPrefix string `json:"inbox_prefix"`
		APIPrefix   string `json:"jetstream_api_prefix"`
	}
	is.NoErr(json.Unmarshal([]byte(read(t, filepath.Join(config, "nats", "context", "pocketcoder.json"))), &c))
	key, err := nats.NkeyOptionFromSeed(c.NKey)
	is.NoErr(err)
	refusals := make(chan error, 8)
	nc, err := nats.Connect(c.URL, key, nats.CustomInboxPrefix(c.InboxPrefix),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refusals <- err }))
	is.NoErr(err)
	defer nc.Close()
	live, err := nc.SubscribeSync("evt.>")
	is.NoErr(err)
	is.NoErr(nc.Flush())

	chat := p.create(t, "seen")
	for seen := false; !seen; {
		m, err := live.NextMsg(eventTimeout)
		is.NoErr(err) // what happens is seen as it happens
		seen = m.Subject == events.ChatSubject(chat, events.ChatCreated{}.Kind())
	}
	stored := 0
	_, err = direct.Reader{Conn: nc, Prefix: c.APIPrefix}.Read(t.Context(), log.EventsStream, events.ChatFilter(chat), 0,
		func(*nats.Msg, uint64) error { stored++; return nil })
	is.NoErr(err)
	is.Equal(stored, 1) // and what is stored is read

	for _, subject := range []string{events.ChatSubject(chat, "permission.decided"), "exec.shell", "engine.local.x",
		"exec.run.default", "$JS.API.STREAM.DELETE.EVENTS", c.APIPrefix + ".STREAM.DELETE.EVENTS"} {
		is.NoErr(nc.Publish(subject, []byte("{}")))
		is.NoErr(nc.Flush())
		if strings.HasPrefix(subject, c.APIPrefix) {
			continue // the account may send it, but nothing answers
		}
		select {
		case err := <-refusals:
			expect.Contains(t, err.Error(), "Permissions Violation") // subject
		case <-time.After(time.Minute):
			t.Errorf("publishing to %s is not refused", subject)
		}
	}
	for _, e := range p.history(t, chat) {
		is.True(e.Subject.Kind != "permission.decided") // nothing of it was stored
	}
}

func TestCommandLineReportsInvalidMessages(t *testing.T) {
	t.Parallel()
	p := startAPI(t)
	large := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(large, []byte(strings.Repeat("x", 1<<20+1)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args        []string
		stdin, want string
		code        int
	}{
		"unknown chat":          {[]string{"chat", "nosuch", "-m", "hi"}, "", "there is no chat nosuch", 1},
		"unknown chat replayed": {[]string{"replay", "nosuch"}, "", "there is no chat nosuch", 1},
		"malformed id":          {[]string{"chat", "no.such", "-m", "hi"}, "", `parse id "no.such"`, 2},
		"malformed id replayed": {[]string{"replay", "*"}, "", `parse id "*"`, 2},
		"empty message":         {[]string{"chat", "-m", " \n"}, "", "the message is empty", 2},
		"message over 1 MiB":    {[]string{"chat"}, read(t, large), "limit is 1048576", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			stdout, stderr, code := p.cli(t, c.stdin, c.args...)
			expect.Contains(t, stdout+stderr, c.want) // c.says
			is.Equal(code, c.code)
		})
	}
}
