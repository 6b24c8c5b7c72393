package web_test

import (
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/handlers/account"
	"pocketcoder/web/webtest"
)

// faultOf returns the message about a field in a refusal.
func faultOf(answer webtest.Object, field string) string {
	data, _ := answer["data"].(webtest.Object)
	fault, _ := data[field].(webtest.Object)
	message, _ := fault["message"].(string)
	return message
}

func TestInvalidRulesAreRefusedWithTheColumnOfTheError(t *testing.T) {
	t.Parallel()
	s := webtest.NewSystem(t)
	_, root := s.User(t, "root", account.Admin)
	for name, c := range map[string]struct {
		collection string
		body       webtest.Object
		field      string
	}{
		"a pattern with a NUL":             {"tool_permissions", webtest.Object{"tool": "bash", "pattern": "git \x01status", "action": "allow"}, "pattern"},
		"a pattern of spaces":              {"tool_permissions", webtest.Object{"tool": "bash", "pattern": "   ", "action": "allow"}, "pattern"},
		"an open quote":                    {"tool_permissions", webtest.Object{"tool": "bash", "pattern": "git 'status", "action": "allow"}, "pattern"},
		"an action of another kind":        {"tool_permissions", webtest.Object{"tool": "bash", "pattern": "git status", "action": "always"}, "action"},
		"a time that has passed":           {"tool_permissions", webtest.Object{"tool": "bash", "pattern": "ls", "action": "allow", "expires_at": "2020-01-01 00:00:00.000Z"}, "expires_at"},
		"a strict value with a star":       {"whitelist_actions", webtest.Object{"permission": "bash", "kind": "strict", "value": "git *"}, "value"},
		"a value with a control character": {"whitelist_actions", webtest.Object{"permission": "bash", "kind": "pattern", "value": "git\x02*"}, "value"},
		"a target with a NUL":              {"whitelist_targets", webtest.Object{"name": "n", "pattern": "/workspace/\x01"}, "pattern"},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			status, answer := s.Call(t, root, "POST", webtest.RecordsPath(c.collection), c.body)
			is.Equal(status, 400)
			text := faultOf(answer, c.field)
			is.True(text != "") // the field at fault is named
			if c.field == "pattern" || c.field == "value" {
				is.True(strings.HasPrefix(text, "column ")) // and the column
			}
		})
	}
}

func TestChangedRuleIsCheckedAndPausedRuleIsNot(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	root, token := s.User(t, "root", account.Admin)
	status, rule := s.Call(t, token, "POST", webtest.RecordsPath("tool_permissions"),
		webtest.Object{"tool": "bash", "pattern": "git status*", "action": "allow", "active": true, "author": "another",
			"note": "mine"})
	is.Equal(status, 200)
	is.Equal([]any{rule["author"], rule["chat"], rule["expires_at"], rule["note"]}, []any{root, "", "", "mine"})
	at := webtest.RecordsPath("tool_permissions") + "/" + rule["id"].(string)
	status, _ = s.Call(t, token, "PATCH", at, webtest.Object{"pattern": "git\x01"})
	is.Equal(status, 400)
	status, paused := s.Call(t, token, "PATCH", at, webtest.Object{"active": false})
	is.Equal([]any{status, paused["active"]}, []any{200, false})
	rule["active"] = true // the whole record, as a client has cached it
	status, _ = s.Call(t, token, "PATCH", at, rule)
	is.Equal(status, 200)
	status, _ = s.Call(t, token, "POST", webtest.RecordsPath("tool_permissions"),
		webtest.Object{"tool": "bash", "pattern": "git status*", "action": "deny"})
	is.Equal(status, 400) // there is a rule with this value
}

