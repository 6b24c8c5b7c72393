package pages_test

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/ops/expect"
	"pocketcoder/projections/store"
	"pocketcoder/web/webtest"
)

// submitMessage appends an answer of the assistant that has ended, with these parts.
func submitMessage(t *testing.T, s *webtest.System, chat, message string, parts ...map[string]any) {
	t.Helper()
	appendAll(t, s, messageEvents(t, chat, message, parts...))
}

// submitMessages submits n messages at once, each with a text that holds its number.
func submitMessages(t *testing.T, s *webtest.System, chat string, n int, format string) {
	t.Helper()
	var all []events.Event
	for i := range n {
		all = append(all, messageEvents(t, chat, fmt.Sprintf("msg_%04d", i), written(fmt.Sprintf(format, i)))...)
	}
	appendAll(t, s, all)
}

func appendAll(t *testing.T, s *webtest.System, all []events.Event) {
	t.Helper()
	seq, err := s.Log.AppendAll(t.Context(), all)
	webtest.Check(t, err)
	webtest.Check(t, s.Model.Wait(t.Context(), seq))
}

func messageEvents(t *testing.T, chat, message string, parts ...map[string]any) (all []events.Event) {
	t.Helper()
	add := func(typ, properties string) {
		e, err := events.NewOpenCode(chat, "local", "evt_"+events.NewID(), -1,
			events.OpenCode{Type: typ, Properties: json.RawMessage(properties)})
		webtest.Check(t, err)
		all = append(all, e)
	}
	add("message.updated", `{"sessionID":"ses_`+chat+`","info":{"id":"`+message+`","sessionID":"ses_`+chat+
		`","role":"assistant","parentID":"msg_0","time":{"created":1,"completed":2},"finish":"stop"}}`)
	for i, p := range parts {
		p["id"], p["messageID"], p["sessionID"] = fmt.Sprintf("prt_%s_%d", message, i), message, "ses_"+chat
		body, err := json.Marshal(map[string]any{"sessionID": "ses_" + chat, "part": p})
		webtest.Check(t, err)
		add("message.part.updated", string(body))
	}
	return all
}

func written(text string) map[string]any {
	return map[string]any{"type": "text", "text": text, "time": map[string]any{"start": 1, "end": 2}}
}

// needed makes OpenCode ask for a command that no rule allows, and returns the id of the record.
func needed(t *testing.T, s *webtest.System, chat, permission, command string) string {
	t.Helper()
	id := s.AppendCommandRequest(t, chat, permission, command)
	s.Append(t, chat, events.PermissionReferred{Permission: permission, Reason: "no rule allows it", Cwd: "/workspace"})
	return id
}

// element returns the element with an id, up to the next article.
func element(t *testing.T, page, id string) string {
	t.Helper()
	_, rest, found := strings.Cut(page, `id="`+id+`"`)
	if !found {
		t.Fatalf("no element %s in %s", id, page)
	}
	one, _, _ := strings.Cut(rest, "</article>")
	return one
}

func TestAnAnswerThatIsNotWholeSaysSoAndCanBeContinued(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		finish, text, says, ending string
		inMessage                  bool
	}{
		"cut":        {"length", "half of it", "The answer was cut: the model reached its limit of output.", "cut", true},
		"empty":      {"stop", "", "The model ended its turn without an answer.", "empty", true},
		"broken off": {"unknown", "", "The turn was lost: OpenCode or the answer of the model ended in the middle of it.", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			s := webtest.NewSystem(t)
			_, token := s.User(t, "ann", "user")
			chat := s.Chat(t, token, "c")
			b := loggedIn(t, s, "ann")
			happen := func(typ, properties string) {
				s.AppendOpenCode(t, chat, typ, strings.ReplaceAll(properties, "$", "ses_"+chat))
			}
			s.Append(t, chat, events.SessionBound{Session: "ses_" + chat, Directory: "/workspace"})
			happen("message.updated", `{"sessionID":"$","info":{"id":"msg_a","role":"assistant","time":{"created":1}}}`)
			happen("message.part.updated",
				`{"sessionID":"$","part":{"id":"prt_1","messageID":"msg_a","type":"text","text":"`+c.text+`","time":{"end":2}}}`)
			happen("message.part.updated", `{"sessionID":"$","part":{"id":"prt_2","messageID":"msg_a","type":"step-finish"}}`)
			happen("message.updated",
				`{"sessionID":"$","info":{"id":"msg_a","role":"assistant","time":{"created":1,"completed":2},"finish":"`+c.finish+`"}}`)
			happen("session.status", `{"sessionID":"$","status":{"type":"idle"}}`)
			page := b.visit(t, "/chats/"+chat).body
			is.Equal(strings.Count(page, c.says), 1)
			entries, foot, _ := strings.Cut(page, `id="foot"`)
			is.Equal(strings.Contains(entries, c.says), c.inMessage)
			form, _, _ := strings.Cut(foot, "</form>")
			expect.Contains(t, form, ">Continue<")
			_, id, _ := strings.Cut(form, `name="id" value="`)
			id, _, _ = strings.Cut(id, `"`)
			page = b.submit(t, "/chats/"+chat+"/messages", url.Values{"id": {id}, "text": {"Continue."}}).body
			_, foot, _ = strings.Cut(page, `id="foot"`)
			_, got := s.Call(t, token, "GET", "/api/collections/messages/records?filter=role='assistant'", nil)
			is.Equal(got["items"].([]any)[0].(map[string]any)["ending"], c.ending)
			expect.Lacks(t, foot, ">Continue<") // its message waits now
		})
	}
}

