package web_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/agent"
	"pocketcoder/handlers/project"
	"pocketcoder/handlers/record"
	"pocketcoder/web/webtest"
)

// The project dimension of the isolation matrix: what accounts with each role in a project may do with their own chat,
// a shared chat of ada's and a private chat of ada's. Ada is a member. r is to read, w is to write.
var projectMatrix = map[string]map[string]string{
	"owner":    {"own": "rw", "shared": "r", "private": ""},
	"member":   {"own": "rw", "shared": "r", "private": ""},
	"viewer":   {"own": "r", "shared": "r", "private": ""}, // its own chat is from when it was a member
	"stranger": {"own": "", "shared": "", "private": ""},   // its own chat was given to it
	"former":   {"own": "", "shared": "", "private": ""},
}

// privateProject is a system with a second project, app, whose accounts are named after their roles in it. They have no
// other project.
type privateProject struct {
	*webtest.System
	ids, tokens map[string]string            // of accounts, by name
	chats       map[string]map[string]string // by account, and by kind
}

func newPrivateProject(t *testing.T) *privateProject {
	t.Helper()
	p := &privateProject{System: webtest.NewSystem(t), ids: map[string]string{}, tokens: map[string]string{},
		chats: map[string]map[string]string{}}
	p.Provider(t, "p", "first", "other")
	_, err := project.Ensure(t.Context(), p.Records, project.Project{ID: "app", Name: "app", Directory: "/app"})
	webtest.Check(t, err)
	p.saveProject(t, events.DefaultEngine, map[string]any{"everyone": project.None})
	for _, name := range append([]string{"ada"}, roles...) {
		p.ids[name], p.tokens[name] = p.User(t, name, account.User)
		p.member(t, name, project.Member)
	}
	_, p.tokens["root"] = p.User(t, "root", account.Admin)
	for _, name := range roles {
		p.chats[name] = map[string]string{"own": p.chatOf(t, name), "shared": p.chatOf(t, "ada"),
			"private": p.chatOf(t, "ada")}
		status, answer := p.Call(t, p.tokens["ada"], "PATCH", webtest.RecordsPath("chats")+"/"+p.chats[name]["shared"],
			map[string]any{"shared": true})
		if status != http.StatusOK || answer["shared"] != true {
			t.Fatalf("share: %d %v", status, answer)
		}
	}
	p.member(t, "owner", project.Owner)
	p.member(t, "viewer", project.Viewer)
	p.member(t, "stranger", project.None)
	p.member(t, "former", project.None)
	return p
}

var roles = []string{"owner", "member", "viewer", "stranger", "former"}

func (p *privateProject) saveProject(t *testing.T, id string, set map[string]any) {
	t.Helper()
	_, seq, err := p.Records.Save(t.Context(), record.Save{Command: handlers.Command{Actor: events.ActorSystem},
		Collection: project.Collection, Record: id, Set: record.Fields(set)})
	webtest.Check(t, err)
	webtest.Check(t, p.Model.Wait(t.Context(), seq))
}

// member gives an account a role in the project app; None ends its membership.
func (p *privateProject) member(t *testing.T, name, role string) {
	t.Helper()
	by := handlers.Command{Actor: events.ActorSystem}
	members, err := record.All[struct{ User string }](t.Context(), p.Records, project.Members)
	webtest.Check(t, err)
	isNew := !slices.ContainsFunc(members, func(r record.StoredRecord[struct{ User string }]) bool {
		return r.ID == "m-"+name
	})
	var seq uint64
	if role == project.None {
		seq, err = p.Records.Delete(t.Context(), record.Delete{Command: by, Collection: project.Members, Record: "m-" + name})
	} else {
		_, seq, err = p.Records.Save(t.Context(), record.Save{Command: by, Collection: project.Members, Record: "m-" + name,
			New: isNew, Set: record.Fields(map[string]any{"project": "app", "user": p.ids[name], "role": role})})
	}
	webtest.Check(t, err)
	webtest.Check(t, p.Model.Wait(t.Context(), seq))
}

