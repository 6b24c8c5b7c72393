package pages_test

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"
	"golang.org/x/net/html"

	"pocketcoder/handlers/record"
	"pocketcoder/handlers/recordtype"
	"pocketcoder/ops/expect"
	"pocketcoder/web/records"
	"pocketcoder/web/webtest"
)

// formOf returns the fields that a browser sends of an unchanged form, by the path of the form.
func formOf(t *testing.T, page, path string) url.Values {
	t.Helper()
	document, err := html.Parse(strings.NewReader(page))
	webtest.Check(t, err)
	values := url.Values{}
	attribute := func(n *html.Node, name string) (value string, found bool) {
		i := slices.IndexFunc(n.Attr, func(a html.Attribute) bool { return a.Key == name })
		if i < 0 {
			return "", false
		}
		return n.Attr[i].Val, true
	}
	for form := range document.Descendants() {
		if action, _ := attribute(form, "action"); form.Data != "form" || action != path {
			continue
		}
		for n := range form.Descendants() {
			name, named := attribute(n, "name")
			value, _ := attribute(n, "value")
			switch kind, _ := attribute(n, "type"); {
			case n.Data == "option":
				if _, selected := attribute(n, "selected"); selected {
					name, _ = attribute(n.Parent, "name")
					values.Set(name, value)
				}
			case !named || n.Data == "select":
			case n.Data == "textarea":
				if n.FirstChild != nil {
					value = n.FirstChild.Data
				}
				values.Set(name, strings.ReplaceAll(value, "\n", "\r\n"))
			case kind == "hidden":
				values.Set(name, strings.ReplaceAll(value, "\n", "\r\n"))
			default:
				values.Set(name, strings.ReplaceAll(value, "\n", ""))
			}
		}
	}
	if len(values) == 0 {
		t.Fatalf("the page has no form for %s: %s", path, page)
	}
	return values
}

func TestASaveOfTheSettingsChangesOnlyWhatAPersonChanged(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "root", "admin")
	b := loggedIn(t, s, "root")
	record := func(path string) map[string]any {
		_, r := s.Call(t, token, "GET", path, nil)
		return r
	}
	_, rule := s.Call(t, token, "POST", webtest.RecordsPath("tool_permissions"),
		webtest.Object{"tool": "bash", "pattern": "rm -rf *", "action": "deny", "active": true,
			"note": "from\u202eada\ron Monday\nnoon"})
	id := rule["id"].(string)
	path, at := "/settings/tool_permissions/"+id, webtest.RecordsPath("tool_permissions")+"/"+id
	before := record(at)
	expect.Contains(t, b.visit(t, "/settings/tool_permissions").body, "deny bash: rm -rf * (every chat)")
	form := formOf(t, b.visit(t, "/settings/tool_permissions").body, path)
	last := s.Model.Seq()
	is.Equal(b.submit(t, path, form).status, http.StatusOK)
	is.Equal(s.Model.Seq(), last) // nothing was changed, and nothing was saved

	form.Set("action", "ask")
	is.Equal(b.submit(t, path, form).status, http.StatusOK)
	after := record(at)
	is.Equal(after["action"], "ask")
	is.Equal(after["pattern"], before["pattern"])
	is.Equal(after["note"], before["note"]) // with what a person does not see

	old := formOf(t, b.visit(t, "/settings/tool_permissions").body, path) // of a page that stays open
	status, _ := s.Call(t, token, "PATCH", at, webtest.Object{"pattern": "rm *"})
	is.Equal(status, http.StatusOK)
	old.Set("active", "false")
	is.Equal(b.submit(t, path, old).status, http.StatusOK)
	after = record(at)
	is.Equal([]any{after["active"], after["pattern"]}, []any{false, "rm *"}) // what another person changed meanwhile stays
}

func TestTheFormOfANewRecordShowsThatItIsEnabled(t *testing.T) {
	t.Parallel()
	s := webtest.NewSystem(t)
	s.User(t, "root", "admin")
	b := loggedIn(t, s, "root")
	for _, collection := range []string{"channels", "webhooks", "webhook_targets", "schedules"} {
		expect.Contains(t, b.visit(t, "/settings/"+collection).body,
			`name="enabled"><option value="false">no</option> <option value="true" selected>`)
	}
}