func TestAWaitForTheProviderIsShownAndCanBeStopped(t *testing.T) {
	t.Parallel()
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ann", "user")
	chat := s.Chat(t, token, "c")
	b := loggedIn(t, s, "ann")
	s.Append(t, chat, events.SessionBound{Session: "ses_" + chat, Directory: "/workspace"})
	foot := func(status string) string {
		s.AppendOpenCode(t, chat, "session.status", `{"sessionID":"ses_`+chat+`","status":`+status+`}`)
		_, foot, _ := strings.Cut(b.visit(t, "/chats/"+chat).body, `id="foot"`)
		return foot
	}
	waits := foot(`{"type":"retry","attempt":2,"message":"too <many>","next":1795217500000.5}`)
	for _, words := range []string{"The model provider failed (attempt 2): too &lt;many&gt;", "Next try:",
		`datetime="2026-11-20T23:31:40Z"`, `action="/chats/` + chat + `/abort"`, "Stop the turn"} {
		expect.Contains(t, waits, words)
	}
	const file = "A file may be the cause. To leave it out, stop the turn and send /omit."
	expect.Lacks(t, waits, file)
	expect.Lacks(t, foot(`{"type":"busy"}`), "Stop the turn")
	again := foot(`{"type":"retry","attempt":3,"message":"again"}`)
	expect.Contains(t, again, "Stop the turn")
	expect.Contains(t, again, file)
	s.Append(t, chat, events.TurnLost{Session: "ses_" + chat})
	expect.Lacks(t, b.visit(t, "/chats/"+chat).body, "Stop the turn")
}

func TestAChatShowsWhatWasSaidInOrder(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	chat := s.Chat(t, token, "Tidy up")
	b.submit(t, "/chats/"+chat+"/messages", url.Values{"id": {"said1"}, "text": {"*please* <b>tidy</b>"}})
	submitMessage(t, s, chat, "msg_1",
		map[string]any{"type": "reasoning", "text": "I *think*", "time": map[string]any{"end": 2}},
		written("Some **bold** text, and a [link](https://example.org/x)."),
		map[string]any{"type": "tool", "tool": "bash", "callID": "c",
			"state": map[string]any{"status": "completed", "input": map[string]any{"command": "ls -la"}, "output": "a\x1b[31mb"}},
	)
	request := needed(t, s, chat, "per_1", "rm -r build")
	submitMessage(t, s, chat, "msg_2", written("Done."))

	page := b.visit(t, "/chats/"+chat).body
	at := 0
	for _, piece := range []string{
		"<h1>Tidy up</h1>", "*please* &lt;b&gt;tidy&lt;/b&gt;", "<details", "I <em>think</em>", "<strong>bold</strong>",
		`<a href="https://example.org/x" rel="nofollow noopener noreferrer" target="_blank">link</a> <span class="host">(example.org)</span>`,
		"ls -la", `a<b class="hidden">␛</b>[31mb`, `id="r-` + request + `"`, "rm -r build", "/workspace",
		"no rule allows it", "Done.",
	} {
		i := strings.Index(page[at:], piece)
		if i < 0 {
			t.Fatalf("%q is not where it should be in %s", piece, page)
		}
		at += i
	}
	is.Equal(b.visit(t, "/chats/none").status, http.StatusNotFound)
	s.User(t, "bob", "user")
	is.Equal(loggedIn(t, s, "bob").visit(t, "/chats/"+chat).status, http.StatusNotFound)
}