func TestRulesOfAChatBelongToItsOwner(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	ada, adas := s.User(t, "ada", account.User)
	_, bobs := s.User(t, "bob", account.User)
	_, bots := s.User(t, "bot", account.Agent)
	_, roots := s.User(t, "root", account.Admin)
	chat, other := s.Chat(t, adas, "ada's"), s.Chat(t, adas, "another of ada's")
	followers := map[string]*webtest.Follower{}
	for name, token := range map[string]string{"ada": adas, "bob": bobs, "root": roots} {
		followers[name] = s.Connect(t).Follow(t, token, "tool_permissions/*")
	}
	body := func(chat string) webtest.Object {
		return webtest.Object{"tool": "bash", "pattern": "make test", "action": "allow", "active": true, "chat": chat}
	}
	for _, token := range []string{bobs, bots} {
		status, _ := s.Call(t, token, "POST", webtest.RecordsPath("tool_permissions"), body(chat))
		is.Equal(status, 400)
	}
	for _, token := range []string{adas, bobs, bots} {
		status, _ := s.Call(t, token, "POST", webtest.RecordsPath("tool_permissions"), body(""))
		is.Equal(status, 400) // only administrators create rules for all chats
	}
	status, rule := s.Call(t, adas, "POST", webtest.RecordsPath("tool_permissions"), body(chat))
	is.Equal([]any{status, rule["author"], rule["chat"]}, []any{200, ada, chat})
	// the same for all is another rule
	status, global := s.Call(t, roots, "POST", webtest.RecordsPath("tool_permissions"), body(""))
	is.Equal(status, 200)

	at := webtest.RecordsPath("tool_permissions") + "/" + rule["id"].(string)
	for token, want := range map[string]int{adas: 200, bobs: 404, roots: 200} {
		status, _ = s.Call(t, token, "GET", at, nil)
		is.Equal(status, want)
		status, _ = s.Call(t, token, "GET", webtest.RecordsPath("tool_permissions")+"/"+global["id"].(string), nil)
		is.Equal(status, 200)
	}
	for name, f := range followers {
		first := f.Next(t).Data.Record["id"]
		is.Equal(first == rule["id"], name != "bob") // bob gets only the event of the other rule
	}

	for _, change := range []webtest.Object{{"chat": ""}, {"chat": other}} {
		status, _ = s.Call(t, adas, "PATCH", at, change)
		is.Equal(status, 400)
	}
	for _, token := range []string{bobs, bots} {
		status, _ = s.Call(t, token, "PATCH", at, webtest.Object{"active": false})
		is.Equal(status, 404)
	}
	status, _ = s.Call(t, adas, "PATCH", at, webtest.Object{"active": false})
	is.Equal(status, 200)
	status, _ = s.Call(t, adas, "DELETE", webtest.RecordsPath("tool_permissions")+"/"+global["id"].(string), nil)
	is.Equal(status, 404)
	status, _ = s.Call(t, adas, "DELETE", at, nil)
	is.Equal(status, 204)
}

