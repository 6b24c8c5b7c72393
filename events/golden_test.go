package events

import (
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"

	"pocketcoder/ops/expect"
)

// The stored form is a promise: what these files hold stays readable for ever.
var update = flag.Bool("update", false, "accept the stored form as it is now")

func golden(t *testing.T, name, got string) {
	t.Helper()
	is := is.New(t)
	file := filepath.Join("testdata", name)
	if *update {
		is.NoErr(os.MkdirAll(filepath.Dir(file), 0o755))
		is.NoErr(os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	is.NoErr(err)
	is.Equal(got, string(want)) // accept with -update
}

// filled is one value of each kind with every field set.
var filled = []Data{
	ChatCreated{Title: "Fix <the> \"build\" & more", User: "u1", Engine: "local", Agent: "build", Adopted: true,
		Description: "what it is about", Archived: true, Tags: "a,b",
		Ceiling: &Ceiling{Chat: "c3", Root: "c0", Agent: "agent1", Subagent: "explore"},
		Parent: &Parent{Chat: "c1", Root: "c0", Depth: 2, Session: "ses_1", Call: "call_1", Agent: "agent1",
			Subagent: "explore", Wait: true, Directory: "/w/.worktrees/w1", Worktree: "/w/.worktrees/w1",
			Branch: "pocketcoder/w1"}},
	SessionBound{Session: "ses_1", Directory: "/work space"},
	MessageSubmitted{
		Message: "m1", Resumes: "per_1", Delivery: DeliverySteer, Sender: "c1",
		Results: []string{"m2"}, Silent: []string{"m3"}, Schedule: "s1", Origin: &Origin{Channel: "ch1", Name: "phone", Sender: "Ada",
			Message: "<1@example.org>"},
		Parts: []Part{{Type: "text", Text: "ä\n€", Mime: "text/plain", URL: "file:///a", Filename: "a"}},
	},
	MessageEdited{Message: "m1", Parts: []Part{{Type: "text", Text: "ö", Mime: "text/plain", URL: "data:,a",
		Filename: "a"}}},
	MessageMoved{Message: "m1", Before: "m2"},
	MessageSteered{Message: "m1"},
	MessageWithdrawn{Message: "m1"},
	MessageSending{Message: "m1", Session: "ses_1", EngineMessage: "msg_1", EngineParts: []string{"prt_1", "prt_2"},
		Agent: "agent1", AgentName: "Reviewer"},
	MessageDelivered{Message: "m1", EngineMessage: "msg_1"},
	MessageFailed{Message: "m1", Domain: "infrastructure", Error: "OpenCode does not answer"},
	MessageHeld{Message: "m1", Permission: "p1", Reason: "the budget is used up"},
	ModelReplaced{Message: "m1", Selected: "p/gone", Used: "p/new",
		Reason: "The selected model p/gone is not available any more."},
	SessionReplaced{Message: "m1", Before: "ses_1", Session: "ses_2", Reason: "OpenCode has lost the session."},
	PermissionReferred{
		Permission: "per_1", Reason: "no rule matches", Cwd: "/w", RuleRef: RuleRef{"bash: rm*", "tool_permissions/r1", 7}, Hosts: []string{"example.org:443"}, Network: "It has no network.",
		Files:    []FileFingerprint{{Path: "/w/a", Target: "/w/b", Size: 3, SHA256: "ab", ModifiedNS: 7, Absent: true}},
		Contents: []FileContent{{Path: "/w/a", Text: "echo <a>\n"}},
	},
	PermissionDecided{
		Permission: "per_2", Decision: Authorized, Reason: "fine", RuleRef: RuleRef{"bash: ls", "tool_permissions/r1", 7}, ApprovalOf: "per_1", Cwd: "/w", Edited: "ls -1", Expires: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Client:  Client{Address: "192.0.2.1", Device: "Phone/1"},
		Session: "ses_1", Call: "call_1", Type: "bash", Command: "ls && echo '<>'", Request: "00ff", Hosts: []string{"example.org:443"},
		Files: []FileFingerprint{{Path: "/w/a", Target: "/w/b", Size: 3, SHA256: "ab", ModifiedNS: 7, Absent: true}},
	},
	PermissionInterrupted{Permission: "per_1"},
	PermissionExpired{Permission: "per_1", Reason: "asked again as per_2"},
	PermissionApplied{Permission: "p2", Error: "a file has the name now"},
	QuestionRequested{Question: "que_1", Session: "ses_1", MessageID: "msg_1", Call: "call_1", Questions: []Question{
		{Question: "Which <colour>?", Header: "Colour", Options: []Option{{Label: "Red", Description: "warm"}},
			Multiple: true, Custom: ptr(true)}}},
	QuestionAnswered{Question: "que_1", Index: 2, Answers: []string{"yes", "free text"}, Rejected: true},
	QuestionInterrupted{Question: "que_1"},
	QuestionExpired{Question: "que_1", Reason: "its turn is over"},
	ExecRequested{Original: "ls -l", Exec: "x1", Permission: "per_1", Session: "ses_1", Call: "call_1", Command: "ls",
		Cwd: "/w", Pool: "local", Detached: true, Terminal: true, Private: true},
	ExecStarted{Exec: "x1", Worker: "w1", Isolation: "bwrap"},
	ExecSignalled{Exec: "x1", Signal: "SIGTERM"},
	ExecConnected{Exec: "x1", Host: "example.org", Port: 443, Allowed: true, Permission: "per_3",
		Reason: "a person allowed it"},
	ExecChanged{Exec: "x1", Files: []Artifact{{Path: "dist/ä.js", Size: 3, SHA256: "ab",
		Blob: &Blob{Name: "sha256-ab", Size: 3, SHA256: "ab"}}}, More: 2},
	ExecRefused{Exec: "x2", Session: "ses_1", Call: "call_2", Command: "rm", Cwd: "/w", Reason: "nothing allowed it"},
	ExecFinished{
		Exec: "x1", Status: "cancelled", ExitCode: 137, Signal: "SIGKILL", Reason: "cancelled", Error: "gone", DurationMS: 1234, Worker: "w1", Isolation: "bwrap",
		Stdout: Output{Bytes: 3, Text: "a\x1b\n", Base64: []byte{0xff, 0}, Blob: &Blob{Name: "x1.stdout", Size: 3, SHA256: "ab"}},
		Stderr: Output{Bytes: 4, Text: "oops", Base64: []byte{1}, Blob: &Blob{Name: "x1.stderr", Size: 4, SHA256: "cd"}},
		Left:   &LeftProcesses{Processes: 7, Programs: []string{"node", "sleep"}, More: 1, Running: true},
		Quarantined: []Quarantined{{Item: "q1", Name: ".vscode", Kind: "folder", Bytes: 12, Files: 2,
			Permission: "p2"}},
	},
	ChatErased{User: "u1", Deleted: true, Events: 7},
	TitleGenerated{Session: "ses_1", Provider: "demo", Model: "small", Cost: 0.25, Input: 1, Output: 2, Reasoning: 3,
		CacheRead: 4, CacheWrite: 5},
	FileSent{File: "f1", Session: "ses_1", MessageID: "msg_1", Part: "prt_1", Path: "out/ä.pdf", Caption: "The <plan>",
		Mime: "application/pdf", Content: Blob{Name: "sha256-ab", Size: 3, SHA256: "ab"}},
	TurnLost{Session: "ses_1"},
	AbortRequested{Session: "ses_2"},
	ChatUpdated{Title: ptr("Title"), Description: ptr("what it is about"), Archived: ptr(true), Tags: ptr("a,b"),
		Agent: ptr("plan"), User: ptr("u2")},
	PermissionRequested{
		Permission: "p1", Type: "bash", Patterns: []string{"ls *"}, Metadata: json.RawMessage(`{"command":"ls <&>"}`), Message: "list the files",
		Session: "ses_1", MessageID: "msg_1", Call: "call_1",
	},
	RevertRequested{Message: "msg_1", Overwrite: true},
	OmissionRequested{Files: []OmittedFile{{Message: "msg_1", Part: "prt_1", Name: "photo.png"}}},
	EffectDone{Effect: "evt_1", Kept: []string{"/w/a"}, Copies: "/data/reverts/evt_1"},
	EffectFailed{Effect: "evt_2", Reason: "it is gone"},
	ForkRequested{Message: "msg_1", Chat: "c2"},
	Saved{Fields: json.RawMessage(`{"name":"poco","temperature":0.1}`)},
	AccountCreated{Email: "a@example.org", Name: "Ada", Role: "admin"},
	AccountUpdated{Email: ptr("b@example.org"), Name: ptr("Bob"), Role: ptr("user"), Disabled: ptr(true)},
	PasswordChanged{Keep: "s1"},
	SessionOpened{Session: "s1", Method: "password", Expires: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Client: Client{Address: "192.0.2.1", Device: "Phone/1"}},
	SessionRefreshed{Session: "s1", Expires: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Client: Client{Address: "192.0.2.1", Device: "Phone/1"}},
	SessionClosed{Session: "s1", Reason: "revoked"},
	LoginFailed{Reason: "password", Client: Client{Address: "192.0.2.1", Device: "Phone/1"}},
	ChatSeen{Chat: "c1", Seq: 812},
	MCPCalled{Server: "s1", Name: "lab", Tool: "echo", SHA256: "00ff", Session: "ses_1", Call: "call_1",
		Arguments: json.RawMessage(`{"text":"a"}`)},
	MCPReturned{Session: "ses_1", Call: "call_1", Result: json.RawMessage(`{"content":[]}`), Error: "it has ended",
		DurationMS: 7},
	MCPConnected{Name: "lab", Host: "api.example.org", Port: 443, Allowed: true, Reason: "a host of the MCP server lab"},
	ChannelQueued{Message: "o1", Channel: "ch1", Place: "-100", Type: OutgoingPermission, Text: "Run ls", About: "per_1", Whole: true},
	ChannelSending{Message: "o1"},
	ChannelDelayed{Message: "o1", Reason: "429", Attempts: 1},
	ChannelSent{Message: "o1", Receipt: "17", Attempts: 2},
	ChannelFailed{Message: "o1", Reason: "the bot was blocked", Attempts: 1, Unknown: true},
	WebhookDelivered{Event: 7, Attempts: 2},
	WebhookFailed{Event: 8, Type: "permission.referred", Attempts: 6, Reason: "500 Internal Server Error"},
	WebhookReplayed{From: 3},
	NotificationQueued{
		Notification: "n1", Device: "d1", User: "u1",
		Notice: Notice{Type: "permission", Title: "May I?", Message: "rm <x>", Chat: "c1", Permission: "per_1", Question: "que_1", Server: "s1", Whole: true, Request: "r1", Files: "f1"},
	},
	NotificationSent{Notification: "n1", Device: "d1", Service: "unifiedpush", Host: "push.example.org", Attempts: 2},
	NotificationFailed{Notification: "n1", Device: "d1", Service: "webpush", Host: "push.example.org", Attempts: 6,
		Reason: "410 Gone", Gone: true},
	DelegateFinished{Message: "m1", Status: DelegateCompleted, Result: "done <ä>"},
	WorktreeClosed{Worktree: "/w/.worktrees/w1", Kept: "it holds changes", Branch: "pocketcoder/w1"},
	DelegateSilent{Message: "m1", Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)},
	ScheduleFired{Due: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), First: time.Date(2026, 1, 1, 3, 4, 5, 0, time.UTC),
		Chat: "c1", Message: "m1", New: true, Manual: true, MaxCost: 0.5,
		Decided: time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)},
	ScheduleSkipped{Due: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), First: time.Date(2026, 1, 1, 3, 4, 5, 0, time.UTC),
		Reason: "its last run is not over"},
}