// chatOf creates a chat of an account, with something of each kind in it.
func (p *privateProject) chatOf(t *testing.T, name string) string {
	t.Helper()
	chat := p.Chat(t, p.tokens[name], "needle of "+name)
	p.Append(t, chat, events.SessionBound{Session: "ses_" + chat, Directory: p.Workspace})
	p.AppendCommandRequest(t, chat, "per_"+chat, "touch notes")
	p.AppendOpenCode(t, chat, "question.asked", `{"id":"que_`+chat+`","sessionID":"ses_`+chat+
		`","questions":[{"question":"?","header":"h","options":[{"label":"Red","description":"d"}]}],"tool":{"messageID":"m","callID":"c"}}`)
	p.AppendOpenCode(t, chat, "message.updated", `{"sessionID":"ses_`+chat+`","info":{"id":"msg_`+chat+
		`","role":"assistant","providerID":"p","modelID":"m","cost":1,"time":{}}}`)
	p.AppendOpenCode(t, chat, "session.created", `{"sessionID":"sub_`+chat+`","info":{"id":"sub_`+chat+
		`","parentID":"ses_`+chat+`","directory":"/w","title":"t"}}`)
	p.AppendOpenCode(t, chat, "session.status", `{"sessionID":"sub_`+chat+`","status":{"type":"busy"}}`)
	p.AppendRefusedPicture(t, chat)
	p.AppendExecution(t, chat, "x"+chat, &events.ExecFinished{})
	p.Append(t, chat, events.ExecChanged{Exec: "x" + chat, Files: []events.Artifact{{Path: "a", SHA256: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}}})
	p.Append(t, chat, events.ChannelQueued{Message: "n" + chat, Type: events.OutgoingNotice, Text: "t"})
	return chat
}

// ofChat are the routes that are about one chat, or about what is in it. {name} stands for what the chat has of that
// name.
var ofChat = []struct {
	method, path string
	need         string // r or w; a ? says that others are refused too, such as for a chat that is no delegate
	body         map[string]any
}{
	{"GET", "/api/chats/{id}/events", "r", nil},
	{"GET", "/api/chats/{id}/replay", "r", nil},
	{"GET", "/api/chats/{id}/export/html", "r", nil},
	{"GET", "/api/chats/{id}/export/cast", "r", nil},
	{"GET", "/api/chats/{id}/export/jsonl", "r", nil},
	{"GET", "/api/pocketcoder/chats/{id}/news", "r", nil},
	{"GET", "/api/pocketcoder/chats/{id}/todo", "r", nil},
	{"GET", "/api/pocketcoder/chats/{id}/diff", "r", nil},
	{"GET", "/api/executions/{execution}/output", "r", nil},
	{"GET", "/api/executions/{execution}/deltas", "r", nil},
	{"GET", "/api/executions/{execution}/cast", "r", nil},
	{"GET", "/api/artifacts/{artifact}/content", "r", nil},
	{"GET", "/api/executions/{execution}/artifacts/a", "r", nil},
	{"GET", "/api/pocketcoder/permissions/{permission}/why", "r", nil},
	{"GET", "/api/pocketcoder/spending?chat={id}", "r", nil},
	{"GET", "/api/pocketcoder/models?chat={id}", "r", nil},
	{"GET", "/api/agents/workers?chat={id}", "r", nil},
	{"GET", "/api/agents/workers/{id}/inbox", "r", nil},
	{"GET", "/api/collections/chats/records/{id}", "r", nil},
	{"GET", "/api/collections/permissions/records/{permission}", "r", nil},
	{"GET", "/api/collections/questions/records/{question}", "r", nil},
	{"GET", "/api/collections/executions/records/{execution}", "r", nil},
	{"GET", "/api/collections/artifacts/records/{artifact}", "r", nil},
	{"GET", "/api/collections/subagents/records/{subagent}", "r", nil},
	{"GET", "/api/collections/usage/records/{id}.p.m", "r", nil},
	{"GET", "/api/collections/channel_messages/records/n{id}", "r", nil},
	{"POST", "/api/collections/seen_positions/records", "r", map[string]any{"chat": "{id}", "seq": 1}},
	{"PATCH", "/api/collections/chats/records/{id}", "w", map[string]any{"description": "d"}},
	{"PATCH", "/api/collections/chats/records/{id}", "w", map[string]any{"archived": true}},
	{"POST", "/api/collections/messages/records", "w", map[string]any{"chat": "{id}", "role": "user",
		"parts": []any{map[string]any{"type": "text", "text": "hello"}}}},
	{"POST", "/api/collections/tool_permissions/records", "w", map[string]any{"chat": "{id}", "tool": "bash", "pattern": "x{id}",
		"action": "ask"}},
	{"POST", "/api/collections/model_selection/records", "w", map[string]any{"chat": "{id}", "model": "p/first"}},
	{"PUT", "/api/pocketcoder/models/selected", "w", map[string]any{"chat": "{id}", "model": "p/other"}},
	{"POST", "/api/pocketcoder/policy/replay", "w", map[string]any{"chat": "{id}", "permission": "bash", "pattern": "ls"}},
	{"POST", "/api/schedules/preview", "w", map[string]any{"chat": "{id}", "prompt": "p", "every": "1h", "session_mode": "existing",
		"name": "n"}},
	{"GET", "/api/pocketcoder/permissions/{permission}/always", "w", nil},
	{"POST", "/api/pocketcoder/permissions/{permission}/always", "w", map[string]any{"pattern": "touch*", "for": "1h"}},
	{"PATCH", "/api/collections/permissions/records/{permission}", "w", map[string]any{"reason": "no"}},
	{"PATCH", "/api/collections/questions/records/{question}", "w", map[string]any{"status": "replied", "reply": "Red"}},
	{"DELETE", "/api/collections/subagents/records/{subagent}", "w", nil},
	{"POST", "/api/executions/{execution}/signal", "w", map[string]any{"signal": "INT"}},
	{"POST", "/api/chats/{id}/ports/{port}", "w", nil},
	{"GET", "/api/chats/{id}/ports/{port}/", "w", nil},
	{"GET", "/api/chats/{id}/shell", "w", nil},
	{"POST", "/api/agents/workers/{id}/inbox", "w", map[string]any{"text": "hello"}},
	{"POST", "/api/agents/workers/{id}/stop", "w?", nil},
	{"POST", "/api/pocketcoder/chats/{id}/omit", "w", nil},
	{"POST", "/api/pocketcoder/chats/{id}/revert", "w?", map[string]any{"message": "msg_{id}"}},
	{"POST", "/api/pocketcoder/chats/{id}/fork", "w", nil},
	{"POST", "/api/pocketcoder/chats/{id}/abort", "w", nil},
	{"DELETE", "/api/collections/chats/records/{id}", "w", nil},
}

