package web_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/delegate"
	"pocketcoder/web/api"
	"pocketcoder/web/webtest"
)

// operation is one of the description, with where it is.
type operation struct {
	api.Operation
	method, path string
}

// operations are those of the description, by path.
func operations(d api.Document) (list []operation) {
	for _, path := range slices.Sorted(maps.Keys(d.Paths)) {
		for _, method := range slices.Sorted(maps.Keys(d.Paths[path])) {
			list = append(list, operation{d.Paths[path][method], strings.ToUpper(method), path})
		}
	}
	return list
}

// TestEveryOperationDoesWhatItsDescriptionSays calls each with what is required and with all it takes, and compares the
// answer with the description.
func TestEveryOperationDoesWhatItsDescriptionSays(t *testing.T) {
	t.Parallel()
	s := webtest.NewSystem(t)
	d := s.Web.Document()
	admin, token := s.User(t, "admin", account.Admin)
	for _, o := range operations(d) {
		if o.path == "/api/chats/{id}/shell" {
			continue // it answers with a WebSocket: shell_test.go tests it
		}
		for _, complete := range []bool{false, true} {
			t.Run(fmt.Sprint(o.ID, " complete ", complete), func(t *testing.T) {
				s, token := s, token
				if o.path == "/api/pocketcoder/setup" {
					s, token = webtest.NewSystem(t), "" // it works where there is no administrator
				}
				fixtures := fixtures(s, t, o, admin, token)
				r := o.request(t, d, s, fixtures, complete)
				if o.Access != "public" {
					r.Header.Set("Authorization", token)
				}
				if secret, ok := fixtures["secret of the webhook"]; ok {
					r.Header.Set("Authorization", fmt.Sprint("Bearer ", secret))
				}
				answer, err := http.DefaultClient.Do(r)
				webtest.Check(t, err)
				defer answer.Body.Close()
				o.check(t, d, answer)
			})
		}
	}
}

