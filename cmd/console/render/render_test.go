package render

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"
	"pgregory.net/rapid"

	"pocketcoder/cmd/cmdtest"
	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers/permission"
	"pocketcoder/ops/expect"
)

var update = flag.Bool("update", false, "accept what the tests print as golden")

// rendered shows events as a replay does.
func rendered(all []events.Event) string {
	var out bytes.Buffer
	r := New(&Screen{Out: &out})
	for _, e := range all {
		r.Event(e)
		for _, a := range r.Due() {
			r.ShowRequest(a)
		}
	}
	r.EndLine()
	return out.String()
}

func TestGoldenTraces(t *testing.T) {
	for _, name := range []string{"perm-bash-once", "perm-bash-reject-message", "child-shell", "perm-edit", "question",
		"abort-text", "error-401", "reasoning"} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			all, _ := cmdtest.Trace(t, name)
			got, file := rendered(all), filepath.Join("testdata", "golden", name+".txt")
			if *update {
				is.NoErr(os.MkdirAll(filepath.Dir(file), 0o755))
				is.NoErr(os.WriteFile(file, []byte(got), 0o644))
			}
			want, err := os.ReadFile(file)
			is.NoErr(err)
			is.Equal(got, string(want))
		})
	}
}

func TestARetrySaysWhenAndHowToStop(t *testing.T) {
	is := is.New(t)
	e, err := events.NewOpenCode("chat1", "local", "evt_1", -1, events.OpenCode{Type: "session.status",
		Properties: json.RawMessage(`{"sessionID":"ses_1","status":{"type":"retry","attempt":2,"message":"too many","next":1795217500000}}`)})
	is.NoErr(err)
	at := time.UnixMilli(1795217500000).Format("2006-01-02 15:04:05")
	var out bytes.Buffer
	r := New(&Screen{Out: &out})
	r.Live = true
	r.Event(cmdtest.Numbered(e, 1))
	expect.Contains(t, out.String(), "the model provider failed, attempt 2: too many; next try at "+at+
		" (Ctrl-C or /stop ends the turn)")
	replayed := rendered([]events.Event{cmdtest.Numbered(e, 1)})
	expect.Contains(t, replayed, "next try at "+at)
	expect.Lacks(t, replayed, "stops waiting")
	expect.Lacks(t, out.String(), "/omit")
	e.Data = json.RawMessage(strings.Replace(string(e.Data), `"attempt":2`, `"attempt":3`, 1))
	r.Event(cmdtest.Numbered(e, 2))
	expect.Contains(t, out.String(), "if a file is the cause, stop the turn; /omit then leaves it out")
}

func TestLengthOfALongCommandIsShownBelowIt(t *testing.T) {
	is := is.New(t)
	shown := func(lines int) string {
		about, err := json.Marshal(map[string]string{"command": "rm -rf important\n" + strings.Repeat("true\n", lines-2) +
			"ls"})
		is.NoErr(err)
		body, err := json.Marshal(events.PermissionRequest{ID: "per_1", SessionID: "ses_1", Permission: "bash",
			Metadata: about})
		is.NoErr(err)
		request, err := events.NewOpenCode("chat1", "local", "evt_1", -1,
			events.OpenCode{Type: events.PermissionAsked, Properties: body})
		is.NoErr(err)
		return rendered([]events.Event{
			cmdtest.Own(t, 1, "user:u", events.ChatCreated{}),
			cmdtest.Own(t, 2, "engine:local", events.SessionBound{Session: "ses_1", Directory: "/workspace"}),
			cmdtest.Numbered(request, 3),
			cmdtest.Own(t, 4, events.ActorPolicy, events.PermissionReferred{Permission: "per_1", Reason: "no rule allows it"}),
		})
	}
	_, below, _ := strings.Cut(shown(60), "    ls\n")
	expect.Contains(t, below, "60 lines, read all of them")
	expect.Lacks(t, shown(12), "read all of them")
}

