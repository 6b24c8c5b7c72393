package pages_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

func TestWhatWaitsIsShownWithItsReason(t *testing.T) {
	t.Parallel()
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	chat := s.Chat(t, token, "Tidy up")
	path := "/chats/" + chat
	expect.Lacks(t, b.visit(t, path).body, `id="queue"`)
	b.submit(t, path+"/messages", url.Values{"id": {"first"}, "text": {"tidy\u202e <b>up</b>\nall"}})
	page := b.visit(t, path).body
	for _, piece := range []string{"1 message waits",
		`<div class="waiting"><pre class="said">tidy<b class="hidden">&lt;U+202E&gt;</b> &lt;b&gt;up&lt;/b&gt;`} {
		expect.Contains(t, page, piece)
	}
	b.submit(t, path+"/messages", url.Values{"id": {"second"}, "text": {"then test"}})
	s.Append(t, chat, events.MessageHeld{Message: "second", Permission: "per_1", Reason: "The budget is used up."})
	page = b.visit(t, path).body
	expect.Contains(t, page, "2 messages wait")
	_, second, _ := strings.Cut(page, `<li id="queued-second"><div class="waiting"><pre class="said">then test</pre></div>`)
	expect.Contains(t, second[:100], "The budget is used up.")

	b.submit(t, path+"/abort", url.Values{})
	page = b.visit(t, path).body
	expect.Contains(t, page, "Stopped. 1 message waits.")
	_, first, _ := strings.Cut(page, `<li id="queued-first">`)
	first, _, _ = strings.Cut(first, "</li>")
	expect.Contains(t, first, "The turn was stopped.")
	b.submit(t, path+"/messages", url.Values{"id": {"third"}, "text": {"go on"}})
	expect.Contains(t, b.visit(t, path).body, "3 messages wait")

	s.Append(t, chat, events.MessageSubmitted{Message: "resumes", Resumes: "per_1",
		Parts: []events.Part{{Type: "text", Text: "Go on."}}})
	expect.Contains(t, b.visit(t, path).body, "3 messages wait") // PocketCoder's is no message of the queue
	s.Append(t, chat, events.MessageHeld{Message: "resumes", Reason: "Events were lost."})
	page = b.visit(t, path).body
	expect.Contains(t, page, "4 messages wait")
	expect.Lacks(t, page, `name="before" value="resumes"`)
	_, resumes, _ := strings.Cut(page, `<li id="queued-resumes">`)
	resumes, _, _ = strings.Cut(resumes, "</li>")
	for _, piece := range []string{"Events were lost.", ">Send now<", ">Delete<"} {
		expect.Contains(t, resumes, piece)
	}
	expect.Lacks(t, resumes, "<textarea")
	b.submit(t, path+"/queue/resumes", url.Values{"delivery": {"steer"}})
	expect.Contains(t, b.visit(t, path).body, "3 messages wait")
}

func TestAFailedMessageSaysWhyAndIsSentAgainOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	chat := s.Chat(t, token, "Tidy up")
	path := "/chats/" + chat
	b.submit(t, path+"/messages", url.Values{"id": {"first"}, "text": {"tidy \"all\""}})
	s.Append(t, chat, events.MessageFailed{Message: "first", Domain: "infrastructure", Error: "OpenCode is away."})
	page := b.visit(t, path).body
	expect.Lacks(t, page, `id="queue"`)
	failed := element(t, page, "m-first")
	expect.Contains(t, failed, "OpenCode is away.")
	expect.Contains(t, failed, `name="text" value="tidy &#34;all&#34;"`)
	expect.Contains(t, failed, "Send again</button>")
	_, rest, _ := strings.Cut(failed, `name="id" value="`)
	id, _, _ := strings.Cut(rest, `"`)
	expect.Contains(t, b.visit(t, path).body, `name="id" value="`+id+`"`) // in every copy of the page
	for range 2 {
		is.Equal(b.submit(t, path+"/messages", url.Values{"id": {id}, "text": {`tidy "all"`}}).path, path)
	}
	_, messages := s.Call(t, token, "GET", "/api/collections/messages/records", nil)
	is.Equal(messages["totalItems"], 2.0)
}