// fixtures are values, by the name of a parameter or a property, with which the operation works. What is not here can
// be made up.
func fixtures(s *webtest.System, t *testing.T, o operation, admin, token string) map[string]any {
	t.Helper()
	f := map[string]any{
		"collection": "chats", "expand": "user", "fields": "*", "filter": `id != ""`, "sort": "-created", "skipTotal": "1", "page": 1, "perPage": 5,
		"after": 0, "deltas": "1", "since": time.Now().Format(time.RFC3339), "Last-Event-ID": 0, "subject": "evt.>", "stream": "stdout", "Range": "bytes=0-1", "message": "msg_1",
		"identity": "admin@example.org", "email": "new@example.org", "password": webtest.Password, "identityField": "email", "passwordConfirm": webtest.Password,
		"requests": []any{map[string]any{"method": "POST", "url": "/api/collections/chats/records", "body": map[string]any{"title": "of a batch"}}},
		"patterns": []string{"git status"}, "metadata": map[string]any{"command": "git status"}, "permission": "bash",
		api.DeadlineHeader: time.Now().Add(time.Hour).UnixMilli(),
	}
	if strings.Contains(o.path, "/auth-") {
		f["collection"] = "users"
		delete(f, "expand")
	}
	webtest.Check(t, os.WriteFile(filepath.Join(s.Workspace, "notes.txt"), []byte("notes"), 0o644))
	if f["path"] = "notes.txt"; strings.Contains(o.path, "/files/") {
		f["path"] = "." // the workspace itself
	}
	if token == "" {
		setup, _, err := s.Accounts.Setup(t.Context())
		webtest.Check(t, err)
		f["token"] = setup.Token
		return f
	}
	chat := s.Chat(t, token, "a chat")
	f["id"], f["chat_id"], f["user"], f["agent"] = chat, chat, admin, ""
	s.Append(t, chat, events.SessionBound{Session: "ses_" + chat, Directory: s.Workspace})
	last, err := s.Log.Last(t.Context())
	webtest.Check(t, err)
	f["at"] = last
	switch {
	case strings.Contains(o.path, "/logins"):
		l, err := s.Accounts.BeginCodeLogin(t.Context(), events.Client{})
		webtest.Check(t, err)
		f["code"], f["secret"] = l.Code, l.Secret
	case strings.Contains(o.path, "/users/{id}/sessions"):
		other, login := s.User(t, "other"+strings.ToLower(chat), account.User)
		identity, err := s.Accounts.Check(login)
		webtest.Check(t, err)
		f["id"], f["session"] = other, identity.Session
	case strings.Contains(o.path, "/models"), strings.Contains(o.path, "/spending"):
		f["chat"], f["day"], f["model"] = chat, "2026-01-02", ""
	case strings.Contains(o.path, "/ssh_keys/{id}"):
		_, made := s.Call(t, token, "POST", webtest.RecordsPath("ssh_keys"), map[string]any{"user": admin,
			"public_key": webtest.PublicKey(t), "is_active": true})
		f["id"] = made["id"]
	case strings.Contains(o.path, "/secrets/"):
		f["id"], f["name"], f["value"] = "of-"+chat, "API_TOKEN", "kq7Zt4Wx9Lm2Pv8RbN3s"
		s.Call(t, token, "POST", webtest.RecordsPath("mcp_servers"), map[string]any{"name": f["id"], "command": "/opt/lab",
			"environment": []string{"API_TOKEN"}, "status": "pending"})
	case strings.Contains(o.path, "/sessions/"):
		identity, err := s.Accounts.Check(s.Login(t, "admin"))
		webtest.Check(t, err)
		f["id"] = identity.Session
	case strings.Contains(o.path, "/executions/"):
		s.Append(t, chat, events.ExecRequested{Exec: "exec_" + chat, Session: "ses_" + chat, Command: "echo hello",
			Cwd: s.Workspace})
		s.Append(t, chat, events.ExecFinished{Exec: "exec_" + chat, Stdout: events.Output{Bytes: 5, Text: "hello"}})
		_, list := s.Call(t, token, "GET", webtest.RecordsPath("executions")+"?filter="+url.QueryEscape(`chat = "`+chat+`"`),
			nil)
		f["follow"] = "1"
		f["id"], f["signal"] = list["items"].([]any)[0].(map[string]any)["id"], "TERM"
		s.Running("exec_" + chat)
		s.Append(t, chat, events.ExecChanged{Exec: "exec_" + chat,
			Files: []events.Artifact{{Path: "notes.txt", Size: 5, SHA256: webtest.Sha256Of("notes")}}})
	case strings.Contains(o.path, "/api/artifacts/"):
		content, err := s.Log.Blobs.PutByHash(t.Context(), []byte("notes"))
		webtest.Check(t, err)
		s.Append(t, chat, events.FileSent{File: "f" + chat, Path: "notes.txt", Content: content})
		f["id"] = "f" + chat
	case strings.Contains(o.path, "/agents/workers"):
		started, err := s.Web.Delegates.Delegates.Start(t.Context(),
			delegate.Start{Parent: delegate.Caller{Chat: chat}, Message: "do"})
		webtest.Check(t, err)
		webtest.Check(t, s.Model.Wait(t.Context(), started.Seq))
		f["id"], f["chat"], f["limit"], f["urgency"] = started.Delegate, chat, 5, delegate.UrgencySteer
	case o.path == "/api/agents/import":
		f["text"], f["base"] = "---\nname: Of "+chat+"\n---\nBe brief.\n", ""
	case strings.Contains(o.path, "/agents/"):
		_, agent := s.Call(t, token, "POST", webtest.RecordsPath("ai_agents"), map[string]any{"name": "of " + chat})
		f["id"] = agent["id"]
		s.Call(t, token, "POST", webtest.RecordsPath("agent_notes"), map[string]any{"agent": agent["id"], "name": "plan"})
		f["name"], f["version"] = "plan", s.Model.Seq()
	case o.path == "/api/proposals/{id}":
		_, made := s.Call(t, token, "POST", webtest.RecordsPath("proposals"), map[string]any{"name": "of " + chat,
			"content": "c", "authored_by": "human", "status": "draft"})
		f["id"] = made["id"]
	case o.path == "/api/mcp/{id}":
		_, made := s.Call(t, token, "POST", webtest.RecordsPath("mcp_servers"), map[string]any{"name": "of " + chat,
			"status": "pending"})
		f["id"] = made["id"]
	case strings.Contains(o.path, "/schedules/"):
		f["name"], f["prompt"], f["session_mode"], f["every"] = "of "+chat, "write the report", "new", "1h"
		f["cron_expression"], f["at"], f["starts"], f["time_zone"], f["chat"] = "", "", "", "Europe/Berlin", ""
		f["missed"], f["overlap"], f["model"], f["user"], f["enabled"] = "once", "queue", "", admin, true
		f["one of"] = "every" // exactly one of three fields is set
		_, made := s.Call(t, token, "POST", webtest.RecordsPath("schedules"), map[string]any{"name": "of " + chat,
			"user": admin, "prompt": "write the report", "session_mode": "new", "every": "1h", "enabled": true})
		f["id"] = made["id"]
	case strings.Contains(o.path, "/pair"):
		f["channel"], f["user"] = "of "+chat, admin
		s.Call(t, token, "POST", webtest.RecordsPath("channels"), map[string]any{"name": f["channel"], "kind": "telegram",
			"token": botToken})
	case strings.Contains(o.path, "/hooks/"):
		_, made := s.Call(t, token, "POST", webtest.RecordsPath("webhooks"), map[string]any{
			"name": "of " + chat, "user": admin, "chat": chat})
		f["id"], f["secret of the webhook"], f["text of the body"] = made["id"], made["token"], "The build failed."
	case strings.Contains(o.path, "/webhooks/"):
		_, made := s.Call(t, token, "POST", webtest.RecordsPath("webhooks"), map[string]any{"name": "of " + chat,
			"user": admin})
		f["id"] = made["id"]
	case strings.Contains(o.path, "/webhook_targets/"):
		f["from"] = 1
		_, made := s.Call(t, token, "POST", webtest.RecordsPath("webhook_targets"), map[string]any{"name": "of " + chat,
			"url": "https://example.org/", "types": "turn.lost"})
		f["id"] = made["id"]
	case strings.Contains(o.path, "/ports/"):
		f["port"] = s.Serve(t, chat, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "hello")
		}))
	case strings.Contains(o.path, "/revert"):
		s.AppendOpenCode(t, chat, "message.updated",
			`{"sessionID":"ses_`+chat+`","info":{"id":"msg_`+chat+`","role":"user"}}`)
		f["message"], f["changed"] = "msg_"+chat, "keep"
	case strings.Contains(o.path, "/omit"):
		s.AppendRefusedPicture(t, chat)
	case strings.Contains(o.path, "/permissions/"):
		f["id"], f["scope"], f["for"], f["pattern"] = s.AppendCommandRequest(t, chat, "per_"+chat, "touch notes"), "chat",
			"1h", "touch*"
		f["shown_command"], f["shown_request"], f["shown_files"], f["shown_rules"] = "touch notes", "", "", nil
	case strings.Contains(o.path, "/policy/"):
		f["chat"], f["pattern"], f["action"] = chat, "git status*", "allow"
	case strings.Contains(o.path, "/push"):
		f["user_id"], f["chat"], f["device"] = admin, chat, s.Phone(t, token, webtest.NewPhone(t))
	case strings.Contains(o.path, "/act/"):
		// An account of its own, because notifications of the requests of earlier operations may come late.
		_, login := s.User(t, "phone"+strings.ToLower(chat), account.User)
		phone, chat := webtest.NewPhone(t), s.Chat(t, login, "a chat")
		s.Phone(t, login, phone)
		s.AppendReferral(t, chat, "per_"+chat)
		f["token"] = path.Base(phone.Button(t, "Deny"))
	case o.path == "/api/realtime" && o.Body != nil:
		f["clientId"], f["subscriptions"] = connected(s, t), []string{"chats/*"}
	}
	return f
}