// The page shows what a proposal changes. A decision about a proposal that has changed since is refused.
func TestAProposalIsDecidedAsThePageShowsIt(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "root", "admin")
	b := loggedIn(t, s, "root")
	s.Call(t, token, "POST", webtest.RecordsPath("sops"),
		webtest.Object{"name": "n", "description": "d", "content": "old\n"})
	_, p := s.Call(t, token, "POST", webtest.RecordsPath("proposals"), webtest.Object{"name": "n", "content": "new\n",
		"authored_by": "human", "status": "draft"})
	path, at := "/settings/proposals/"+p["id"].(string), webtest.RecordsPath("proposals")+"/"+p["id"].(string)
	page := b.visit(t, "/settings/proposals").body
	expect.Contains(t, page, `<span class="removed">-old`)
	expect.Contains(t, page, `<span class="added">+new`)
	form := formOf(t, page, path)
	s.Call(t, token, "PATCH", at, webtest.Object{"content": "newer\n"})
	form.Set("status", "approved")
	b.submit(t, path, form)
	_, now := s.Call(t, token, "GET", at, nil)
	is.Equal(now["status"], "draft")
	form = formOf(t, b.visit(t, "/settings/proposals").body, path)
	form.Set("status", "approved")
	is.Equal(b.submit(t, path, form).status, http.StatusOK)
	_, now = s.Call(t, token, "GET", at, nil)
	is.Equal([]any{now["status"], now["content"]}, []any{"approved", "newer\n"})
}

// The list of procedures says what is wrong with the file of a skill.
func TestAProcedureThatWasChangedOnDiskIsShown(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	s.SkillFiles = map[string]string{"release-notes": "changed on disk"}
	_, token := s.User(t, "root", "admin")
	b := loggedIn(t, s, "root")
	for _, name := range []string{"Release notes", "Deploy"} {
		s.Call(t, token, "POST", webtest.RecordsPath("sops"),
			webtest.Object{"name": name, "description": "d", "content": "c"})
	}
	is.Equal(strings.Count(b.visit(t, "/settings/sops").body, "<strong>changed on disk</strong>"), 1)
	_, body := s.Raw(t, token, "GET", "/api/procedures", nil)
	is.Equal(strings.Count(string(body), `"on_disk":"changed on disk"`), 1)
}

// The page names the rights that a proposed agent would gain, before the differences of its file.
func TestAProposedAgentIsShownWithItsRights(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "root", "admin")
	b := loggedIn(t, s, "root")
	file := func(rules string) string { return "---\nname: Deployer\npermission:\n" + rules + "---\n\nDeploy.\n" }
	s.Call(t, token, "POST", "/api/agents/import", webtest.Object{"text": file("  edit: deny\n")})
	_, p := s.Call(t, token, "POST", webtest.RecordsPath("proposals"), webtest.Object{"kind": "agent", "name": "Deployer",
		"content": file("  bash:\n    git push*: allow\n"), "authored_by": "poco", "status": "draft"})
	is.Equal(p["in_force"], "")
	page := b.visit(t, "/settings/proposals").body
	expect.Contains(t, page, "<li><code>allows bash: git push*</code></li>")
	expect.Contains(t, page, "<li><code>no longer denies edit: *</code></li>")
	expect.Contains(t, page, `<span class="removed">-  edit: deny`)
	_, one := s.Call(t, token, "GET", "/api/proposals/"+p["id"].(string), nil)
	is.Equal(one["rights"], []any{"allows bash: git push*", "no longer denies edit: *"})
	s.Call(t, token, "PATCH", webtest.RecordsPath("proposals")+"/"+p["id"].(string), webtest.Object{"name": "Other"})
	expect.Contains(t, b.visit(t, "/settings/proposals").body, "Not in effect:")
}

