package pages_test

import (
	"bytes"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers/chat"
	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

func TestACommandIsCarriedOutInsteadOfSent(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	s.User(t, "bob", "user")
	b := loggedIn(t, s, "ada")
	chat := s.ChatWithAnswer(t, token)
	path := "/chats/" + chat
	write := func(text string) shown { return b.submit(t, path+"/messages", url.Values{"text": {text}}) }

	is.Equal(write(" /rename Two <rivers> ").path, path)
	expect.Contains(t, b.visit(t, path).body, "<h1>Two &lt;rivers&gt;</h1>")
	is.Equal(write("/changes").path, path+"/changes")
	is.Equal(write("/requests").path, "/requests")
	is.Equal(write("/undo").status, http.StatusBadRequest) // nothing was sent yet
	appendUserMessage(t, s, chat, "msg_1", "one")
	is.Equal(write("/undo").path, path)
	is.True(write("/fork").path != path)
	is.Equal(write("/archive").path, path)
	expect.Contains(t, b.visit(t, "/?archived=true").body, "Two &lt;rivers&gt;")

	// another client's message
	is.Equal(b.submit(t, path+"/messages", url.Values{"text": {"/requests"}, "again": {"true"}}).path, path)
	for _, text := range []string{"/etc/hosts is a file", "/changes please", "/stop\nthat", "/unknown"} {
		is.Equal(write(text).path, path)
		expect.Contains(t, b.visit(t, path).body, text)
	}
	is.Equal(loggedIn(t, s, "bob").submit(t, path+"/messages", url.Values{"text": {"/rename mine"}}).status,
		http.StatusNotFound)
}

func TestAChatUsesTheModelThatAPersonSelects(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	chat := s.Chat(t, token, "models")
	path := "/chats/" + chat
	expect.Lacks(t, b.visit(t, path).body, `id="model"`)
	s.Provider(t, "acme", "large", "small")
	expect.Contains(t, b.visit(t, path).body, `<option value="acme/small">acme/small</option>`)
	is.Equal(b.submit(t, path+"/model", url.Values{"model": {"acme/small"}}).path, path)
	expect.Contains(t, b.visit(t, path).body, `<option value="acme/small" selected>`)
	is.Equal(b.submit(t, path+"/messages", url.Values{"text": {"/model acme/large"}}).path, path)
	expect.Contains(t, b.visit(t, path).body, `<option value="acme/large" selected>`)
	unknown := b.submit(t, path+"/messages", url.Values{"text": {"/model acme/huge"}})
	is.Equal(unknown.status, http.StatusBadRequest)
	expect.Contains(t, unknown.body, "acme/huge")
	s.User(t, "bob", "user")
	is.Equal(loggedIn(t, s, "bob").submit(t, path+"/model", url.Values{"model": {""}}).status, http.StatusNotFound)
	is.Equal(b.submit(t, path+"/model", url.Values{"model": {""}}).path, path)
	is.Equal(loggedIn(t, s, "bob").submit(t, path+"/model", url.Values{"model": {""}}).status, http.StatusNotFound)
	expect.Lacks(t, b.visit(t, path).body, " selected>acme")
}

func TestAPageCarriesOutTheCommandsThatItLists(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "admin")
	b := loggedIn(t, s, "ada")
	id := s.ChatWithAnswer(t, token)
	path := "/chats/" + id
	write := func(text string) shown { return b.submit(t, path+"/messages", url.Values{"text": {text}}) }
	help := write("/help")
	is.Equal(help.path, "/help")
	page := b.visit(t, path).body
	for _, c := range chat.SlashCommands(chat.Page) {
		expect.Contains(t, page, `data-command="`+c.Name+`"`)
		expect.Contains(t, help.body, "<dt>"+c.Usage()+"</dt>")
		write(c.Name)
	}
	_, messages := s.Call(t, token, "GET", webtest.RecordsPath("messages")+`?filter=role%3D"user"`, nil)
	is.Equal(messages["totalItems"], 0.0) // none was sent as a message

	_, agent := s.Call(t, token, "POST", webtest.RecordsPath("ai_agents"), webtest.Object{"name": "reviewer"})
	is.Equal(write("/agent reviewer").path, path)
	expect.Contains(t, b.visit(t, path).body, `<option value="`+agent["id"].(string)+`" selected>reviewer`)
	unknown := write("/agent missing")
	is.Equal(unknown.status, http.StatusBadRequest)
	expect.Contains(t, unknown.body, "none, ")
	expect.Contains(t, unknown.body, "reviewer")
	write("/agent none")
	expect.Lacks(t, b.visit(t, path).body, ` selected>reviewer`)
}