// connected opens a realtime stream until the test ends, and gives its client id.
func connected(s *webtest.System, t *testing.T) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/api/realtime", nil)
	webtest.Check(t, err)
	stream, err := http.DefaultClient.Do(r)
	webtest.Check(t, err)
	t.Cleanup(func() { stream.Body.Close() })
	line, err := bufio.NewReader(stream.Body).ReadString('\n')
	webtest.Check(t, err)
	_, id, _ := strings.Cut(strings.TrimSpace(line), ":")
	return strings.TrimSpace(id)
}

// request makes one of the operation, with all its parameters or those that are required.
func (o operation) request(t *testing.T, d api.Document, s *webtest.System, fixtures map[string]any,
	complete bool) *http.Request {
	t.Helper()
	path, query, headers := o.path, url.Values{}, http.Header{}
	for _, p := range o.Parameters {
		value := fmt.Sprint(made(d, p.Schema, p.Name, fixtures, complete))
		if !p.Required && (!complete || p.Name == "expand" && fixtures["expand"] == nil) {
			continue
		}
		switch p.In {
		case "path":
			path = strings.ReplaceAll(path, "{"+p.Name+"}", value)
		case "query":
			query.Set(p.Name, value)
		case "header":
			headers.Set(p.Name, value)
		}
	}
	var body bytes.Buffer
	if text, ok := fixtures["text of the body"]; ok {
		body.WriteString(text.(string))
	}
	if o.Body != nil {
		webtest.Check(t, json.NewEncoder(&body).Encode(made(d, o.Body.Content["application/json"].Schema, "", fixtures,
			complete)))
		headers.Set("Content-Type", "application/json")
	}
	r, err := http.NewRequestWithContext(t.Context(), o.method, s.URL+path+"?"+query.Encode(), &body)
	webtest.Check(t, err)
	r.Header = headers
	return r
}