// notAboutOneChat are routes with such paths that the rows above cover under another path, or that are for
// administrators and agents alone.
var notAboutOneChat = []string{"/api/agents/workers/{id}/result", "/api/chats/{id}/ports/{port}/{path}"}

// known are the ids of what is in a chat, by name.
func (p *privateProject) known(t *testing.T, chat string) map[string]string {
	t.Helper()
	port := p.Serve(t, chat, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {}))
	of := map[string]string{"id": chat, "execution": "x" + chat, "port": fmt.Sprint(port)}
	for name, collection := range map[string]string{"permission": "permissions", "question": "questions",
		"artifact": "artifacts", "subagent": "subagents"} {
		_, list := p.Call(t, p.tokens["root"], "GET", webtest.RecordsPath(collection)+"?filter="+
			webtest.Escape(`chat="`+chat+`"`), nil)
		of[name] = list["items"].([]any)[0].(map[string]any)["id"].(string)
	}
	return of
}

// fill replaces each {name} in a value.
func fill(value any, names map[string]string) any {
	switch v := value.(type) {
	case string:
		for name, id := range names {
			v = strings.ReplaceAll(v, "{"+name+"}", id)
		}
		return v
	case map[string]any:
		filled := map[string]any{}
		for key, one := range v {
			filled[key] = fill(one, names)
		}
		return filled
	}
	return value
}

// status returns the status of a request, without the rest of a stream.
func (p *privateProject) status(t *testing.T, token, method, path string, body map[string]any) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var content string
	if body != nil {
		encoded, err := json.Marshal(body)
		webtest.Check(t, err)
		content = string(encoded)
	}
	r, err := http.NewRequestWithContext(ctx, method, p.URL+path, strings.NewReader(content))
	webtest.Check(t, err)
	r.Header.Set("Authorization", token)
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	webtest.Check(t, err)
	answer.Body.Close()
	return answer.StatusCode
}