// empty are the kinds that say everything by being there.
var empty = []Data{Deleted{}}

func ptr[T any](v T) *T { return &v }

// stored is an event as it lies in the stream: sorted headers, an empty line, the body.
func stored(e Event) string {
	e.ID, e.Time = "id1", time.Date(2026, 1, 2, 3, 4, 5, 678_901_000, time.UTC)
	m := Message(e, e.Data)
	var b strings.Builder
	fmt.Fprintln(&b, m.Subject)
	for _, name := range slices.Sorted(maps.Keys(m.Header)) {
		fmt.Fprintf(&b, "%s: %s\n", name, strings.Join(m.Header[name], ", "))
	}
	return b.String() + "\n" + string(m.Data) + "\n"
}

func TestStoredFormOfEveryKind(t *testing.T) {
	is := is.New(t)
	want := map[string]bool{}
	for _, d := range append(empty, filled...) {
		for i := range reflect.TypeOf(d).NumField() {
			everyFieldIsSet(t, d.Kind(), reflect.ValueOf(d).Field(i))
		}
		e, err := New("chat1", UserActor("u1"), d)
		is.NoErr(err)
		e.Correlation = "corr1"
		golden(t, "kinds/"+d.Kind()+".txt", stored(e.CausedBy("cause1")))
		want[d.Kind()+".txt"] = true

		back, err := Decode(e)
		is.NoErr(err)
		is.Equal(back, d) // nothing is lost on the way
	}
	for kind := range catalogue {
		is.True(want[kind+".txt"]) // every kind of the catalogue has a filled value and a golden file
	}
	is.Equal(len(want), len(catalogue))
	files, err := os.ReadDir(filepath.Join("testdata", "kinds"))
	is.NoErr(err)
	for _, f := range files {
		is.True(want[f.Name()]) // a golden file without a kind: a kind is never removed
	}
}