func TestFilesGoWithAMessage(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	chat := s.Chat(t, token, "files")
	path := "/chats/" + chat
	send := func(text string, files map[string]string) shown {
		var body bytes.Buffer
		form := multipart.NewWriter(&body)
		webtest.Check(t, form.WriteField("text", text))
		for name, content := range files {
			w, err := form.CreateFormFile("file", name)
			webtest.Check(t, err)
			_, err = w.Write([]byte(content))
			webtest.Check(t, err)
		}
		webtest.Check(t, form.Close())
		r, err := http.NewRequestWithContext(t.Context(), "POST", b.url+path+"/messages", &body)
		webtest.Check(t, err)
		r.Header.Set("Content-Type", form.FormDataContentType())
		r.Header.Set("Origin", b.url)
		r.Header.Set("Accept", "text/plain")
		resp, err := b.Client.Do(r)
		webtest.Check(t, err)
		defer resp.Body.Close()
		return shown{status: resp.StatusCode, header: resp.Header}
	}
	is.Equal(send("look", map[string]string{"notes.go": "package x // ü"}).status, http.StatusNoContent)
	is.Equal(send("", map[string]string{"pixel.png": "\x89PNG\r\n\x1a\n\x00\x00"}).status, http.StatusNoContent)
	is.Equal(send("", map[string]string{"": ""}).status, http.StatusBadRequest)
	is.Equal(send("", map[string]string{"big": strings.Repeat("x", 1<<20)}).status, http.StatusRequestEntityTooLarge)
	is.Equal(send("", map[string]string{"huge": strings.Repeat("x", 9<<20)}).status, http.StatusRequestEntityTooLarge)
	status, refused := s.Call(t, token, "POST", webtest.RecordsPath("messages"), webtest.Object{"chat": chat,
		"role": "user", "parts": []any{webtest.Object{"type": "text", "text": strings.Repeat("x", 1<<20)}}})
	is.Equal(status, http.StatusRequestEntityTooLarge)
	expect.Contains(t, refused["message"].(string), "The value has 1048603 bytes. The limit is 1048576 bytes.")
	_, list := s.Call(t, token, "GET", webtest.RecordsPath("messages")+"?sort=position", nil)
	items := list["items"].([]any)
	is.Equal(len(items), 2)
	first := items[0].(webtest.Object)["parts"].([]any)
	is.Equal(first[0].(webtest.Object)["text"], "look")
	is.Equal(first[1].(webtest.Object)["mime"], "text/plain")
	is.Equal(items[1].(webtest.Object)["parts"].([]any)[0].(webtest.Object)["mime"], "image/png")
	expect.Contains(t, b.visit(t, path).body, "notes.go")
}

func TestSubagentsAreShownAsATreeWithTheirTranscripts(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	s.User(t, "bob", "user")
	b := loggedIn(t, s, "ada")
	chat := s.ChatWithAnswer(t, token)
	path := "/chats/" + chat
	start := func(session, parent, title string) {
		s.AppendOpenCode(t, chat, "session.created",
			`{"sessionID":"`+session+`","info":{"id":"`+session+`","parentID":"`+parent+
				`","title":"`+title+`","directory":"/w"}}`)
	}
	start("ses_a", "ses_own", "Look <around>")
	start("ses_b", "ses_a", "Look closer")
	s.AppendOpenCode(t, chat, "message.updated", `{"sessionID":"ses_b","info":{"id":"msg_b","sessionID":"ses_b","role":"assistant","time":{"created":1,"completed":2},"finish":"stop"}}`)
	s.AppendOpenCode(t, chat, "message.part.updated", `{"sessionID":"ses_b","part":{"id":"prt_b","messageID":"msg_b","sessionID":"ses_b","type":"text","text":"I **see**","time":{"start":1,"end":2}}}`)
	page := b.visit(t, path).body
	expect.Contains(t, page, "Subagents (2)")
	expect.Lacks(t, page, "<strong>see</strong>")
	_, tree, _ := strings.Cut(page, `id="subagents"`)
	_, inner, found := strings.Cut(tree, `<li class="depth-1"><a href="`)
	is.True(found)
	at, _, _ := strings.Cut(inner, `"`)
	transcript := b.visit(t, at)
	expect.Contains(t, transcript.body, "Look closer")
	expect.Contains(t, transcript.body, "<strong>see</strong>")
	stream := b.follow(t, transcript)
	expect.Lacks(t, stream.elements(), "<article") // the page has the messages
	message := func(id, text string) {
		s.AppendOpenCode(t, chat, "message.updated", `{"sessionID":"ses_b","info":{"id":"`+id+
			`","sessionID":"ses_b","role":"assistant","time":{"created":1,"completed":2},"finish":"stop"}}`)
		s.AppendOpenCode(t, chat, "message.part.updated", `{"sessionID":"ses_b","part":{"id":"prt_`+id+`","messageID":"`+id+
			`","sessionID":"ses_b","type":"text","text":"`+text+`","time":{"start":1,"end":2}}}`)
	}
	message("msg_c", "and more")
	expect.Lacks(t, stream.until("and more"), "<strong>see</strong>") // which did not change
	message("msg_b", "I see **it**")
	expect.Lacks(t, stream.until("<strong>it</strong>"), "and more")
	s.AppendOpenCode(t, chat, "message.removed", `{"sessionID":"ses_b","messageID":"msg_b"}`)
	expect.Lacks(t, stream.until("data-removed"), "and more")
	page = b.visit(t, at).body
	expect.Lacks(t, page, "<strong>it</strong>")
	expect.Contains(t, page, "and more")
	is.Equal(b.visit(t, path+"/subagents/none").status, http.StatusNotFound)
	is.Equal(loggedIn(t, s, "bob").visit(t, at).status, http.StatusNotFound)
}