func TestWhatMembersOfAProjectMayDoWithItsChats(t *testing.T) {
	t.Parallel()
	p := newPrivateProject(t)
	for _, name := range roles {
		for _, kind := range []string{"own", "shared", "private"} {
			names, may := p.known(t, p.chats[name][kind]), projectMatrix[name][kind]
			for _, route := range ofChat {
				path := fill(route.path, names).(string)
				body, _ := fill(route.body, names).(map[string]any)
				status := p.status(t, p.tokens[name], route.method, path, body)
				need, always := strings.CutSuffix(route.need, "?")
				denied := status == http.StatusForbidden || status == http.StatusNotFound ||
					status == http.StatusBadRequest && route.method != "GET"
				if denied == strings.Contains(may, need) && (!always || !denied) {
					t.Errorf("%s of app, %s chat: %s %s: %d, may %q", name, kind, route.method, route.path, status, may)
				}
			}
			if !strings.Contains(may, "w") { // otherwise the chat is deleted now
				p.checkLists(t, name, names["id"], strings.Contains(may, "r"))
			}
		}
	}
}

// checkLists compares what lists and the search show of a chat with what they may show.
func (p *privateProject) checkLists(t *testing.T, name, chat string, may bool) {
	t.Helper()
	for collection, field := range map[string]string{"chats": "id", "messages": "chat", "permissions": "chat",
		"questions": "chat", "executions": "chat", "artifacts": "chat", "subagents": "chat", "usage": "chat", "channel_messages": "chat"} {
		_, list := p.Call(t, p.tokens[name], "GET", webtest.RecordsPath(collection)+"?filter="+
			webtest.Escape(field+`="`+chat+`"`), nil)
		if shown := len(list["items"].([]any)) > 0; shown != may {
			t.Errorf("%s of app: list of %s shows chat %s: %v, may %v", name, collection, chat, shown, may)
		}
	}
	_, found := p.Raw(t, p.tokens[name], "GET", "/api/pocketcoder/search?q=needle", nil)
	if shown := strings.Contains(string(found), chat); shown != may {
		t.Errorf("%s of app: the search shows chat %s: %v, may %v", name, chat, shown, may)
	}
}

func TestEachRouteAboutAChatIsInTheProjectMatrix(t *testing.T) {
	t.Parallel()
	s := webtest.NewSystem(t)
	_, d := s.Call(t, "", "GET", "/api/openapi.json", nil)
	tested := slices.Clone(notAboutOneChat)
	for _, route := range ofChat {
		path, _, _ := strings.Cut(route.path, "?")
		tested = append(tested, path)
	}
	shape := func(path string) string { // with one name for all parameters
		words := strings.Split(strings.TrimSuffix(path, "/"), "/")
		for i, w := range words {
			if strings.Contains(w, "{") || w == "a" {
				words[i] = "*"
			}
		}
		return strings.Join(words, "/")
	}
	shapes := map[string]bool{}
	for _, path := range tested {
		shapes[shape(path)] = true
	}
	for path := range d["paths"].(map[string]any) {
		about := slices.ContainsFunc([]string{"/api/chats/", "/api/executions/", "/api/artifacts/", "/api/pocketcoder/chats/",
			"/api/pocketcoder/permissions/", "/api/agents/workers/"}, func(prefix string) bool { return strings.HasPrefix(path, prefix) })
		if about && !shapes[shape(path)] {
			t.Errorf("%s is not in ofChat", path)
		}
	}
}

func TestAFormerMemberGetsItsChatsBackWithTheMembership(t *testing.T) {
	t.Parallel()
	p := newPrivateProject(t)
	own := webtest.RecordsPath("chats") + "/" + p.chats["former"]["own"]
	if status, _ := p.Call(t, p.tokens["former"], "GET", own, nil); status != http.StatusNotFound {
		t.Fatalf("a former member views its chat: %d", status)
	}
	p.member(t, "former", project.Member)
	if status, _ := p.Call(t, p.tokens["former"], "PATCH", own, map[string]any{"title": "mine"}); status != http.StatusOK {
		t.Errorf("a member that came back renames its chat: %d", status)
	}
}