func TestACallOfAnMCPServerIsShownInTheChatAndInItsReplay(t *testing.T) {
	t.Parallel()
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	chat := s.Chat(t, token, "Measure")
	submitMessage(t, s, chat, "msg_1", map[string]any{"type": "tool", "tool": "pocketcoder_mcp_lab_echo", "callID": "c",
		"state": map[string]any{"status": "completed", "input": map[string]any{"text": "hello", "caller": "0badc0de"},
			"output": "hello back"}})
	page := b.visit(t, "/chats/"+chat).body
	for _, want := range []string{"echo (MCP server lab)", "hello back", `&#34;text&#34;: &#34;hello&#34;`} {
		expect.Contains(t, page, want)
	}
	expect.Lacks(t, page, "0badc0de")

	s.Append(t, chat, events.MCPCalled{Name: "lab", Tool: "echo", Session: "ses_1", Call: "c",
		Arguments: json.RawMessage(`{"text":"hello"}`)})
	replay := b.visit(t, "/chats/"+chat+"/replay").body
	for _, want := range []string{`class="event execution"`, "echo (MCP server lab)", `{&#34;text&#34;:&#34;hello&#34;}`} {
		expect.Contains(t, replay, want)
	}
	s.Append(t, chat, events.MCPReturned{Session: "ses_1", Call: "c", DurationMS: 1500,
		Result: json.RawMessage(`{"content":[{"type":"text","text":"hello back"}]}`)})
	replay = b.visit(t, "/chats/"+chat+"/replay").body
	for _, want := range []string{"answered after 1.5s", "hello back"} {
		expect.Contains(t, replay, want)
	}
}

func TestAFileOfTheAssistantIsALinkAfterItsCall(t *testing.T) {
	t.Parallel()
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	chat := s.Chat(t, token, "Plan")
	submitMessage(t, s, chat, "msg_1", map[string]any{"type": "tool", "tool": "pocketcoder_send_file",
		"callID": "c", "state": map[string]any{"status": "completed", "input": map[string]any{"path": "out/plan.html"}}},
		written("There it is."))
	s.Append(t, chat, events.FileSent{File: "file1", MessageID: "msg_1", Part: "prt_msg_1_0", Path: "out/plan <b>.html",
		Caption: "The *plan* <b>"})
	page := b.visit(t, "/chats/"+chat).body
	at := 0
	for _, piece := range []string{"pocketcoder_send_file", `<a href="/api/artifacts/file1/content" download>plan &lt;b&gt;.html</a>`,
		"The *plan* &lt;b&gt;", "There it is."} {
		i := strings.Index(page[at:], piece)
		if i < 0 {
			t.Fatalf("%q is not where it should be in %s", piece, page)
		}
		at += i
	}
	replay := b.visit(t, "/chats/"+chat+"/replay").body
	expect.Contains(t, replay, `/api/artifacts/file1/content`)
	expect.Contains(t, replay, "out/plan &lt;b&gt;.html")
}

// What a person denied has not failed.
func TestTheListSaysThatATurnWasDenied(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	chat := s.Chat(t, token, "Tidy up")
	session := "ses_" + chat
	status := func(of string) {
		s.AppendOpenCode(t, chat, "session.status", fmt.Sprintf(`{"sessionID":%q,"status":{"type":%q}}`, session, of))
	}
	message := func(more string) {
		s.AppendOpenCode(t, chat, "message.updated", fmt.Sprintf(
			`{"sessionID":%q,"info":{"id":"msg_1","role":"assistant","parentID":"msg_0"%s}}`, session, more))
	}
	ending := func() any {
		_, c := s.Call(t, token, "GET", webtest.RecordsPath("chats")+"/"+chat, nil)
		return c["ending"]
	}
	s.Append(t, chat, events.SessionBound{Session: session, Directory: "/workspace"})
	status("busy")
	message("")
	id := needed(t, s, chat, "per_1", "make everything")
	code, _ := s.Call(t, token, "PATCH", webtest.RecordsPath("permissions")+"/"+id, webtest.Object{"status": "denied"})
	is.Equal(code, http.StatusOK)
	is.Equal(ending(), "")
	message(`,"time":{"created":1,"completed":2},"finish":"tool-calls"`)
	status("idle")
	expect.Contains(t, element(t, b.visit(t, "/").body, "chat-"+chat), `<span class="turn denied">denied</span>`)
	is.Equal(ending(), "denied")
}