// Blanks in a command, a diff or a name push what stands before them off the screen, and what follows begins a row.
func TestRowOfARequestCannotLookLikeAnotherRequest(t *testing.T) {
	t.Parallel()
	blanks := strings.Repeat(" ", 1970)
	for name, metadata := range map[string]map[string]string{
		"a command":                  {"command": "make;touch OWNED #" + blanks + "? bash  make"},
		"empty lines":                {"command": "make;touch OWNED" + strings.Repeat("\n", 400) + "? bash  make"},
		"many short runs of blanks":  {"command": "make;touch OWNED #" + strings.Repeat(strings.Repeat(" ", 40)+".", 40) + "? bash  make"},
		"a diff":                     {"filepath": "a", "diff": "@@ -0,0 +1 @@\n+rm -rf ~ #" + blanks + "? edit  notes.md (+1 −0)"},
		"a name":                     {"command": "rm -rf /", "x" + strings.Repeat("\n", 30) + "? read  README.md": "harmless"},
		"a command of several lines": {"command": "make\n" + strings.Repeat("x", 500) + "? bash  make"},
		"one letter of many":         {"command": "make; touch OWNED #" + strings.Repeat("\u1100", 904) + "? bash  make"},
		"emoji of many":              {"command": "make; touch OWNED #" + strings.Repeat("👩\u200d", 450) + "? bash  make"},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			about, err := json.Marshal(metadata)
			is.NoErr(err)
			var b strings.Builder
			r := New(&Screen{Out: &b, Columns: func() int { return 80 }})
			r.ShowRequest(r.AddRequest(events.PermissionRequest{ID: "per_1", SessionID: "ses_1", Permission: "bash",
				Patterns: []string{"x"}, Metadata: about}, 1))
			for i, row := range strings.Split(b.String(), "\n") {
				columns := 0
				for _, c := range row {
					if columns++; c >= 0x1100 {
						columns++ // as terminals draw it that join no characters
					}
				}
				if columns > 80 || i > 0 && (strings.HasPrefix(row, "?") || strings.Trim(row, " ") == "" && row != "") {
					t.Errorf("row %d misleads: %q", i, row)
				}
			}
			is.True(strings.Count(b.String(), "\n") < 100)
		})
	}
}

func TestLifecycleOfACommandIsShown(t *testing.T) {
	is := is.New(t)
	made := events.PermissionRequest{ID: "per_1", SessionID: "ses_1", Permission: "bash", Patterns: []string{"make"},
		Metadata: json.RawMessage(`{"command":"make\u001b[2K\rtest"}`), Tool: events.Call{CallID: "c1"}}
	body, err := json.Marshal(made)
	is.NoErr(err)
	request, err := events.NewOpenCode("chat1", "local", "evt_1", -1,
		events.OpenCode{Type: events.PermissionAsked, Properties: body})
	is.NoErr(err)
	got := rendered([]events.Event{
		cmdtest.Own(t, 1, "user:u", events.ChatCreated{Title: "a\x1b]0;b"}),
		cmdtest.Own(t, 2, "user:u", events.MessageSubmitted{Message: "m1",
			Parts: []events.Part{{Type: "text", Text: "do\nit"}, {Type: "file", Filename: "a.png", Mime: "image/png"}}}),
		cmdtest.Own(t, 3, "engine:local", events.SessionBound{Session: "ses_1", Directory: "/workspace"}),
		cmdtest.Numbered(request, 4),
		cmdtest.Own(t, 5, events.ActorPolicy, events.PermissionReferred{Permission: "per_1",
			Reason: "no rule says what “make” may do", Cwd: "/workspace/sub"}),
		cmdtest.Own(t, 5, "user:u", events.PermissionDecided{Permission: "per_1", Decision: events.Authorized, Type: "bash",
			Session: "ses_1", Command: "make\x1b[2K\rtest", Edited: "make\ntrue"}),
		cmdtest.Own(t, 6, "engine:local", events.ExecRequested{Exec: "x1", Session: "ses_1", Call: "c1",
			Command: "make\ntrue", Original: "make\x1b[2K\rtest"}),
		cmdtest.Own(t, 7, "sandbox", events.ExecFinished{Exec: "x1", ExitCode: 2, DurationMS: 1500,
			Stdout: events.Output{Bytes: 3, Text: "ok\n"},
			Stderr: events.Output{Bytes: 3 << 20, Blob: &events.Blob{Name: "x1.stderr", Size: 3 << 20}}}),
		cmdtest.Own(t, 8, "engine:local", events.ExecRefused{Session: "ses_1", Command: "rm",
			Reason: "nothing authorized it"}),
		cmdtest.Own(t, 9, "engine:local", events.TurnLost{Session: "ses_1"}),
	})
	is.Equal(got, strings.TrimLeft(`
chat chat1: a␛]0;b
› do
› it
› [file a.png, image/png]
? bash  make␛[2K␍test
  why: no rule says what “make” may do · in /workspace/sub · xqpiir1bys6xmxm
✓ bash make␛[2K test: authorized by u, edited · xqpiir1bys6xmxm
    -make␛[2K␍test
    +make
    +true
$ make
true
  (a person has changed it; the model gave: make␛[2K␍test)
  │ ok
  … stderr is 3.0 MiB in all (pocketcoder sandbox logs x1)
  └ exit 2, 1.5s
✗ refused to run: rm
  nothing authorized it
The turn was lost: OpenCode or the answer of the model ended in the middle of it.
`, "\n"))
}

