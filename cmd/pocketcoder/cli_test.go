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

	"pocketcoder/cmd/console/turn"
	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/expect"
	"pocketcoder/projections"
)

func TestExitStatusOfAScriptedConversation(t *testing.T) {
	t.Parallel()
	p := sharedSystem(t)
	for name, c := range map[string]struct {
		script, stdin, approve string
		code                   int
		output                 []string // on stdout
	}{
		"everything is allowed":  {bash("echo al''lowed"), "", "all", turn.Completed, []string{"allowed\n", "done"}},
		"everything is denied":   {bash("echo al''lowed"), "", "none", turn.Completed, []string{"denied", "done"}},
		"a person allows":        {bash("echo al''lowed; exit 4"), "y\n", "ask", turn.Completed, []string{"? bash  echo", "allowed\n", "exit 4", "done"}},
		"a person denies":        {bash("echo al''lowed"), "n\n", "ask", turn.Denied, []string{"denied"}},
		"a person says why not":  {bash("echo al''lowed"), "n not today\n", "ask", turn.Completed, []string{"not today", "done"}},
		"no answer":              {bash("echo al''lowed"), "", "ask", turn.Pending, []string{"? bash  echo"}},
		"the provider refuses":   {"@@status 400 no credit", "", "ask", turn.Failed, nil},
		"the answer is cut":      {"@@say half of it\n@@finish length", "", "ask", turn.Incomplete, []string{"half of it"}},
		"there is no answer":     {call("glob", map[string]any{"pattern": "*.x"}) + "\n@@next\n@@usage in=9", "", "ask", turn.Incomplete, nil},
		"the provider recovers":  {"@@header Retry-After: 1\n@@failfirst 1 500 flaky\n@@say recovered", "", "ask", turn.Completed, []string{"attempt 1: ", "flaky", "; next try at ", "recovered"}},
		"a pipe stops the turn":  {"@@text n=2000 delay=50", "/abort\n", "ask", turn.Aborted, nil},
		"a pipe stops a request": {bash("echo al''lowed"), "/abort\n", "ask", turn.Aborted, nil},
		"a question is answered": {twoQuestions, "2\n1, 2\n", "ask", turn.Completed, []string{"Which colour?", "Which letters?", "thanks"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			stdout, stderr, code := runProgram(t, nil, c.stdin, "chat", "-m", c.script, "--approve", c.approve, "--title", name,
				"--data", string(p.data))
			t.Log(stdout, stderr)
			is.Equal(code, c.code)
			for _, words := range c.output {
				expect.Contains(t, stdout, words) // words
			}
			ran := strings.Contains(stdout, "allowed\n")
			is.Equal(ran, strings.Contains(strings.Join(c.output, ""), "allowed\n"))
			if c.code == turn.Incomplete {
				expect.Contains(t, stderr, map[string]string{
					"the answer is cut":  "The answer was cut: the model reached its limit of output.",
					"there is no answer": "The model ended its turn without an answer.",
				}[name])
			}
			if c.code == turn.Failed {
				expect.Contains(t, stderr, "no credit")
			}
		})
	}
}

func TestPendingRequestIsAnsweredLater(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	chat := p.chat(t, bash("echo la''ter"))
	p.awaitRequest(t, chat, 0)
	stdout, _, code := p.cli(t, "y\n", "chat", chat)
	is.Equal(code, turn.Completed)
	expect.Contains(t, stdout, "later\n")
	expect.Contains(t, stdout, "done")
}

func TestReplayShowsTheWholeTurnFromTheLog(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	chat := p.chat(t, bash("echo re''played"))
	p.approve(t, chat, 0)
	p.turnEnds(t, chat)
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
	var then struct{ Permissions []events.PermissionAsk }
	is.NoErr(json.Unmarshal([]byte(at), &then))
	is.Equal(len(then.Permissions), 1) // it waited then
	expect.Lacks(t, at, "exec.requested")
}

func TestChatsAreListed(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	chat := p.chat(t, "@@say listed")
	p.turnEnds(t, chat)
	stdout, _, code := p.cli(t, "", "chats", "--json", "--limit", "100")
	is.Equal(code, 0)
	var list []projections.Chat
	is.NoErr(json.Unmarshal([]byte(stdout), &list))
	for _, c := range list {
		if c.ID == chat {
			is.Equal([]string{c.Preview, c.Turn, c.Title}, []string{"listed", projections.TurnUser, t.Name()})
			return
		}
	}
	t.Fatalf("chat %s is not in the list", chat)
}

func TestNATSContextIsReadOnly(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	config := t.TempDir()
	_, stderr, code := runProgram(t, []string{"XDG_CONFIG_HOME=" + config}, "", "nats-context", "--data", string(p.data))
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

	chat := p.chat(t, "@@say seen")
	p.turnEnds(t, chat)
	for seen := false; !seen; {
		m, err := live.NextMsg(eventTimeout)
		is.NoErr(err) // what happens is seen as it happens
		seen = m.Subject == events.ChatSubject(chat, "message.submitted")
	}
	log, err := log.Attach(nc, c.APIPrefix)
	is.NoErr(err)
	stored := 0
	_, err = log.Fold(t.Context(), events.ChatFilter(chat), 0, func(events.Event) error { stored++; return nil })
	is.NoErr(err)
	is.True(stored > 10) // and what is stored is read

	for _, subject := range []string{events.ChatSubject(chat, "permission.decided"), "cmd.turn.abort", "query.chats",
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

func TestVersionAndDoctorAnswerForScripts(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	stdout, _, code := runProgram(t, nil, "", "version", "--json")
	is.Equal(code, 0)
	var v struct {
		OpenCode   string
		NATSServer string `json:"nats_server"`
	}
	is.NoErr(json.Unmarshal([]byte(stdout), &v))
	is.True(v.OpenCode != "" && v.NATSServer != "")
	stdout, _, _ = p.cli(t, "", "doctor", "--json", "--opencode", p.args[len(p.args)-1])
	var checks []struct{ Name, State string }
	is.NoErr(json.Unmarshal([]byte(stdout), &checks))
	found := map[string]string{}
	for _, c := range checks {
		found[c.Name] = c.State
	}
	for _, name := range []string{"opencode", "nats", "data", "http", "events", "consumers"} {
		is.Equal(found[name], "ok")
	}
}

func TestCommandLineReportsInvalidMessages(t *testing.T) {
	t.Parallel()
	p := sharedSystem(t)
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
		"message over 1 MiB":    {[]string{"chat"}, read(t, large), "the limit is 1048576", 2},
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