func TestARequestIsDecidedByTheFormsOfItsCard(t *testing.T) {
	t.Parallel()
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	chat := s.Chat(t, token, "Tidy up")
	for i, c := range []struct {
		form url.Values
		want string
		more []string
	}{
		{url.Values{"decision": {"authorized"}}, "approved by ada@example.org", nil},
		{url.Values{"decision": {"denied"}}, "denied by ada@example.org", nil},
		{url.Values{"decision": {"denied"}, "reason": {"use make"}}, "denied by ada@example.org", []string{"use make"}},
		{url.Values{"decision": {"authorized"}, "edited": {"make a\r\nmake b"}}, "approved with an edit by ada@example.org", []string{"<summary>make a make b</summary>", "+make a\n</span><span class=\"added\">+make b", "make everything"}},
	} {
		id := needed(t, s, chat, fmt.Sprintf("per_%d", i), "make everything")
		card := element(t, b.visit(t, "/chats/"+chat).body, "r-"+id)
		c.form.Set("shown_request", shownRequest(card))
		path := "/chats/" + chat + "/requests/" + id
		expect.Contains(t, card, `action="`+path+`"`)
		after := element(t, b.submit(t, path, c.form).body, "r-"+id)
		expect.Contains(t, after, c.want)
		expect.Lacks(t, after, "<form")
		for _, more := range c.more {
			expect.Contains(t, after, more)
		}
	}
}

// shownRequest is what the forms of a card say about the request that they show.
func shownRequest(card string) string {
	_, rest, _ := strings.Cut(card, `name="shown_request" value="`)
	shown, _, _ := strings.Cut(rest, `"`)
	return shown
}

func TestADecisionAboutAnotherRequestThanTheOneShownIsRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	chat := s.Chat(t, token, "Tidy up")
	id := needed(t, s, chat, "per_1", "make everything")
	path := "/chats/" + chat + "/requests/" + id
	shown := shownRequest(b.visit(t, "/chats/"+chat).body)
	for _, form := range []url.Values{
		{"decision": {"authorized"}, "shown_request": {"of another"}}, {"decision": {"authorized"}}, {"decision": {"perhaps"}, "shown_request": {shown}},
	} {
		is.Equal(b.submit(t, path, form).status, http.StatusBadRequest)
	}
	_, record := s.Call(t, token, "GET", "/api/collections/permissions/records/"+id, nil)
	is.Equal(record["status"], "draft")

	s.User(t, "bob", "user")
	is.Equal(loggedIn(t, s, "bob").submit(t, path, url.Values{"decision": {"authorized"},
		"shown_request": {shown}}).status, http.StatusNotFound)
}

func TestARequestShowsExactlyWhatWouldRun(t *testing.T) {
	t.Parallel()
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	chat := s.Chat(t, token, "Tidy up")
	card := func(n int, command string) string {
		id := needed(t, s, chat, fmt.Sprintf("per_%d", n), command)
		return element(t, b.visit(t, "/chats/"+chat).body, "r-"+id)
	}
	for i, c := range []struct{ command, shown string }{
		{"ls \u202egnp.exe", `ls <b class="hidden">&lt;U+202E&gt;</b>gnp.exe`},
		{"ls\x1b[2K", `ls<b class="hidden">␛</b>[2K`},
		{"ls\r\nrm x", "ls<b class=\"hidden\">␍</b>\nrm x"},
		{"ls\u00a0-l\u200bx", `ls<b class="hidden">&lt;U+00A0&gt;</b>-l<b class="hidden">&lt;U+200B&gt;</b>x`},
		{"ls \u3164\u2800", `ls <b class="hidden">&lt;U+3164&gt;</b><b class="hidden">&lt;U+2800&gt;</b>`},
	} {
		shown := card(i, c.command)
		expect.Contains(t, shown, c.shown)
		expect.Lacks(t, shown, "<textarea") // a text field would hide it again
	}
	long := strings.Repeat("echo "+strings.Repeat("x", 500)+"; ", 200) + "rm -rf /"
	expect.Contains(t, card(99, long), html.EscapeString(long))
}