func TestExecutionEventsAreShown(t *testing.T) {
	is := is.New(t)
	var many []events.Artifact
	for i := range 12 {
		many = append(many, events.Artifact{Path: "f" + string(rune('a'+i)), Size: int64(i)})
	}
	got := rendered([]events.Event{
		cmdtest.Own(t, 1, "engine:local", events.ExecRequested{Exec: "x1", Session: "ses_1", Call: "c1",
			Command: "npm run dev", Detached: true}),
		cmdtest.Own(t, 2, "sandbox", events.ExecStarted{Exec: "x1", Worker: "w1", Isolation: "bwrap"}),
		cmdtest.Own(t, 3, "policy", events.ExecConnected{Exec: "x1", Host: "evil\x1b.example", Port: 443, Reason: "no rule"}),
		cmdtest.Own(t, 4, "policy", events.ExecConnected{Exec: "x1", Host: "example.org", Port: 443, Allowed: true,
			Reason: "a rule"}),
		cmdtest.Own(t, 5, "user:u", events.ExecSignalled{Exec: "x1", Signal: "SIGHUP"}),
		cmdtest.Own(t, 6, "sandbox", events.ExecFinished{Exec: "x1", ExitCode: 137, Signal: "SIGKILL", Reason: "memory",
			DurationMS: 1500}),
		cmdtest.Own(t, 7, "sandbox", events.ExecChanged{Exec: "x1",
			Files: []events.Artifact{{Path: "a\x1b[31m\nb", Size: 2048}}}),
		cmdtest.Own(t, 8, "sandbox", events.ExecChanged{Exec: "x1", Files: many, More: 3}),
		cmdtest.Own(t, 9, "user:u", events.ExecRequested{Exec: "x2", Terminal: true}),
		cmdtest.Own(t, 10, "sandbox", events.ExecFinished{Exec: "x2", Stdout: events.Output{Bytes: 3, Text: "$ \x07"},
			Left: &events.LeftProcesses{Processes: 1, Programs: []string{"a\x1bb"}, Running: true}}),
		cmdtest.Own(t, 11, "user:u", events.ExecRequested{Exec: "x3", Terminal: true, Private: true}),
		cmdtest.Own(t, 12, "sandbox", events.ExecFinished{Exec: "x3", Reason: "cancelled"}),
		cmdtest.Own(t, 13, "engine:local", events.ExecRequested{Exec: "x4", Session: "ses_1", Call: "c4", Command: "yes"}),
		cmdtest.Own(t, 14, "sandbox", events.ExecStarted{Exec: "x4", Worker: "w1", Isolation: "bwrap"}),
		cmdtest.Own(t, 15, "sandbox", events.ExecFinished{Exec: "x4", ExitCode: 143, Signal: "SIGTERM",
			Reason: "output-size"}),
	})
	is.Equal(got, strings.TrimLeft(`
$ npm run dev  (in the background)
  · runs by itself as x1 (isolation bwrap)
  · was kept from evil␛.example:443: no rule
  · was let to example.org:443: a rule
  · u sent HUP
  └ stopped: more than it may have of memory, KILL, 1.5s
  · changed while x1 ran: a␛[31m b (2.0 KiB)
  · changed while x1 ran: fa (0 bytes), fb (1 bytes), fc (2 bytes), fd (3 bytes), fe (4 bytes), ff (5 bytes), fg (6 bytes), fh (7 bytes), fi (8 bytes), fj (9 bytes) and 5 more
$ (a person's own shell)
  │ $ ␇
  · The command left 1 process, which still runs: a␛b. Start a server without `+
		"`&`, in a command of its own that begins with `detach `."+`
  └ exit 0, 0s
$ (a person's own shell, private)
  └ cancelled, 0s
$ yes
  └ stopped: more output than allowed, TERM, 0s
`, "\n"))
}