// made makes up a value of a form.
func made(d api.Document, f api.Form, name string, fixtures map[string]any, complete bool) any {
	if value, known := fixtures[name]; known {
		return value
	}
	switch {
	case len(f.AnyOf) > 0: // by collection
		i := slices.IndexFunc(f.AnyOf, func(one api.Form) bool {
			return strings.HasSuffix(one.Ref, fmt.Sprintf("/%sInput", fixtures["collection"]))
		})
		return made(d, f.AnyOf[max(i, 0)], name, fixtures, complete)
	case f.Ref != "":
		return made(d, d.Components.Resolve(f), name, fixtures, complete)
	case len(f.Enum) > 0:
		return f.Enum[len(f.Enum)-1]
	}
	switch f.Type {
	case "object":
		object := map[string]any{}
		for property, form := range f.Properties {
			if complete && property != "id" || slices.Contains(f.Required, property) || property == fixtures["one of"] {
				object[property] = made(d, form, property, fixtures, complete)
			}
		}
		return object
	case "array":
		return []any{made(d, *f.Items, name, fixtures, complete)}
	case "integer", "number":
		return 1
	case "boolean":
		return false
	}
	return "made"
}

// check compares an answer with the description.
func (o operation) check(t *testing.T, d api.Document, answer *http.Response) {
	t.Helper()
	is := is.New(t)
	described, found := o.Responses[fmt.Sprint(answer.StatusCode)]
	if !found {
		text := new(strings.Builder)
		answer.Write(text)
		t.Fatalf("%s %s: %s", answer.Request.Method, answer.Request.URL, text)
	}
	if len(described.Content) == 0 {
		is.Equal(answer.ContentLength, int64(0)) // no body
		return
	}
	media, _, err := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	is.NoErr(err)
	if _, whatever := described.Content["*/*"]; whatever {
		return
	}
	content, exact := described.Content[media]
	is.True(exact) // the media type
	if media != "application/json" {
		return
	}
	var value any
	is.NoErr(json.NewDecoder(answer.Body).Decode(&value))
	if wrong := differs(d, content.Schema, value); wrong != "" {
		t.Errorf("the answer is not as described: %s", wrong)
	}
}

// differs says where a value is not of a form; nowhere is empty.
func differs(d api.Document, f api.Form, value any) string {
	if len(f.AnyOf) > 0 {
		var reasons []string
		for _, one := range f.AnyOf {
			wrong := differs(d, one, value)
			if wrong == "" {
				return ""
			}
			reasons = append(reasons, one.Ref+wrong)
		}
		return " is none of: " + strings.Join(reasons, "; ")
	}
	f = d.Components.Resolve(f)
	if len(f.AnyOf) > 0 {
		return differs(d, f, value)
	}
	switch v := value.(type) {
	case map[string]any:
		return objectDiffers(d, f, v)
	case []any:
		for i, item := range v {
			if f.Items == nil {
				break
			}
			if wrong := differs(d, *f.Items, item); wrong != "" {
				return fmt.Sprintf("[%d]%s", i, wrong)
			}
		}
	}
	kind := map[string]string{"string": "string", "float64": "number", "bool": "boolean",
		"map[string]interface {}": "object", "[]interface {}": "array"}[fmt.Sprintf("%T", value)]
	if f.Type != "" && f.Type != kind && !(f.Type == "integer" && kind == "number") {
		return fmt.Sprintf(" is %v, want %s", value, f.Type)
	}
	if text, ok := value.(string); ok && len(f.Enum) > 0 && !slices.Contains(f.Enum, text) {
		return fmt.Sprintf(" is %q, want one of %q", text, f.Enum)
	}
	return ""
}

func objectDiffers(d api.Document, f api.Form, object map[string]any) string {
	if f.Type != "" && f.Type != "object" {
		return fmt.Sprintf(" is an object, want %s", f.Type)
	}
	for _, name := range f.Required {
		if _, found := object[name]; !found {
			return "." + name + " is missing"
		}
	}
	for name, value := range object {
		form, known := f.Properties[name]
		if !known && f.Additional == nil && f.Properties != nil {
			return "." + name + " is not described"
		}
		if !known && f.Additional != nil {
			form = *f.Additional
		}
		if !slices.Contains(f.Required, name) && value == nil {
			continue // a pointer
		}
		if wrong := differs(d, form, value); wrong != "" {
			return "." + name + wrong
		}
	}
	return ""
}