func everyFieldIsSet(t *testing.T, path string, v reflect.Value) {
	t.Helper()
	switch {
	case v.IsZero():
		t.Errorf("%s is not filled in, so its stored form is not tested", path)
	case v.Kind() == reflect.Pointer:
		everyFieldIsSet(t, path, v.Elem())
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
		everyFieldIsSet(t, path+"[0]", v.Index(0))
	case v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[time.Time]():
		for i := range v.NumField() {
			everyFieldIsSet(t, path+"."+v.Type().Field(i).Name, v.Field(i))
		}
	}
}

func TestStoredFormOfOpenCodeEvents(t *testing.T) {
	is := is.New(t)
	body := json.RawMessage(`{ "b":1, "a":"<&>\u00e4",  "n":1.0 }`) // unchanged, spaces and order included
	e, err := NewOpenCode("chat1", "local", "evt_1", 7, OpenCode{Type: "session.updated", Form: 1, Properties: body})
	is.NoErr(err)
	golden(t, "opencode/durable.txt", stored(e))
	golden(t, "opencode/reconciled.txt", stored(e.Reconciled()))
	e, err = NewOpenCode("", "local", "evt_2", -1, OpenCode{Type: "server.connected", Properties: body})
	is.NoErr(err)
	golden(t, "opencode/engine.txt", stored(e))
}