func TestAChatIsRenamedAndArchived(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	s.User(t, "bob", "user")
	b := loggedIn(t, s, "ada")
	chat := s.Chat(t, token, "Tidy up")
	path := "/chats/" + chat
	expect.Contains(t, b.visit(t, path).body, `action="`+path+`"`)
	renamed := b.submit(t, path, url.Values{"title": {"A <new> name"}})
	is.Equal([]any{renamed.status, renamed.path}, []any{http.StatusOK, path})
	expect.Contains(t, renamed.body, "<h1>A &lt;new&gt; name</h1>")
	expect.Contains(t, renamed.body, ">Archive</button>")

	row := `href="` + path + `"`
	expect.Contains(t, b.visit(t, "/").body, row)
	expect.Contains(t, b.visit(t, "/").body, `href="/?archived=true"`)
	expect.Lacks(t, b.visit(t, "/?archived=true").body, row)
	expect.Contains(t, b.submit(t, path, url.Values{"archived": {"true"}}).body, ">Unarchive</button>")
	expect.Lacks(t, b.visit(t, "/").body, row)
	archived := b.visit(t, "/?archived=true").body
	expect.Contains(t, archived, row)
	expect.Contains(t, archived, "&amp;archived=true\"") // its stream has the same chats
	expect.Contains(t, archived, "A &lt;new&gt; name")
	b.submit(t, path, url.Values{"archived": {"false"}})
	expect.Contains(t, b.visit(t, "/").body, row)
	is.Equal(loggedIn(t, s, "bob").submit(t, path, url.Values{"title": {"mine"}}).status, http.StatusNotFound)
	expect.Contains(t, b.visit(t, path).body, "<h1>A &lt;new&gt; name</h1>")
}

func TestTheMenuOfAChatShowsWhoAnswersAndWhatWasSpent(t *testing.T) {
	t.Parallel()
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	chat := s.ChatWithAnswer(t, token)
	s.Assistant(t, chat, "msg_1", `,"agent":"old","providerID":"acme","modelID":"small","cost":0.5,"tokens":{"input":10,"output":1,"reasoning":2,"cache":{"read":3,"write":4}},"time":{"completed":2}`)
	s.Assistant(t, chat, "msg_2", `,"agent":"build","providerID":"acme","modelID":"large\u202e","cost":0.25,"tokens":{"input":20000,"output":5,"reasoning":0,"cache":{"read":0,"write":0}},"time":{"completed":2}`)
	page := b.visit(t, "/chats/"+chat).body
	_, menu, _ := strings.Cut(page, `id="menu"`)
	menu, _, _ = strings.Cut(menu, "</details>")
	for _, piece := range []string{`acme/large<b class="hidden">&lt;U+202E&gt;</b>`, "build", "20k in, 8 out", "US$0.75"} {
		expect.Contains(t, menu, piece)
	}
}

// appendUserMessage appends a message of a person that OpenCode has stored.
func appendUserMessage(t *testing.T, s *webtest.System, chat, message, text string) {
	t.Helper()
	s.AppendOpenCode(t, chat, "message.updated", `{"sessionID":"ses_own","info":{"id":"`+message+
		`","sessionID":"ses_own","role":"user","time":{"created":1}}}`)
	s.TextPart(t, chat, message, "prt_"+message, text, "")
}