func TestAnEditShowsItsWholeDiff(t *testing.T) {
	t.Parallel()
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	chat := s.Chat(t, token, "Tidy up")
	diff := "Index: /workspace/a.go\n===\n--- /workspace/a.go\n+++ /workspace/a.go\n@@ -1,2 +1,2 @@\n-old\n+new\u202e\n same\n"
	body, err := json.Marshal(map[string]any{
		"id": "per_1", "sessionID": "ses_" + chat, "permission": "edit", "patterns": []string{"a.go"}, "metadata": map[string]any{"filepath": "/workspace/a.go", "diff": diff},
	})
	webtest.Check(t, err)
	s.AppendOpenCode(t, chat, "permission.asked", string(body))
	s.Append(t, chat, events.PermissionReferred{Permission: "per_1", Reason: "edits ask"})
	card := element(t, b.visit(t, "/chats/"+chat).body, "r-"+store.RecordID("per_1"))
	for _, piece := range []string{
		"Edit a.go (+1\u00a0−1)", "<dd>/workspace/a.go</dd>", "<pre class=\"command\"><span class=\"hunk\">@@ -1,2 +1,2 @@\n</span>",
		"<span class=\"removed\">-old\n</span>",
		"<span class=\"added\">+new<b class=\"hidden\">&lt;U+202E&gt;</b>\n</span>", "/workspace/a.go", "edits ask",
	} {
		expect.Contains(t, card, piece)
	}
	s.Append(t, chat, events.PermissionDecided{Permission: "per_1", Decision: events.Denied})
	card = element(t, b.visit(t, "/chats/"+chat).body, "r-"+store.RecordID("per_1"))
	expect.Contains(t, card, "<summary>Details</summary>")
}

func TestAnEditWithoutChangedLinesSaysSo(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	chat := s.Chat(t, token, "Tidy up")
	s.AppendOpenCode(t, chat, "permission.asked", `{"id":"per_1","sessionID":"ses_`+chat+`","permission":"edit",
		"patterns":["a.go","b*"],"metadata":{"filepath":"/workspace/a.go",
		"diff":"Index: /workspace/a.go\n===\n--- /workspace/a.go\n+++ /workspace/a.go\n"}}`)
	s.Append(t, chat, events.PermissionReferred{Permission: "per_1", Reason: "edits ask"})
	card := element(t, b.visit(t, "/chats/"+chat).body, "r-"+store.RecordID("per_1"))
	for _, piece := range []string{"Edit a.go (no line changes)", "No line changes: the file is empty",
		"<dt>patterns</dt><dd>b*</dd>"} {
		expect.Contains(t, card, piece)
	}
	is.True(!strings.Contains(card, "<pre class=\"command\">"))
}

func TestManyEmptyLinesAreShownByTheirNumber(t *testing.T) {
	t.Parallel()
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	chat := s.ChatWithAnswer(t, token)
	s.Assistant(t, chat, "msg_a", "")
	request := needed(t, s, chat, "per_1", "echo one"+strings.Repeat("\n", 300)+"echo two")
	s.AppendOpenCode(t, chat, "message.part.updated", `{"sessionID":"ses_own","part":{"id":"prt_out",
		"messageID":"msg_a","sessionID":"ses_own","type":"tool","tool":"read","callID":"c1","state":{"status":"completed","output":"first`+strings.Repeat(`\n`, 300)+`last"}}}`)
	page := b.visit(t, "/chats/"+chat).body
	expect.Contains(t, element(t, page, "r-"+request), "echo one\n⏎×299\necho two")
	expect.Contains(t, page, "first\n⏎×299\nlast")
}

// OpenCode stores a compaction, and the prompt that it writes after one, as messages of the person.
func TestACompactionIsALineOfPocketCoder(t *testing.T) {
	t.Parallel()
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	chat := s.ChatWithAnswer(t, token)
	for id, part := range map[string]string{"msg_1": `"type":"compaction","auto":true`,
		"msg_2": `"type":"text","synthetic":true,"text":"Continue if you have next steps"`} {
		s.AppendOpenCode(t, chat, "message.updated", `{"sessionID":"ses_own","info":{"id":"`+id+
			`","sessionID":"ses_own","role":"user","time":{"created":1}}}`)
		s.AppendOpenCode(t, chat, "message.part.updated", `{"sessionID":"ses_own","part":{"id":"prt_`+id+
			`","messageID":"`+id+`","sessionID":"ses_own",`+part+`}}`)
	}
	page := b.visit(t, "/chats/"+chat).body
	compaction := element(t, page, "m-"+store.RecordID("msg_1"))
	expect.Contains(t, compaction, `class="message system`)
	expect.Contains(t, compaction, `<h2 class="unseen">PocketCoder</h2>`)
	expect.Contains(t, compaction, "The conversation was shortened.")
	expect.Lacks(t, compaction, "<details")
	expect.Contains(t, element(t, page, "m-"+store.RecordID("msg_2")), `class="message system`)
}