// The files in forms are never changed: a directory for each form that was stored once.
func TestOlderFormsAreReadAsTheNewest(t *testing.T) {
	files, err := filepath.Glob("testdata/forms/*/*.txt")
	is.New(t).NoErr(err)
	is.New(t).True(len(files) > 0)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			is := is.New(t)
			subject, h, body := readStored(t, file)
			e := FromMessage(subject, h, body, 1, time.Now())
			is.NoErr(e.Malformed)
			is.Equal(fmt.Sprint(e.Form), filepath.Base(filepath.Dir(file)))
			d, err := Decode(e)
			is.NoErr(err)
			encoded, err := json.Marshal(d)
			is.NoErr(err)
			is.Equal(string(encoded), compact(t, e.Data)) // no field is lost
			shown, err := json.Marshal(e)
			is.NoErr(err)
			expect.Contains(t, string(shown), `"data":`+compact(t, body)) // as it is stored
		})
	}
}

// readStored reads what stored has written.
func readStored(t *testing.T, file string) (subject string, h nats.Header, body []byte) {
	t.Helper()
	text, err := os.ReadFile(file)
	is.New(t).NoErr(err)
	head, rest, _ := strings.Cut(string(text), "\n\n")
	subject, headers, _ := strings.Cut(head, "\n")
	h = nats.Header{}
	for line := range strings.Lines(headers) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		h.Set(name, value)
	}
	return subject, h, []byte(strings.TrimSuffix(rest, "\n"))
}