func TestProjectsAndMembersAreShownToThoseWithAccess(t *testing.T) {
	t.Parallel()
	p := newPrivateProject(t)
	for name, want := range map[string]string{"owner": "app", "member": "app", "viewer": "app", "stranger": "",
		"former": "", "root": "app workspace"} {
		_, list := p.Call(t, p.tokens[name], "GET", webtest.RecordsPath("projects")+"?sort=name", nil)
		var names []string
		for _, item := range list["items"].([]any) {
			names = append(names, item.(map[string]any)["name"].(string))
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s sees the projects %q, want %q", name, got, want)
		}
		_, list = p.Call(t, p.tokens[name], "GET", webtest.RecordsPath("project_members"), nil)
		if got := len(list["items"].([]any)) > 0; got != (want != "") {
			t.Errorf("%s sees members: %v", name, got)
		}
	}
	newMember := map[string]any{"project": "app", "email": "stranger@example.org", "role": "member"}
	for name, want := range map[string]bool{"viewer": true, "stranger": false, "former": false} {
		status, _ := p.Call(t, p.tokens[name], "GET", webtest.RecordsPath("users")+"/"+p.ids["member"], nil)
		if (status == http.StatusOK) != want {
			t.Errorf("%s views the account of a member: %d", name, status)
		}
	}
	for _, name := range []string{"member", "viewer", "stranger", "owner"} {
		status, answer := p.Call(t, p.tokens[name], "POST", webtest.RecordsPath("project_members"), newMember)
		if got := status == http.StatusOK; got != (name == "owner") {
			t.Errorf("%s adds a member: %d %v", name, status, answer)
		}
	}
}

func TestFilesAreForAccountsWithAccessToTheProject(t *testing.T) {
	t.Parallel()
	p := newPrivateProject(t)
	p.File(t, "notes.txt", "notes")
	for _, path := range []string{"/api/pocketcoder/files/", "/api/pocketcoder/artifact/notes.txt"} {
		if status, _ := p.Raw(t, p.tokens["member"], "GET", path, nil); status != http.StatusNotFound {
			t.Errorf("%s of a project without access: %d", path, status)
		}
		if status, _ := p.Raw(t, p.tokens["root"], "GET", path, nil); status != http.StatusOK {
			t.Errorf("%s as administrator: %d", path, status)
		}
	}
	p.saveProject(t, events.DefaultEngine, map[string]any{"everyone": project.Viewer})
	status, _ := p.Raw(t, p.tokens["member"], "GET", "/api/pocketcoder/artifact/notes.txt", nil)
	if status != http.StatusOK {
		t.Errorf("a file of a project that everyone sees: %d", status)
	}
}

func TestANewChatIsInAProjectWhereTheAccountMayWork(t *testing.T) {
	t.Parallel()
	p := newPrivateProject(t)
	for _, c := range []struct {
		who, project, want string
	}{
		{"member", "app", "app"}, {"member", "", "app"}, {"owner", "", "app"}, {"root", "app", "app"}, {"root", "local", "local"},
		{"viewer", "app", ""}, {"stranger", "app", ""}, {"stranger", "", ""}, {"member", "local", ""}, {"root", "", "local"},
	} {
		status, chat := p.Call(t, p.tokens[c.who], "POST", webtest.RecordsPath("chats"), map[string]any{"project": c.project})
		if (status == http.StatusOK) != (c.want != "") || c.want != "" && chat["project"] != c.want {
			t.Errorf("%s creates a chat in %q: %d %v, want %q", c.who, c.project, status, chat, c.want)
		}
	}
	status, answer := p.Call(t, p.tokens["member"], "PATCH", webtest.RecordsPath("chats")+"/"+p.chats["member"]["own"],
		map[string]any{"project": "local"})
	if status != http.StatusBadRequest {
		t.Errorf("change the project of a chat: %d %v", status, answer)
	}
}

func TestAnAccountThatLeavesAProjectGetsNoFurtherEvent(t *testing.T) {
	t.Parallel()
	p := newPrivateProject(t)
	own, shared := p.chats["member"]["own"], p.chats["member"]["shared"]
	f := p.Connect(t).Follow(t, p.tokens["member"], "chats/*", "messages/*", "chats:"+own, "chats:"+shared,
		"healthchecks/*")
	stream := p.Stream(t, p.tokens["member"], webtest.EventsOf(own), "")
	p.Append(t, own, events.ChatUpdated{Description: new("before")})
	for f.Next(t).Data.Record["description"] != "before" {
	}
	p.member(t, "member", project.None)
	for { // the stream ends, after the events that it had
		if _, _, err := stream.Frame(); err != nil {
			break
		}
	}
	p.Append(t, own, events.ChatUpdated{Description: new("after")})
	p.Append(t, shared, events.ChatUpdated{Description: new("after")})
	p.Fragment(t, own, "msg_"+own, "prt_1", "secret")
	last, _, err := p.Records.Save(t.Context(), record.Save{Command: handlers.Command{Actor: events.ActorSystem},
		Collection: "healthchecks", New: true})
	webtest.Check(t, err)
	for {
		got := f.Next(t)
		if got.Data.Record["id"] == last {
			return
		}
		if got.Data.Record["description"] == "after" || strings.Contains(got.Raw, "secret") {
			t.Errorf("an account that left got %s", got.Raw)
		}
	}
}