// What asks for a tool with patterns is not shown as a command, whatever command its metadata name.
func TestACardNamesTheTypeAndThePatternsOfARequest(t *testing.T) {
	t.Parallel()
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	chat := s.Chat(t, token, "Tidy up")
	for i, typ := range []string{"external_directory", "edit"} {
		id := fmt.Sprint("per_", i)
		body, err := json.Marshal(map[string]any{
			"id": id, "sessionID": "ses_" + chat, "permission": typ, "patterns": []string{"/etc/*"}, "metadata": map[string]any{"command": "ls build"},
		})
		webtest.Check(t, err)
		s.AppendOpenCode(t, chat, "permission.asked", string(body))
		s.Append(t, chat, events.PermissionReferred{Permission: id, Reason: "it asks"})
		card := element(t, b.visit(t, "/chats/"+chat).body, "r-"+store.RecordID(id))
		for _, piece := range []string{typ, "/etc/*", "ls build"} {
			expect.Contains(t, card, piece)
		}
		expect.Lacks(t, card, "Run a command")
		expect.Lacks(t, card, "<textarea")
	}
}

func TestWhatARuleAllowsByItselfNeedsNoCard(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	chat := s.Chat(t, token, "Tidy up")
	id := s.AppendCommandRequest(t, chat, "per_1", "ls")
	s.Append(t, chat, events.PermissionDecided{Permission: "per_1", Decision: events.Authorized})
	is.True(!strings.Contains(b.visit(t, "/chats/"+chat).body, "r-"+id))

	quick := s.AppendCommandRequest(t, chat, "per_2", "ls") // a person decides before the policy does
	s.Call(t, token, "PATCH", webtest.RecordsPath("permissions")+"/"+quick, webtest.Object{"status": "authorized"})
	expect.Contains(t, element(t, b.visit(t, "/chats/"+chat).body, "r-"+quick), "approved by ada@example.org")
}

func TestQuestionsAreAnswered(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	chat := s.Chat(t, token, "Tidy up")
	s.AppendOpenCode(t, chat, "question.asked", `{"id":"que_1","sessionID":"ses_`+chat+`","questions":[`+
		`{"question":"Which colour?","header":"Colour","options":[{"label":"Red","description":"warm"},{"label":"Blue","description":"cold"}]},`+
		`{"question":"Letters?","header":"Letters","multiple":true,"options":[{"label":"A, B"},{"label":"C"}]},`+
		`{"question":"More?","header":"More","options":[]}]}`)
	_, list := s.Call(t, token, "GET", "/api/collections/questions/records?sort=index", nil)
	var ids []string
	for _, one := range list["items"].([]any) {
		ids = append(ids, one.(map[string]any)["id"].(string))
	}
	page := b.visit(t, "/chats/"+chat).body
	is.True(strings.Index(page, "Which colour?") < strings.Index(page, "Letters?") &&
		strings.Index(page, "Letters?") < strings.Index(page, "More?"))
	expect.Contains(t, element(t, page, "q-"+ids[0]), `type="radio" name="choice" value="Blue"`)
	expect.Contains(t, element(t, page, "q-"+ids[1]), `type="checkbox" name="choice" value="A, B"`)
	path := func(i int) string { return "/chats/" + chat + "/questions/" + ids[i] }
	is.Equal(b.submit(t, path(0), nil).status, http.StatusBadRequest)
	b.submit(t, path(0), url.Values{"choice": {"Blue"}})
	b.submit(t, path(1), url.Values{"choice": {"A, B"}, "own": {`["D"]`}})
	page = b.submit(t, path(2), url.Values{"decision": {"rejected"}}).body
	expect.Contains(t, element(t, page, "q-"+ids[0]), "answered by ada@example.org: Blue")
	expect.Contains(t, element(t, page, "q-"+ids[1]), html.EscapeString(`A, B, ["D"]`))
	expect.Contains(t, element(t, page, "q-"+ids[2]), "dismissed")
}