func compact(t *testing.T, body []byte) string {
	t.Helper()
	b, err := json.Marshal(json.RawMessage(body))
	is.New(t).NoErr(err)
	return string(b)
}

func TestStatusOfAnExecutionOfForm0(t *testing.T) {
	for body, want := range map[string]string{
		`{"exec":"x","exit_code":0}`:                                       ExecutionCompleted,
		`{"exec":"x","exit_code":3}`:                                       ExecutionFailed,
		`{"exec":"x","exit_code":0,"signal":"SIGTERM"}`:                    ExecutionFailed,
		`{"exec":"x","exit_code":0,"error":"no such directory"}`:           ExecutionFailed,
		`{"exec":"x","exit_code":0,"reason":"timeout","signal":"SIGKILL"}`: "timeout",
	} {
		is := is.New(t)
		data, err := upcast(Subject{Kind: ExecFinished{}.Kind()}, 0, json.RawMessage(body))
		is.NoErr(err)
		var d ExecFinished
		is.NoErr(json.Unmarshal(data, &d))
		is.Equal(d.Status, want)
	}
}

func TestSubjects(t *testing.T) {
	is := is.New(t)
	subjects := map[string]any{
		"ChatSubject":           ChatSubject("CHAT", "message.submitted"),
		"ChatOpenCodeSubject":   ChatOpenCodeSubject("CHAT", "session.idle"),
		"EngineOpenCodeSubject": EngineOpenCodeSubject("ENGINE", "server.connected"),
		"ChatFilter":            ChatFilter("CHAT"),
		"PartDeltaSubject":      PartDeltaSubject("CHAT"),
		"ExecDeltaSubject":      ExecDeltaSubject("CHAT", "EXEC"),
		"ChatDeltaFilters":      ChatDeltaFilters("CHAT"),
		"ConfigSubject":         ConfigSubject("COLLECTION", "ID", "saved"),
		"UserSubject":           UserSubject("USER", "account.created"),
		"AuditSubject":          AuditSubject("login.failed"),
	}
	file, err := parser.ParseFile(token.NewFileSet(), "subjects.go", nil, 0)
	is.NoErr(err)
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.IsExported() && f.Name.Name != "ParseSubject" {
			is.True(subjects[f.Name.Name] != nil) // every function that spells a subject has its line
		}
	}
	got := fmt.Sprintf("AllEvents %s\nAllDeltas %s\n", AllEvents, AllDeltas)
	for _, name := range slices.Sorted(maps.Keys(subjects)) {
		got += fmt.Sprintf("%s %v\n", name, subjects[name])
	}
	golden(t, "subjects.txt", got)
}