func TestADelegateIsSharedWithTheChatAboveIt(t *testing.T) {
	t.Parallel()
	p := newPrivateProject(t)
	root := p.chats["viewer"]["private"]
	delegate := func(id string) string {
		p.Append(t, id, events.ChatCreated{Title: id, User: p.ids["ada"], Engine: "app",
			Parent: &events.Parent{Chat: root, Root: root, Depth: 1}})
		return id
	}
	sees := func(id string) bool {
		status, _ := p.Call(t, p.tokens["viewer"], "GET", webtest.RecordsPath("chats")+"/"+id, nil)
		return status == http.StatusOK
	}
	share := func(id string, shared bool) int {
		status, _ := p.Call(t, p.tokens["ada"], "PATCH", webtest.RecordsPath("chats")+"/"+id,
			map[string]any{"shared": shared})
		return status
	}
	first := delegate("first" + root)
	for i, shared := range []bool{true, false, true} {
		if status := share(root, shared); status != http.StatusOK {
			t.Fatalf("share: %d", status)
		}
		later := delegate(fmt.Sprint("later", i, root))
		if sees(first) != shared || sees(later) != shared {
			t.Errorf("shared %v: a viewer sees the delegates: %v, %v", shared, sees(first), sees(later))
		}
	}
	if status := share(first, false); status != http.StatusBadRequest {
		t.Errorf("share a delegate: %d", status)
	}
}

// What is stored of a project is read by accounts with access to the project.
func TestNotesAreForAccountsWithAccessToTheProject(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := newPrivateProject(t)
	_, reviewer := p.Call(t, p.tokens["root"], "POST", webtest.RecordsPath("ai_agents"),
		webtest.Object{"name": "Reviewer"})
	notes := webtest.RecordsPath("agent_notes")
	for _, set := range []webtest.Object{{"name": "plan", "content": "first"},
		{"name": "plan", "content": "of app", "project": "app"}} {
		set["agent"] = reviewer["id"]
		status, _ := p.Call(t, p.tokens["root"], "POST", notes, set)
		is.Equal(status, http.StatusOK)
	}
	seq := p.storeOldNote(t, reviewer["id"].(string)) // of the first project
	webtest.Check(t, p.Model.Wait(t.Context(), seq))
	seen := func(token string) (all []string) {
		_, list := p.Call(t, token, "GET", notes+"?sort=content", nil)
		for _, n := range list["items"].([]any) {
			n := n.(map[string]any)
			all = append(all, fmt.Sprint(n["content"], " in ", n["project"]))
		}
		return all
	}
	for name, want := range map[string][]string{"owner": {"of app in app"}, "member": {"of app in app"},
		"viewer": {"of app in app"}, "stranger": nil, "former": nil} {
		is.Equal(seen(p.tokens[name]), want) // the account's role in app
	}
	p.saveProject(t, events.DefaultEngine, map[string]any{"everyone": project.Viewer})
	is.Equal(seen(p.tokens["stranger"]), []string{"first in local", "old in local"})
	is.Equal(seen(p.tokens["root"]), []string{"first in local", "of app in app", "old in local"})
	versions := "/api/agents/Reviewer/notes/plan/versions"
	_, body := p.Raw(t, p.tokens["root"], "GET", versions+"?project=app", nil)
	var list []agent.NoteVersion
	is.NoErr(json.Unmarshal(body, &list))
	is.Equal([]int{len(list), list[0].Size}, []int{1, len("of app")})
}