func TestAFileOfTheAssistantIsShown(t *testing.T) {
	file := events.FileSent{Session: "ses_1", Path: "out/a\x1b.pdf", Caption: "The\nplan",
		Content: events.Blob{Size: 2048}}
	plain := file
	plain.Caption = ""
	got := rendered([]events.Event{cmdtest.Own(t, 1, "engine:local", file), cmdtest.Own(t, 2, "engine:local", plain)})
	is.New(t).Equal(got, "[file out/a␛.pdf, 2.0 KiB] The\nplan\n[file out/a␛.pdf, 2.0 KiB]\n")
}

func TestDecisionByARuleIsOneLine(t *testing.T) {
	is := is.New(t)
	all, _ := cmdtest.Trace(t, "perm-bash-once")
	at := slices.IndexFunc(all, func(e events.Event) bool { return e.Subject.Kind == "opencode.permission.asked" })
	var request events.PermissionRequest
	is.NoErr(json.Unmarshal(all[at].Data, &request))
	decided := cmdtest.Own(t, at+1, events.ActorPolicy, events.PermissionDecided{Permission: request.ID,
		Decision: events.Authorized, RuleRef: events.RuleRef{Rule: "bash: echo *"}})
	got := rendered(slices.Insert(all, at+1, decided))
	expect.Contains(t, got, "✓ bash echo permitted: authorized by policy, rule \"bash: echo *\" · "+recordOf(request.ID)+"\n")
	expect.Lacks(t, got, "? bash")
}

func TestCommandOutputIsShownOnceAndWhole(t *testing.T) {
	text := "one\ntwo ünd three\nfour"
	chunk := func(from, to int) log.Delta {
		return log.Delta{Subject: "delta.exec.chat1.x1", Type: log.ExecOutput, Stream: "stdout", Offset: int64(from),
			Data: []byte(text[from:to])}
	}
	expect.Property(t, func(t *rapid.T) {
		var out bytes.Buffer
		r := New(&Screen{Out: &out})
		requested, _ := events.New("chat1", "engine:local", events.ExecRequested{Exec: "x1", Command: "c"})
		finished, _ := events.New("chat1", "sandbox", events.ExecFinished{Exec: "x1",
			Stdout: events.Output{Bytes: int64(len(text)), Text: text}})
		begin, end := rapid.IntRange(0, 5).Draw(t, "begin"), rapid.IntRange(5, 12).Draw(t, "end")
		from := 0
		for i := range 12 {
			if i == begin {
				r.Event(requested)
			}
			if i == end {
				r.Event(finished)
			}
			to := rapid.IntRange(from, len(text)).Draw(t, "to")
			if rapid.Bool().Draw(t, "missed") {
				from = to
				continue
			}
			r.Fragment(chunk(from, to))
			from = to
		}
		if end == 12 {
			r.Event(finished)
		}
		if want := "$ c\n  │ one\n  │ two ünd three\n  │ four\n  └ exit 0, 0s\n"; out.String() != want {
			t.Fatalf("got\n%s\nwant\n%s", out.String(), want)
		}
	})
}

