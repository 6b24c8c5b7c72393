package pages_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

// queueOf returns the texts of the queue on the page of a chat, in order.
func queueOf(page string) (texts []string) {
	_, queue, _ := strings.Cut(page, `id="queue"`)
	for _, one := range strings.Split(queue, `<li id="queued-`)[1:] {
		_, one, _ = strings.Cut(one, `class="said">`)
		one, _, _ = strings.Cut(one, "</pre>")
		texts = append(texts, one)
	}
	return texts
}

func TestAPersonChangesTheQueueOfAChat(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	s.User(t, "bob", "user")
	b, bob := loggedIn(t, s, "ada"), loggedIn(t, s, "bob")
	chat := s.Chat(t, token, "Tidy up")
	path := "/chats/" + chat
	for _, id := range []string{"one", "two", "three"} {
		b.submit(t, path+"/messages", url.Values{"id": {id}, "text": {"do " + id}})
	}
	is.Equal(queueOf(b.visit(t, path).body), []string{"do one", "do two", "do three"})
	change := func(message, field, value string) []string {
		t.Helper()
		page := b.submit(t, path+"/queue/"+message, url.Values{field: {value}})
		is.Equal([]any{page.status, page.path}, []any{http.StatusOK, path})
		return queueOf(page.body)
	}
	// The buttons have the values that these submit.
	_, two, _ := strings.Cut(b.visit(t, path).body, `id="queued-two"`)
	two, _, _ = strings.Cut(two, "</li>")
	for _, piece := range []string{
		`action="` + path + `/queue/two"`, `name="before" value="one" aria-label="Move up"`,
		`name="before" value="" aria-label="Move down"`,
		`name="delivery" value="steer">Send now`, `name="delete" value="true">Delete`, "required>\ndo two</textarea>",
	} {
		expect.Contains(t, two, piece)
	}
	is.Equal(change("two", "before", "one"), []string{"do two", "do one", "do three"})
	is.Equal(change("two", "before", "three"), []string{"do one", "do two", "do three"})
	is.Equal(change("one", "before", ""), []string{"do two", "do three", "do one"})
	is.Equal(change("three", "text", "do <b>3</b>"), []string{"do two", "do &lt;b&gt;3&lt;/b&gt;", "do one"})
	is.Equal(change("one", "delivery", "steer"), []string{"do one", "do two", "do &lt;b&gt;3&lt;/b&gt;"})
	expect.Lacks(t, strings.Split(b.visit(t, path).body, `id="queued-two"`)[0],
		`value="steer">Send now</button><button class="quiet" name="delete"`)
	is.Equal(change("two", "delete", "true"), []string{"do one", "do &lt;b&gt;3&lt;/b&gt;"})

	is.Equal(bob.submit(t, path+"/queue/three", url.Values{"text": {"mine"}}).status, http.StatusNotFound)
	is.Equal(bob.submit(t, path+"/queue/three", url.Values{"delete": {"true"}}).status, http.StatusNotFound)
	expect.Contains(t, b.submit(t, path+"/queue/three", url.Values{"text": {" "}}).body, "Write a message first.")
	s.Append(t, chat, events.MessageSending{Message: "three", Session: "ses_1", EngineMessage: "msg_1",
		EngineParts: []string{"prt_1"}})
	for _, field := range []string{"text", "before", "delivery", "delete"} {
		late := b.submit(t, path+"/queue/three", url.Values{field: {map[string]string{"text": "late", "before": "one",
			"delivery": "steer", "delete": "true"}[field]}})
		is.Equal(late.status, http.StatusBadRequest)
		expect.Contains(t, late.body, "This message was sent already. It can no longer be changed.")
	}
}