// storeOldNote stores a note as PocketCoder did before notes had a project.
func (p *privateProject) storeOldNote(t *testing.T, of string) (seq uint64) {
	t.Helper()
	e, err := events.NewConfig(agent.NotesCollection, agent.Note{Agent: of, Name: "old"}.ID(), events.ActorSystem,
		events.Saved{Fields: json.RawMessage(`{"agent":"` + of + `","name":"old","content":"old"}`)})
	webtest.Check(t, err)
	seq, err = p.Log.Append(t.Context(), e)
	webtest.Check(t, err)
	return seq
}

// Owners of a project decide what its chats may do without asking. Members read the rules.
func TestRulesOfAProjectAreForItsMembers(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := newPrivateProject(t)
	rules := webtest.RecordsPath("tool_permissions")
	rule := func(set webtest.Object) webtest.Object {
		return webtest.Object{"tool": "bash", "pattern": fmt.Sprint("make ", events.NewID()), "action": "ask",
			"project": set["project"], "chat": set["chat"]}
	}
	create := func(name string, set webtest.Object) (int, string) {
		status, made := p.Call(t, p.tokens[name], "POST", rules, rule(set))
		id, _ := made["id"].(string)
		return status, id
	}
	status, ofApp := create("owner", webtest.Object{"project": "app"})
	is.Equal(status, http.StatusOK)
	status, ofLocal := create("root", webtest.Object{"project": events.DefaultEngine})
	is.Equal(status, http.StatusOK)
	status, _ = create("root", webtest.Object{"project": "app", "chat": p.chats["owner"]["own"]})
	is.Equal(status, http.StatusBadRequest) // a chat or a project
	status = p.status(t, p.tokens["owner"], "PATCH", rules+"/"+ofApp, webtest.Object{"project": ""})
	is.Equal(status, http.StatusBadRequest)
	for name, may := range map[string]string{"owner": "rw", "member": "r", "viewer": "r", "stranger": "", "former": ""} {
		is := is.NewRelaxed(t)
		status, _ := create(name, webtest.Object{"project": "app"})
		is.Equal(status == http.StatusOK, may == "rw") // create
		status, _ = create(name, webtest.Object{"project": events.DefaultEngine})
		is.True(status != http.StatusOK)
		status, _ = create(name, webtest.Object{})
		is.True(status != http.StatusOK)
		one := rules + "/" + ofApp
		is.Equal(p.status(t, p.tokens[name], "GET", one, nil) == http.StatusOK, may != "")
		is.Equal(p.status(t, p.tokens[name], "PATCH", one, webtest.Object{"active": false}) == http.StatusOK, may == "rw")
		is.True(p.status(t, p.tokens[name], "GET", rules+"/"+ofLocal, nil) != http.StatusOK)
		if may != "rw" {
			is.True(p.status(t, p.tokens[name], "DELETE", one, nil) != http.StatusNoContent)
		}
	}
	is.Equal(p.status(t, p.tokens["owner"], "DELETE", rules+"/"+ofApp, nil), http.StatusNoContent)
}

func TestAScheduleIsStoredWithTheProjectOfItsNewChats(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := newPrivateProject(t)
	schedules := webtest.RecordsPath("schedules")
	fields := func(more webtest.Object) webtest.Object {
		set := webtest.Object{"name": "report", "every": "1h", "prompt": "p", "session_mode": "new"}
		maps.Copy(set, more)
		return set
	}
	status, made := p.Call(t, p.tokens["member"], "POST", schedules, fields(nil))
	is.Equal([]any{status, made["project"]}, []any{http.StatusOK, "app"})
	for _, path := range []string{schedules, "/api/schedules/preview"} {
		status, _ = p.Call(t, p.tokens["member"], "POST", path, fields(webtest.Object{"project": events.DefaultEngine}))
		is.Equal(status, http.StatusBadRequest)
		status, _ = p.Call(t, p.tokens["former"], "POST", path, fields(webtest.Object{"project": "app"}))
		is.Equal(status, http.StatusBadRequest)
	}
	one := schedules + "/" + made["id"].(string)
	p.member(t, "member", project.None)
	status, made = p.Call(t, p.tokens["member"], "PATCH", one, webtest.Object{"enabled": false}) // it can be stopped
	is.Equal([]any{status, made["project"]}, []any{http.StatusOK, "app"})
	status, made = p.Call(t, p.tokens["owner"], "POST", schedules,
		fields(webtest.Object{"session_mode": "existing", "chat": p.chats["owner"]["own"]}))
	is.Equal([]any{status, made["project"]}, []any{http.StatusOK, ""})
}