func TestBrokenOutputIsReported(t *testing.T) {
	is := is.New(t)
	s := &Screen{Out: brokenPipe{}}
	s.Line("", Plain, "x")
	is.True(errors.Is(s.Err, os.ErrClosed))
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, os.ErrClosed }

func TestReplayShowsOutputBeforeASignal(t *testing.T) {
	is := is.New(t)
	got := rendered([]events.Event{
		cmdtest.Own(t, 1, "engine:local", events.ExecRequested{Exec: "x1", Command: "sleep 100"}),
		cmdtest.Own(t, 2, "user:u", events.ExecSignalled{Exec: "x1", Signal: "SIGTERM"}),
		cmdtest.Own(t, 3, "sandbox", events.ExecFinished{Exec: "x1", Signal: "SIGTERM", Reason: "cancelled",
			Stdout: events.Output{Bytes: 6, Text: "begun\n"}}),
	})
	is.Equal(got, "$ sleep 100\n  │ begun\n  · u sent TERM\n  └ cancelled, TERM, 0s\n")
}

func TestTodosAreShownAsAList(t *testing.T) {
	is := is.New(t)
	part := `{"sessionID":"s","part":{"id":"p","sessionID":"s","type":"tool","tool":"todowrite","callID":"c","state":{"status":"completed","output":"[…]",` +
		`"input":{"todos":[{"content":"read","status":"completed"},{"content":"write\u001b[2J","status":"in_progress"},{"content":"test","status":"pending"}]}}}}`
	e, err := events.NewOpenCode("chat1", "local", "evt_1", -1,
		events.OpenCode{Type: "message.part.updated", Properties: json.RawMessage(part)})
	is.NoErr(err)
	is.Equal(rendered([]events.Event{cmdtest.Numbered(e, 1)}), "● todo\n  ☑ read\n  ▶ write␛[2J\n  ☐ test\n")
}

func TestActorIsShownAsAnEmail(t *testing.T) {
	is := is.New(t)
	var out bytes.Buffer
	r := New(&Screen{Out: &out})
	r.Email = func(user string) string { return map[string]string{"u1": "a\x1b@example.org"}[user] }
	for _, actor := range []string{"user:u1", "user:operator", "policy"} {
		r.Event(cmdtest.Own(t, 1, actor, events.AbortRequested{}))
	}
	is.Equal(out.String(), "a␛@example.org asked to stop\noperator asked to stop\npolicy asked to stop\n")
}

func TestWhyReportsAnApprovedCommandThatWasNotStarted(t *testing.T) {
	shown := func(w permission.Why) string {
		var out bytes.Buffer
		New(&Screen{Out: &out}).Why(w)
		return out.String()
	}
	w := permission.Why{Request: permission.WhyAsk{Type: "bash", Command: "make"},
		Decision: &permission.WhyDecision{Decision: "authorized"}}
	expect.Contains(t, shown(w), "no command has been started on it")
	w.Executions = []permission.WhyExecution{{Command: "make", Status: "finished"}}
	expect.Lacks(t, shown(w), "no command has been started")
}

func TestWhyReportsTheSenderOfASignal(t *testing.T) {
	var out bytes.Buffer
	r := New(&Screen{Out: &out})
	r.Email = func(string) string { return "a@example.org" }
	r.whyExecution(permission.WhyExecution{Command: "sleep 100", Status: "cancelled", ExitCode: 143, Cwd: "/w",
		Signals: []permission.WhySignal{{Signal: "SIGTERM", Actor: "user:u1"}}})
	expect.Contains(t, out.String(), "a@example.org sent TERM")
}