func TestBadStoredMessagesAreMalformed(t *testing.T) {
	e, err := New("chat1", ActorPolicy, TurnLost{Session: "ses_1"})
	is.New(t).NoErr(err)
	good := Message(e, e.Data)
	for want, change := range map[string]func(subject *string, h map[string][]string, body *[]byte){
		"it has no kind":         func(s *string, _ map[string][]string, _ *[]byte) { *s = "evt.chat.c1" },
		"unknown scope":          func(s *string, _ map[string][]string, _ *[]byte) { *s = "evt.planet.c1.turn.lost" },
		"parse id":               func(s *string, _ map[string][]string, _ *[]byte) { *s = "evt.chat.*.turn.lost" },
		`ce-id ""`:               func(_ *string, h map[string][]string, _ *[]byte) { delete(h, headerID) },
		`ce-type "created"`:      func(_ *string, h map[string][]string, _ *[]byte) { h[HeaderType] = []string{"created"} },
		"parsing time":           func(_ *string, h map[string][]string, _ *[]byte) { h[headerTime] = []string{"yesterday"} },
		"ParseInt":               func(_ *string, h map[string][]string, _ *[]byte) { h[headerOpenCodeSeq] = []string{"x"} },
		`ce-dataversion "x"`:     func(_ *string, h map[string][]string, _ *[]byte) { h[headerForm] = []string{"x"} },
		`ce-dataversion "0"`:     func(_ *string, h map[string][]string, _ *[]byte) { h[headerForm] = []string{"0"} },
		"form 2 is newer than 1": func(_ *string, h map[string][]string, _ *[]byte) { h[headerForm] = []string{"2"} },
		// of OpenCode's
		"form 2 is newer than 1, the newest this PocketCoder reads": func(s *string, h map[string][]string, _ *[]byte) {
			*s, h[HeaderType], h[headerForm] = "evt.chat.c1.opencode.message.updated", []string{"opencode.message.updated"},
				[]string{"2"}
		},
		"body is not JSON":     func(_ *string, _ map[string][]string, b *[]byte) { *b = []byte(`{"session":`) },
		"body is not JSON ":    func(_ *string, _ map[string][]string, b *[]byte) { *b = nil },
		"decode #812 evt.chat": func(_ *string, _ map[string][]string, b *[]byte) { *b = []byte("x") }, // says where
	} {
		t.Run(want, func(t *testing.T) {
			is := is.New(t)
			subject, h, body := good.Subject, maps.Clone(good.Header), slices.Clone(good.Data)
			change(&subject, h, &body)
			got := FromMessage(subject, h, body, 812, time.Now())
			is.True(got.Malformed != nil)
			expect.Contains(t, got.Malformed.Error(), strings.TrimSpace(want))
			_, err := Decode(got)
			is.Equal(err, got.Malformed)
			text, err := json.Marshal(got)
			is.NoErr(err) // it can still be shown
			is.True(json.Valid(text))
		})
	}
}

func TestThePackageCommentNamesEveryKind(t *testing.T) {
	is := is.New(t)
	source, err := os.ReadFile("events.go")
	is.NoErr(err)
	comment, _, _ := strings.Cut(string(source), "\npackage events")
	for kind := range catalogue {
		if !regexp.MustCompile(`(^|[\s(\[])` + regexp.QuoteMeta(kind) + `($|[\s,;:)\]])`).MatchString(comment) {
			t.Errorf("the package comment lacks %s", kind)
		}
	}
}

func TestChangedLinesAreCountedInEveryDiff(t *testing.T) {
	is := is.New(t)
	const hunks = "@@ -1,2 +1,3 @@\n a\n-b\n+c\n+++d\n@@ -9 +10 @@\n-e\n+f\n"
	for _, diff := range []string{hunks, "--- a\n+++ b\n" + hunks,
		"Index: a\n=====\n--- a\t\n+++ a\t\n" + hunks,
		"-b\n+c\n+++d\n-e\n+f\n"} {
		is.Equal(ChangedLines(diff), "+3 −2")
	}
	is.Equal(ChangedLines("--- a\n+++ b\n"), "no line changes")
}