func TestTheEndOfAChatIsUndoneAndRedone(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	s.User(t, "bob", "user")
	b := loggedIn(t, s, "ada")
	chat := s.ChatWithAnswer(t, token)
	path := "/chats/" + chat
	expect.Lacks(t, b.visit(t, path).body, "Undo the last turn") // there is none
	changeFile := func(message string) {
		s.AppendOpenCode(t, chat, "message.part.updated", `{"sessionID":"ses_own","part":{"id":"prt_9`+message+
			`","messageID":"`+message+`","sessionID":"ses_own","type":"patch","hash":"x","files":["/w/a.go"]}}`)
	}
	appendUserMessage(t, s, chat, "msg_1", "make a file")
	changeFile("msg_1")
	appendUserMessage(t, s, chat, "msg_3", "make another")
	menu := func(page string) string {
		_, menu, _ := strings.Cut(page, `id="menu"`)
		menu, _, _ = strings.Cut(menu, "</details>")
		return menu
	}
	expect.Contains(t, menu(b.visit(t, path).body), `name="message" value="msg_3"`)

	is.Equal(loggedIn(t, s, "bob").submit(t, path+"/undo", url.Values{"message": {"msg_3"}}).status, http.StatusNotFound)
	undone := b.submit(t, path+"/undo", url.Values{"message": {"msg_3"}})
	is.Equal(undone.path, path)
	expect.Contains(t, s.Wire(t, events.ChatFilter(chat), 0), `{"message":"msg_3"}`)
	expect.Contains(t, undone.body, "Redo</button>")
	expect.Contains(t, undone.body, "No file was put back") // as without a Git repository
	changeFile("msg_3")
	expect.Contains(t, b.visit(t, path).body, "and their changes to files are undone")
	expect.Contains(t, menu(undone.body), `name="message" value="msg_1"`) // the turn before it

	redone := b.submit(t, path+"/undo", url.Values{"message": {""}}).body
	expect.Lacks(t, redone, "Redo</button>")
	expect.Contains(t, menu(redone), `name="message" value="msg_3"`)
	b.submit(t, path+"/undo", url.Values{"message": {"msg_3"}})
	appendUserMessage(t, s, chat, "msg_5", "something else")
	expect.Lacks(t, b.visit(t, path).body, "Redo</button>") // it is replaced
}

func TestTheAPIUndoesOnlyAMessageOfTheChatAndSaysIfNoFileIsPutBack(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	chat, other := s.ChatWithAnswer(t, token), s.Chat(t, token, "Another")
	appendUserMessage(t, s, chat, "msg_1", "say something")
	revert := func(chat, message string) (int, webtest.Object) {
		return s.Call(t, token, "POST", "/api/pocketcoder/chats/"+chat+"/revert", webtest.Object{"message": message})
	}
	for _, c := range [][]string{{chat, "msg_2"}, {other, "msg_1"}} {
		status, answer := revert(c[0], c[1])
		is.Equal(status, http.StatusBadRequest)
		expect.Contains(t, answer["message"].(string), "The chat has no message")
		expect.Lacks(t, s.Wire(t, events.ChatFilter(c[0]), 0), "revert.requested")
	}
	status, answer := revert(chat, "msg_1")
	is.Equal(status, http.StatusOK)
	expect.Contains(t, answer["note"].(string), "the workspace is not in a Git repository")
}

func TestAnUndoNamesTheChangedFilesBeforeAndAsks(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	s.ChangedFiles = []string{"/w/<a>.go", "/w/b.go"}
	_, token := s.User(t, "ada", "user")
	s.User(t, "bob", "user")
	b := loggedIn(t, s, "ada")
	chat := s.ChatWithAnswer(t, token)
	path := "/chats/" + chat
	appendUserMessage(t, s, chat, "msg_1", "make a file")
	requested := func() string { return s.Wire(t, events.ChatFilter(chat), 0) }

	revert := "/api/pocketcoder/chats/" + chat + "/revert"
	status, answer := s.Raw(t, token, "POST", revert, webtest.Object{"message": "msg_1"})
	is.Equal(status, http.StatusConflict)
	expect.Contains(t, string(answer), `/w/b.go"]`)
	status, _ = s.Raw(t, token, "POST", revert, webtest.Object{"message": "msg_1", "changed": "other"})
	is.Equal(status, http.StatusBadRequest)

	for _, asked := range []shown{b.submit(t, path+"/undo", url.Values{"message": {"msg_1"}}),
		b.submit(t, path+"/messages", url.Values{"text": {"/undo"}})} {
		is.Equal(asked.path, path+"/undo?message=msg_1")
		expect.Contains(t, asked.body, "/w/&lt;a&gt;.go")
		expect.Contains(t, asked.body, `name="message" value="msg_1"`)
		expect.Contains(t, asked.body, `name="changed" value="keep"`)
		expect.Contains(t, asked.body, `<a href="`+path+`">Cancel</a>`)
		expect.Contains(t, asked.body, `<button class="deny" name="changed" value="overwrite">Overwrite them</button>`)
	}
	is.Equal(loggedIn(t, s, "bob").visit(t, path+"/undo?message=msg_1").status, http.StatusNotFound)
	expect.Lacks(t, requested(), "revert.requested")

	is.Equal(b.submit(t, path+"/undo", url.Values{"message": {"msg_1"}, "changed": {"keep"}}).path, path)
	expect.Contains(t, requested(), `{"message":"msg_1"}`)
	_, rest, _ := strings.Cut(requested(), "revert.requested")
	_, rest, _ = strings.Cut(rest, `"id":"`)
	effect, _, _ := strings.Cut(rest, `"`)
	s.Append(t, chat, events.EffectDone{Effect: effect, Kept: s.ChangedFiles})
	expect.Contains(t, b.visit(t, path).body, "because they were changed later: /w/&lt;a&gt;.go, /w/b.go")

	b.submit(t, path+"/undo", url.Values{"message": {"msg_1"}, "changed": {"overwrite"}})
	expect.Contains(t, requested(), `{"message":"msg_1","overwrite":true}`)
}