func TestALongChatShowsItsEndFirst(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	chat := s.Chat(t, token, "Tidy up")
	submitMessages(t, s, chat, 250, "answer %03d.")
	newest := b.visit(t, "/chats/"+chat).body
	is.Equal(strings.Count(newest, "<article"), 200)
	is.True(strings.Contains(newest, "answer 249.") && strings.Contains(newest, "answer 050."))
	_, rest, _ := strings.Cut(newest, "?before=")
	before, _, _ := strings.Cut(rest, `"`)
	earlier := b.visit(t, "/chats/"+chat+"?before="+before).body
	is.Equal(strings.Count(earlier, "<article"), 50)
	is.True(strings.Contains(earlier, "answer 049.") && strings.Contains(earlier, "answer 000."))
	is.Equal(b.visit(t, "/chats/"+chat+"?before=x").status, http.StatusBadRequest)
}

func TestMarkdownLeadsNowhereUnseen(t *testing.T) {
	t.Parallel()
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	chat := s.Chat(t, token, "Tidy up")
	for i, c := range []struct{ markdown, shown, lacks string }{
		{"[good.com](https://evil.com/x)", `>good.com</a> <span class="host">(evil.com)</span>`, ""},
		{"[apple](https://\u0430pple.com/)", `<span class="host">(xn--pple-43d.com)</span>`, ""},
		{"[x](javascript:alert%281%29)", `x <span class="host">(javascript:alert%281%29)</span>`, "href=\"javascript"},
		{"[x](/logout)", `x <span class="host">(/logout)</span>`, `href="/logout"`},
		{"[x]: https://evil.com/ \"unseen\"", "[x]: ", ""},
		{"![pixel](https://evil.com/p.png?q=secret)", `pixel</span> <span class="host">(evil.com)</span>`, "<img"},
		{"<img src=x onerror=alert(1)>", "&lt;img src=x onerror=alert(1)&gt;", "<img"},
		{"a <b onclick=x>b</b>", "a &lt;b onclick=x&gt;b&lt;/b&gt;", "<b onclick"},
		{"https://good.com@evil.com/", `<span class="host">(evil.com)</span>`, ""},
		{"|a|b|\n|:-|-:|\n|1|2|", `align="right"`, "style="},
		{"a\u202eb", "a&lt;U+202E&gt;b", "\u202e"},
		{"a&#x202e;b&#8203;c&#x1b;d", "a&lt;U+202E&gt;b&lt;U+200B&gt;c␛d", "\u202e"},
		{"[x](https://good.com\u3002evil.org/)", `href="https://good.com.evil.org/"`, "%E3%80%82"},
		{"<https://\u0430pple.com/>", `<span class="host">(xn--pple-43d.com)</span>`, ""},
		{"<https://example.org/a>", `>https://example.org/a</a>`, "(example.org)"},
		{"[local](http://127.0.0.1:8090/) [port](https://example.org:8443/x)", `<span class="host">(example.org:8443)</span>`, ""},
		{strings.Repeat(">", 20_000) + "deep", "deep", ""},
	} {
		submitMessage(t, s, chat, fmt.Sprintf("msg_%d", i), written(c.markdown))
		page := b.visit(t, "/chats/"+chat).body
		expect.Contains(t, page, c.shown)
		if c.lacks != "" {
			expect.Lacks(t, page, c.lacks)
		}
	}
}

// Some texts of a few KiB would take the parser minutes, or gigabytes. They are shown as they are.
func TestATextThatIsNoMarkdownIsShownAsItIs(t *testing.T) {
	t.Parallel()
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	chat := s.Chat(t, token, "Tidy up")
	const columns = 3000
	for i, text := range []string{
		strings.Repeat("|a", columns) + "|\n" + strings.Repeat("|-", columns) + "|\n" + strings.Repeat("a\n", columns),
		strings.Repeat(">", 60_000), strings.Repeat("[a](", 15_000), strings.Repeat("*a_ ", 15_000),
		strings.Repeat("a", 100_000),
	} {
		submitMessage(t, s, chat, fmt.Sprintf("msg_%d", i), written(text))
		expect.Contains(t, b.visit(t, "/chats/"+chat).body, "<pre>"+html.EscapeString(text)+"</pre>")
	}
}

