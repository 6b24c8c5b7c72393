package pages_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

// found are the hits of a search over the API, each as its kind and its snippet with marks.
func found(t *testing.T, s *webtest.System, token, query string) (hits []string) {
	t.Helper()
	status, answer := s.Call(t, token, "GET", "/api/pocketcoder/search?q="+url.QueryEscape(query), nil)
	if status != http.StatusOK {
		t.Fatalf("search %q: %d %v", query, status, answer)
	}
	for _, one := range answer["items"].([]any) {
		hit := one.(map[string]any)
		text := hit["kind"].(string) + " "
		for _, piece := range hit["snippet"].([]any) {
			p := piece.(map[string]any)
			if p["match"] == true {
				p["text"] = "[" + p["text"].(string) + "]"
			}
			text += p["text"].(string)
		}
		hits = append(hits, text)
	}
	return hits
}

func TestTextsAreFoundInTheChatsThatAnAccountSees(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	_, bob := s.User(t, "bob", "user")
	_, root := s.User(t, "root", "admin")
	b := loggedIn(t, s, "ada")
	chat := s.Chat(t, token, "Rivers of Europe")
	submitMessage(t, s, chat, "msg_1", written("The Rhône flows <b>south</b>."), written("max_open_conns is the setting."),
		map[string]any{"type": "tool", "tool": "bash", "callID": "c",
			"state": map[string]any{"status": "completed", "input": map[string]any{"command": "wc -l delta.txt"},
				"output": "7 lagoon\u202e"}})
	submitMessage(t, s, chat, "msg_2", written("The Rhine flows north."))
	id := needed(t, s, chat, "per_1", "make everything")
	status, _ := s.Call(t, token, "PATCH", webtest.RecordsPath("permissions")+"/"+id,
		map[string]any{"status": "denied", "reason": "use the estuary instead"})
	is.Equal(status, 200)
	for query, want := range map[string][]string{
		// the newest first
		"flows":           {"message The Rhine [flows] north.", "message The Rhône [flows] <b>south</b>."},
		"rhone FLOWS":     {"message The [Rhône] [flows] <b>south</b>."},
		"river":           {"chat [Rivers] of Europe"},
		"max_open_conns":  {"message [max_open_conns] is the setting."},
		"open":            nil, // a name is one word
		"delta.txt":       {"message wc -l [delta.txt]\n7 lagoon\u202e"},
		"lagoon":          {"message wc -l delta.txt\n7 [lagoon]\u202e"},
		"estuary instead": {"request use the [estuary] [instead]"},
		"flows rhine x":   nil,
		"":                nil, "   ": nil, "*": nil, `"`: nil, `""`: nil, "-": nil, "\x00": nil, "\xff": nil, "(": nil, "'; DROP TABLE parts; --": nil,
		`flows" OR "x`:       nil,
		"flows OR x":         nil, // OR is a word
		"flows NOT rhine":    nil,
		"text:flows":         nil,
		"NEAR(flows rhine)":  nil,
		"^flows":             {"message The Rhine [flows] north.", "message The Rhône [flows] <b>south</b>."},
		`"flows*" + (north)`: {"message The Rhine [flows] [north]."},
	} {
		is.Equal(found(t, s, token, query), want) // query
	}
	is.Equal(found(t, s, bob, "flows"), nil)
	is.Equal(len(found(t, s, root, "flows")), 2)
	status, _ = s.Call(t, token, "GET", "/api/pocketcoder/search?q="+strings.Repeat("x", 201), nil)
	is.Equal(status, http.StatusBadRequest)
	status, _ = s.Call(t, "", "GET", "/api/pocketcoder/search?q=x", nil)
	is.Equal(status, http.StatusUnauthorized)

	page := b.visit(t, "/search?q="+url.QueryEscape("lagoon")).body
	expect.Contains(t, page, `<mark>lagoon</mark><b class="hidden">&lt;U+202E&gt;</b>`)
	page = b.visit(t, "/search?q=flows").body
	expect.Contains(t, page, "&lt;b&gt;south")
	expect.Contains(t, page, "Rivers of Europe")
	expect.Contains(t, b.visit(t, "/search?q=x"+url.QueryEscape(`"><script>`)).body, "Nothing was found.")
	expect.Contains(t, b.visit(t, "/search").body, "All words must occur in one text.")
	expect.Contains(t, b.visit(t, "/").body, `action="/search"`)

	// what was said before is not there any more
	submitMessage(t, s, chat, "msg_2", written("The Elbe does."), written("What else?"))
	is.Equal(found(t, s, token, "rhine"), nil)
	is.Equal(found(t, s, token, "elbe"), []string{"message The [Elbe] does."})
	s.AppendOpenCode(t, chat, "message.removed", `{"sessionID":"ses_`+chat+`","messageID":"msg_2"}`)
	is.Equal(found(t, s, token, "elbe"), nil)
	status, _ = s.Call(t, token, "PATCH", webtest.RecordsPath("chats")+"/"+chat, map[string]any{"title": "Lakes"})
	is.Equal(status, 200)
	is.Equal(found(t, s, token, "river"), nil)
	is.Equal(found(t, s, token, "lake"), []string{"chat [Lakes]"})
	status, _ = s.Call(t, token, "DELETE", webtest.RecordsPath("chats")+"/"+chat, nil)
	is.Equal(status, http.StatusNoContent)
	is.Equal(found(t, s, token, "rhone"), nil)
}

func TestASearchLeadsToThePlaceOfAText(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	chat := s.Chat(t, token, "Numbers")
	submitMessages(t, s, chat, 450, "answer n%03d.")
	open := func(word string) string {
		page := b.visit(t, "/search?q="+word).body
		_, rest, _ := strings.Cut(page, `<ol class="hits">`)
		_, rest, _ = strings.Cut(rest, `href="`)
		path, _, _ := strings.Cut(rest, `"`)
		path, id, _ := strings.Cut(path, "#")
		shown := b.visit(t, path).body
		expect.Contains(t, shown, `id="`+id+`"`)
		expect.Contains(t, element(t, shown, id), "answer "+word)
		is.Equal(strings.Count(shown, "<article"), 200)
		return shown
	}
	middle := open("n100")
	is.True(strings.Contains(middle, "answer n001.") && strings.Contains(middle, "answer n200.") &&
		!strings.Contains(middle, "answer n201."))
	expect.Lacks(t, middle, "data-live")
	expect.Contains(t, open("n440"), "data-live") // the end of the chat
	is.Equal(b.visit(t, "/chats/"+chat+"?around=x").status, http.StatusBadRequest)
}