func TestAChatIsForkedFromAMessage(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	s.User(t, "bob", "user")
	b := loggedIn(t, s, "ada")
	chat := s.ChatWithAnswer(t, token)
	path := "/chats/" + chat
	appendUserMessage(t, s, chat, "msg_1", "make a file")
	page, _, _ := strings.Cut(b.visit(t, path).body, `<pre id="part-prt_msg_1"`)
	_, form, _ := strings.Cut(page, `<article id="m-`)
	expect.Contains(t, form, `action="`+path+`/fork"`)
	expect.Contains(t, form, `name="message" value="msg_1"`)
	fork := b.submit(t, path+"/fork", url.Values{"message": {"msg_1"}})
	is.Equal(fork.status, http.StatusOK)
	is.True(fork.path != path && strings.HasPrefix(fork.path, "/chats/"))
	expect.Contains(t, fork.body, "<h1>talk (fork)</h1>")
	expect.Contains(t, s.Wire(t, events.ChatFilter(chat), 0), `{"message":"msg_1","chat":"`+
		strings.TrimPrefix(fork.path, "/chats/")+`"}`)
	is.Equal(loggedIn(t, s, "bob").submit(t, path+"/fork", url.Values{"message": {"msg_1"}}).status, http.StatusNotFound)
}

func TestTheChangesOfAChatAreShownWhole(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	s.User(t, "bob", "user")
	b := loggedIn(t, s, "ada")
	chat := s.ChatWithAnswer(t, token)
	path := "/chats/" + chat
	diffs := map[string]string{
		"msg_1": `[{"file":"a\u202e.go","patch":"Index: a.go\n===\n--- a.go\n+++ a.go\n@@ -1,2 +1,2 @@\n-old <b>\n+new\u001b[2K\n same\n","additions":1,"deletions":1,"status":"modified"}]`,
		"msg_3": `[{"file":"b.go","patch":"@@ -0,0 +1,2 @@\n+one\n+two\n","additions":2,"deletions":0,"status":"added"},{"file":"c.png","patch":"","additions":0,"deletions":0,"status":"added"}]`,
	}
	s.Web.Chats.Engine.Diff = func(_ context.Context, of, message string) (json.RawMessage, error) {
		is.Equal(of, chat)
		return json.RawMessage(diffs[message]), nil
	}
	link := `href="` + path + `/changes"`
	turn := func(prompt, answer, text, part string) {
		appendUserMessage(t, s, chat, prompt, text)
		s.AppendOpenCode(t, chat, "message.updated", `{"sessionID":"ses_own","info":{"id":"`+answer+
			`","role":"assistant","parentID":"`+prompt+`","time":{"completed":2}}}`)
		s.AppendOpenCode(t, chat, "message.part.updated",
			`{"sessionID":"ses_own","part":{"id":"prt_`+answer+`","messageID":"`+answer+
				`","sessionID":"ses_own",`+part+`}}`)
	}
	const patch = `"type":"patch","hash":"x","files":["/w/a"]`
	turn("msg_0", "msg_0a", "only talk", `"type":"text","text":"hello"`)
	expect.Lacks(t, b.visit(t, path).body, link)
	expect.Contains(t, b.visit(t, path+"/changes").body, "No files changed.</h1><p class=\"hint\">OpenCode records changes only")
	turn("msg_1", "msg_2", "change a", patch)
	turn("msg_3", "msg_4", "add b and c", patch)
	expect.Contains(t, b.visit(t, path).body, link)

	page := b.visit(t, path+"/changes").body
	at := 0
	for _, piece := range []string{
		"3 files +3 −1", "add b and c", "b.go", "added", "+2 −0", "<span class=\"added\" data-line=\"1\">+one\n</span>",
		"c.png", "OpenCode reports no lines for this change.",
		"change a", `a<b class="hidden">&lt;U+202E&gt;</b>.go`, "modified", "+1 −1", "<span class=\"hunk\">@@ -1,2 +1,2 @@\n</span>",
		"<span class=\"removed\" data-line=\"1\">-old &lt;b&gt;\n</span>",
		"data-line=\"1\">+<span class=\"k\">new</span><b class=\"hidden\">␛</b>[", " same",
	} {
		i := strings.Index(page[at:], piece)
		if i < 0 {
			t.Fatalf("%q is not where it should be in %s", piece, page)
		}
		at += i
	}
	expect.Lacks(t, page, "only talk")
	long, err := json.Marshal([]map[string]any{{"file": "long.go",
		"patch": "@@ -0,0 +1 @@\n" + strings.Repeat("+x\n", 30_000)}})
	is.NoErr(err)
	diffs["msg_3"] = string(long)
	page = b.visit(t, path+"/changes").body
	expect.Contains(t, page, "The page has no room for these lines.")
	expect.Contains(t, page, "same") // of the other turn
	is.True(len(page) < 100_000)
	is.Equal(loggedIn(t, s, "bob").visit(t, path+"/changes").status, http.StatusNotFound)

	diffs["msg_3"] = `[{"file":"b.go","patch":7},{"file":"c.go","patch":"@@ -0,0 +1 @@\n+three\n"}]`
	page = b.visit(t, path+"/changes").body
	expect.Contains(t, page, "b.go")
	is.Equal(strings.Count(page, "These lines are missing. OpenCode&#39;s answer is malformed."), 1)
	expect.Contains(t, page, "+three")
	diffs["msg_3"] = `"none"`
	page = b.visit(t, path+"/changes").body
	expect.Contains(t, page, "/w/a") // the log names the files
	expect.Contains(t, page, "These lines are missing. OpenCode&#39;s answer is malformed.")
	expect.Contains(t, page, "same") // of the other turn
}