func TestATurnIsStopped(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	chat := s.ChatWithAnswer(t, token)
	s.Assistant(t, chat, "msg_1", "")
	expect.Contains(t, b.visit(t, "/chats/"+chat).body, ">Stop</button>")
	is.Equal(b.submit(t, "/chats/"+chat+"/abort", nil).path, "/chats/"+chat)
	expect.Contains(t, s.Wire(t, events.ChatFilter(chat), 0), "abort")
}

func TestACallOfAnEditedCommandShowsWhatRan(t *testing.T) {
	t.Parallel()
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	chat := s.Chat(t, token, "Build")
	submitMessage(t, s, chat, "msg_1", map[string]any{"type": "tool", "tool": "bash", "callID": "call_1",
		"state": map[string]any{"status": "completed", "input": map[string]any{"command": "make all"}}})
	s.AppendOpenCode(t, chat, "permission.asked", fmt.Sprintf(`{"id":"per_1","sessionID":"ses_%s","permission":"bash",
		"patterns":["make all"],"metadata":{},"always":[],"tool":{"messageID":"msg_1","callID":"call_1"}}`, chat))
	s.Append(t, chat, events.ExecRequested{Exec: "exec1", Permission: "per_1", Session: "ses_" + chat, Call: "call_1",
		Command: "make test", Original: "make all", Pool: "default"})
	s.Append(t, chat, events.ExecFinished{Exec: "exec1"})
	for _, where := range []string{"", "/replay", "/export/html"} {
		call := element(t, b.visit(t, "/chats/"+chat+where).body, "part-prt_msg_1_0")
		expect.Contains(t, call, `<span class="what">make test</span> <span class="hint">edited by a person</span>`)
		expect.Lacks(t, call, "make all")
	}
}

func TestACallShowsHowItsCommandEnded(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	chat := s.Chat(t, token, "Build")
	for i, one := range []struct {
		end               events.ExecFinished
		mark, state, text string
	}{
		{events.ExecFinished{}, "✓", "completed", `class="unseen">completed<`},
		{events.ExecFinished{ExitCode: 1}, "✗", "error", `class="ended">exit code 1<`},
		{events.ExecFinished{ExitCode: 128}, "✗", "error", `class="ended">exit code 128<`},
		{events.ExecFinished{ExitCode: 137, Signal: "SIGKILL"}, "✗", "error", `class="ended">exit code 137 (SIGKILL)<`},
		{events.ExecFinished{ExitCode: 143, Signal: "SIGTERM", Reason: "cancelled"}, "✗", "error", `class="ended">cancelled<`},
	} {
		message, request, exec := fmt.Sprintf("msg_%d", i), fmt.Sprintf("per_%d", i), fmt.Sprintf("exec%d", i)
		// a model may use the id of a call again in another message
		submitMessage(t, s, chat, message, map[string]any{"type": "tool", "tool": "bash", "callID": "call_1",
			"state": map[string]any{"status": "completed", "input": map[string]any{"command": "make"}}})
		s.AppendOpenCode(t, chat, "permission.asked", fmt.Sprintf(`{"id":%q,"sessionID":"ses_%s","permission":"bash",
			"patterns":["make"],"metadata":{},"always":[],"tool":{"messageID":%q,"callID":"call_1"}}`, request, chat, message))
		s.Append(t, chat, events.ExecRequested{Exec: exec, Permission: request, Session: "ses_" + chat, Call: "call_1",
			Command: "make", Pool: "default"})
		one.end.Exec = exec
		s.Append(t, chat, one.end)

		shown := map[string]string{}
		for _, where := range []string{"", "/replay", "/export/html"} {
			shown[where] = b.visit(t, "/chats/"+chat+where).body
		}
		for where, page := range shown {
			call := element(t, page, "part-prt_"+message+"_0")
			t.Log(where, exec)
			expect.Contains(t, call, `class="mark `+one.state+`" aria-hidden="true">`+one.mark+"<")
			expect.Contains(t, call, one.text)
		}
		_, answer := s.Call(t, token, "GET", "/api/collections/messages/records/"+store.RecordID(message), nil)
		got := answer["commands"].(map[string]any)["call_1"].(map[string]any)
		is.Equal([]any{got["exec"], got["exit_code"], got["signal"]}, []any{exec, float64(one.end.ExitCode), one.end.Signal})
		is.Equal(got["status"] == "completed", one.mark == "✓")
	}
}