// The page of a note shows its versions with their differences, and restores one.
func TestTheVersionsOfANoteAreShownAndRestored(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "root", "admin")
	b := loggedIn(t, s, "root")
	_, agent := s.Call(t, token, "POST", webtest.RecordsPath("ai_agents"), webtest.Object{"name": "Reviewer"})
	_, note := s.Call(t, token, "POST", webtest.RecordsPath("agent_notes"),
		webtest.Object{"agent": agent["id"], "name": "plan", "content": "first <b>\n"})
	at := webtest.RecordsPath("agent_notes") + "/" + note["id"].(string)
	s.Call(t, token, "PATCH", at, webtest.Object{"content": "second\n"})
	path := "/settings/agent_notes/" + note["id"].(string) + "/versions"
	expect.Contains(t, b.visit(t, "/settings/agent_notes").body, `href="`+path+`"`)
	page := b.visit(t, path).body
	expect.Contains(t, page, `<span class="removed">-first &lt;b&gt;`)
	expect.Contains(t, page, `<span class="added">+second`)
	restore := regexp.MustCompile(`action="(`+path+`/\d+)"`).FindAllStringSubmatch(page, -1)
	is.Equal(len(restore), 1) // not the current one
	is.Equal(b.submit(t, restore[0][1], url.Values{}).status, http.StatusOK)
	_, now := s.Call(t, token, "GET", at, nil)
	is.Equal(now["content"], "first <b>\n")

	s.User(t, "ann", "user")
	other := loggedIn(t, s, "ann")
	read := other.visit(t, path) // ann has access to the project
	is.Equal(read.status, http.StatusOK)
	expect.Lacks(t, read.body, `action="`+path)
	is.True(other.submit(t, restore[0][1], url.Values{}).status >= 400)
}

// A new field needs a label in its type.
func TestEveryFieldOfTheSettingsHasALabel(t *testing.T) {
	t.Parallel()
	s := webtest.NewSystem(t)
	s.User(t, "root", "admin")
	b := loggedIn(t, s, "root")
	links := regexp.MustCompile(`href="/settings/(\w+)"`)
	for _, link := range links.FindAllStringSubmatch(b.visit(t, "/settings").body, -1) {
		form, _ := s.Web.Records.Collections.FormOf(link[1])
		page := b.visit(t, "/settings/"+link[1]).body
		for _, f := range form.Fields {
			if strings.Contains(page, ">"+strings.ReplaceAll(f.Name, "_", " ")+"</label>") {
				t.Errorf("%s.%s has no label", link[1], f.Name)
			}
		}
	}
}

// A list of texts is edited in lines.
func TestAListIsShownAndChangedInLines(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "root", "admin")
	b := loggedIn(t, s, "root")
	_, server := s.Call(t, token, "POST", webtest.RecordsPath("mcp_servers"), webtest.Object{"name": "notes",
		"status": "pending", "command": "notes", "hosts": []string{"api.example.org", "example.org"}})
	path := "/settings/mcp_servers/" + server["id"].(string)
	form := formOf(t, b.visit(t, "/settings/mcp_servers").body, path)
	is.Equal(form.Get("hosts"), "api.example.org\r\nexample.org")
	form.Set("hosts", " *.example.org \r\n\r\n")
	is.Equal(b.submit(t, path, form).status, http.StatusOK)
	_, now := s.Call(t, token, "GET", webtest.RecordsPath("mcp_servers")+"/"+server["id"].(string), nil)
	is.Equal(now["hosts"], []any{"*.example.org"})
}

// An object with parts is edited by a field for each. Only what a person changes is stored.
func TestThePartsOfAnObjectAreFields(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	root, token := s.User(t, "root", "admin")
	b := loggedIn(t, s, "root")
	change := func(collection, id string, set map[string]string, want string) {
		t.Helper()
		path := "/settings/" + collection + "/" + id
		form := formOf(t, b.visit(t, "/settings/"+collection).body, path)
		for name, value := range set {
			form.Set(name, value)
		}
		is.Equal(b.submit(t, path, form).status, http.StatusOK)
		_, now := s.Raw(t, token, "GET", webtest.RecordsPath(collection)+"/"+id, nil)
		expect.Contains(t, string(now), want)
	}
	_, rules := s.Call(t, token, "POST", webtest.RecordsPath("notification_rules"),
		webtest.Object{"user": root, "rules": webtest.Object{"own": false}})
	expect.Contains(t, b.visit(t, "/settings/notification_rules").body, ">Notify about: permission requests</label>")
	change("notification_rules", rules["id"].(string), map[string]string{"rules.permission": "false"},
		`"rules":{"own":false,"permission":false}`)
	_, server := s.Call(t, token, "POST", webtest.RecordsPath("mcp_servers"), webtest.Object{"name": "notes",
		"status": "pending", "command": "notes", "limits": webtest.Object{"memory": "1GiB", "processes": 64}})
	change("mcp_servers", server["id"].(string), map[string]string{"limits.processes": "", "limits.cpu_time": "30m"},
		`"limits":{"cpu_time":"30m","memory":"1GiB"}`)
}