func TestTheTodoListIsTheNewestOfTheChat(t *testing.T) {
	t.Parallel()
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	chat := s.ChatWithAnswer(t, token)
	path := "/chats/" + chat
	writes := func(message, status, todos string) {
		s.Assistant(t, chat, message, webtest.Ended)
		s.AppendOpenCode(t, chat, "message.part.updated", `{"sessionID":"ses_own","part":{"id":"prt_`+message+`","messageID":"`+message+`","sessionID":"ses_own",
			"type":"tool","tool":"todowrite","callID":"c","state":{"status":"`+status+`","input":{"todos":`+todos+`}}}}`)
	}
	expect.Lacks(t, b.visit(t, path).body, `id="todo"`)
	writes("msg_1", "completed", `[{"content":"an old task","status":"pending","priority":"high"}]`)
	writes("msg_2", "completed", `[{"content":"map <b>all</b>\u202e","status":"completed"},{"content":"dig","status":"in_progress"},{"content":"fill","status":"pending"}]`)
	writes("msg_3", "error", `[{"content":"refused","status":"pending"}]`)
	foot := func() string {
		_, foot, _ := strings.Cut(b.visit(t, path).body, `id="todo"`)
		foot, _, _ = strings.Cut(foot, "</details>")
		return foot
	}
	for _, piece := range []string{"1 of 3 tasks done: dig",
		`map &lt;b&gt;all&lt;/b&gt;<b class="hidden">&lt;U+202E&gt;</b>`, "✓", "▸", "fill"} {
		expect.Contains(t, foot(), piece)
	}
	expect.Lacks(t, foot(), "an old task")
	expect.Lacks(t, foot(), "refused")
	writes("msg_4", "completed", `"none"`) // of a form that OpenCode does not have
	expect.Lacks(t, b.visit(t, path).body, `id="todo"`)
}