func TestEditedApprovalNamesTheCommandThatRuns(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ada := s.User(t, "ada", account.User)
	_, root := s.User(t, "root", account.Admin)
	chat := s.Chat(t, ada, "x")
	at := webtest.RecordsPath("permissions") + "/" + s.AppendRequest(t, chat, "per_1")
	for _, bad := range []webtest.Object{
		{"edited": "ls -l"}, {"status": "denied", "edited": "ls -l"}, {"status": "authorized", "edited": "ls \x00"},
		{"status": "authorized", "expires_in": -1}, {"status": "denied", "expires_in": 60}, {"status": "authorized", "expires_in": "soon"},
	} {
		status, answer := s.Call(t, ada, "PATCH", at, bad)
		is.Equal(status, 400) // bad
		is.True(len(answer["data"].(webtest.Object)) == 1)
	}
	_, cached := s.Call(t, ada, "GET", at, nil)
	is.Equal([]any{cached["status"], cached["edited"]}, []any{"draft", ""})

	// the client shows another request
	for field, shown := range map[string]string{"shown_command": "id", "shown_request": "another"} {
		for _, status := range []string{"authorized", "denied"} {
			code, answer := s.Call(t, ada, "PATCH", at, webtest.Object{"status": status, field: shown})
			is.Equal(code, 400)
			is.True(faultOf(answer, field) != "")
		}
	}
	is.True(cached["request"] != "")

	edit := webtest.Object{"status": "authorized", "edited": "ls -l", "expires_in": 3600, "shown_command": "ls",
		"shown_request": cached["request"]}
	status, decided := s.Call(t, ada, "PATCH", at, edit)
	is.Equal([]any{status, decided["status"], decided["edited"]}, []any{200, "authorized", "ls -l"})
	is.True(strings.HasPrefix(decided["device"].(string), "Go-http-client"))
	expires, err := time.Parse("2006-01-02 15:04:05.000Z", decided["expires"].(string))
	is.NoErr(err)
	is.True(time.Until(expires) > 50*time.Minute && time.Until(expires) < time.Hour)

	status, _ = s.Call(t, ada, "PATCH", at, edit) // repeats the decision
	is.Equal(status, 200)
	status, _ = s.Call(t, ada, "PATCH", at, decided) // so does a PATCH with the whole record
	is.Equal(status, 200)
	same := webtest.RecordsPath("permissions") + "/" + s.AppendRequest(t, chat, "per_2")
	for range 2 { // the requested command itself is no edit
		status, plain := s.Call(t, ada, "PATCH", same, webtest.Object{"status": "authorized", "edited": "ls"})
		is.Equal([]any{status, plain["edited"]}, []any{200, ""})
	}
	cached["status"] = "authorized" // another device allowed the requested command
	for _, late := range []webtest.Object{cached, {"status": "authorized"}, {"status": "authorized", "edited": "ls -a"},
		{"status": "denied"}, {"edited": "ls"}} {
		status, answer := s.Call(t, root, "PATCH", at, late)
		is.Equal(status, 400) // late
		is.True(faultOf(answer, "edited")+faultOf(answer, "status") != "")
	}
	_, after := s.Call(t, ada, "GET", at, nil)
	is.Equal(after, decided)
}

func TestOnlyCommandsAreEdited(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ada := s.User(t, "ada", account.User)
	chat := s.Chat(t, ada, "x")
	s.AppendOpenCode(t, chat, "permission.asked",
		`{"id":"per_e","sessionID":"ses_1","permission":"edit","patterns":["a.txt"],"always":["*"],"metadata":{"filepath":"/w/a.txt","diff":"+x"},"tool":{"messageID":"m","callID":"c"}}`)
	_, list := s.Call(t, ada, "GET", webtest.RecordsPath("permissions"), nil)
	at := webtest.RecordsPath("permissions") + "/" + list["items"].([]any)[0].(webtest.Object)["id"].(string)
	status, answer := s.Call(t, ada, "PATCH", at, webtest.Object{"status": "authorized", "edited": "ls"})
	is.Equal(status, 400)
	is.True(faultOf(answer, "edited") != "")
	status, _ = s.Call(t, ada, "PATCH", at, webtest.Object{"status": "authorized"})
	is.Equal(status, 200)
}

// Clients of PocketBase send no active.
func TestRuleCreatedWithoutActiveIsActive(t *testing.T) {
	t.Parallel()
	s := webtest.NewSystem(t)
	_, root := s.User(t, "root", account.Admin)
	for collection, body := range map[string]webtest.Object{
		"tool_permissions":  {"tool": "bash", "pattern": "rm*", "action": "deny"},
		"whitelist_actions": {"permission": "bash", "kind": "pattern", "value": "git status*"},
		"whitelist_targets": {"name": "docs", "pattern": "docs/**"},
	} {
		is := is.New(t)
		status, answer := s.Call(t, root, "POST", webtest.RecordsPath(collection), body)
		is.Equal(status, 200)
		is.Equal(answer["active"], true)
	}
	is := is.New(t)
	status, answer := s.Call(t, root, "POST", webtest.RecordsPath("tool_permissions"),
		webtest.Object{"tool": "bash", "pattern": "ls*", "action": "deny", "active": false})
	is.Equal([]any{status, answer["active"]}, []any{200, false})
}