// A new type needs nothing but its declaration to be among the settings.
func TestATypeOfRecordsIsShownAsItIsDeclared(t *testing.T) {
	t.Parallel()
	s := webtest.NewSystem(t)
	s.User(t, "root", "admin")
	all := records.CollectionsOf(append(recordtype.All(recordtype.Machine{}), record.Type{Name: "lamps", Title: "Lamps",
		About:    "that blink",
		Access:   record.Rules(record.Accounts, record.Accounts, record.Admins, record.Admins, record.Admins),
		Defaults: map[string]any{"state": "off"},
		Fields: []record.Field{
			{Name: "price", Kind: record.Number, Label: "Price", Unit: record.Dollars, Example: "9.99"},
			{Name: "state", Kind: record.Select, Values: []string{"on", "off"}, Choices: map[string]string{"on": "shines"}},
			{Name: "pin", Kind: record.Secret, Label: "PIN"},
			{Name: "memo", Kind: record.Text, Label: "Memo", Lines: true},
		}}))
	s.Web.Records.Collections, s.Web.API.Catalogue = all, all.Catalogue()
	b := loggedIn(t, s, "root")
	expect.Contains(t, b.visit(t, "/settings").body, `<a href="/settings/lamps">Lamps</a> <small>that blink</small>`)
	page := b.visit(t, "/settings/lamps").body
	for _, want := range []string{
		`<label for="new-price">Price, in US dollars</label>`, `placeholder="9.99"`,
		`<option value="on">shines</option>`, `<option value="off" selected>off</option>`,
		`name="pin" type="password"`, `<textarea id="new-memo"`,
	} {
		expect.Contains(t, page, want)
	}
}

// An administrator sees what an agent's file changes before it is imported.
func TestAnAgentIsImportedAsThePageShowsIt(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "root", "admin")
	b := loggedIn(t, s, "root")
	expect.Contains(t, b.visit(t, "/settings/ai_agents").body, `action="/settings/ai_agents/import/check"`)
	file := url.Values{"text": {"---\nname: Deployer\npermission:\n  bash:\n    git push*: allow\n---\n\nDeploy <b>.\n"}}
	page := b.submit(t, "/settings/ai_agents/import/check", file).body
	expect.Contains(t, page, "<li><code>allows bash: git push*</code></li>")
	form := formOf(t, page, "/settings/ai_agents/import")
	expect.Contains(t, form.Get("text"), "Deploy <b>.\r\n")
	is.Equal(b.submit(t, "/settings/ai_agents/import", form).status, http.StatusOK)
	is.True(b.submit(t, "/settings/ai_agents/import", form).status >= 400) // the agent has changed since
	_, exported := s.Raw(t, token, "GET", "/api/agents/Deployer/export", nil)
	expect.Contains(t, string(exported), "Deploy <b>.")
	s.User(t, "ann", "user")
	is.Equal(loggedIn(t, s, "ann").submit(t, "/settings/ai_agents/import/check", file).status, http.StatusForbidden)
}

func TestThePageShowsATokenOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	ada, _ := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	tokenOn := func(path string, fields url.Values) string {
		r := b.submit(t, path, fields)
		is.Equal(r.status, http.StatusOK)
		_, rest, _ := strings.Cut(r.body, `id="token">`)
		token, _, _ := strings.Cut(rest, "<")
		is.Equal(len(token), 43)
		return token
	}
	first := tokenOn("/settings/webhooks", url.Values{"name": {"ci"}, "user": {ada}})
	page := b.visit(t, "/settings/webhooks").body
	expect.Lacks(t, page, first)
	expect.Contains(t, page, "ci")
	_, rest, _ := strings.Cut(page, `id="record-`)
	id, _, _ := strings.Cut(rest, `"`)
	is.True(tokenOn("/settings/webhooks/"+id+"/token", nil) != first)
}
