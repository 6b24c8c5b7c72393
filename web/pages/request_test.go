package pages_test

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers/permission/workspace"
	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

func TestANotificationLeadsToThePageOfItsRequest(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	s.User(t, "bob", "user")
	chat := s.Chat(t, token, "Tidy up")
	id := needed(t, s, chat, "per_1", "rm -r build\x1b[2K")
	needed(t, s, chat, "per_2", "make other")

	guest := newBrowser(t, s)
	is.Equal(guest.visit(t, "/requests/per_1").path, "/login?next=%2Frequests%2Fper_1")
	b := loggedIn(t, s, "ada")
	page := b.visit(t, "/requests/per_1")
	is.Equal(page.status, http.StatusOK)
	for _, want := range []string{`rm -r build<b class="hidden">␛</b>[2K`, "no rule allows it", "/workspace",
		`href="/chats/` + chat + `">Tidy up<`, `value="authorized"`, `value="denied"`, `name="reason"`} {
		expect.Contains(t, page.body, want)
	}
	expect.Lacks(t, page.body, "make other")
	_, rest, _ := strings.Cut(page.body, `name="shown_request" value="`)
	shown, _, _ := strings.Cut(rest, `"`)
	after := b.submit(t, "/chats/"+chat+"/requests/"+id, url.Values{"decision": {"denied"}, "reason": {"keep it"},
		"from": {"request"}, "shown_request": {shown}})
	is.Equal([]any{after.status, after.path}, []any{http.StatusOK, "/requests/" + id})
	expect.Contains(t, after.body, "denied by ada@example.org")
	expect.Contains(t, after.body, "keep it")
	expect.Contains(t, b.visit(t, "/requests/per_1").body, "denied by ada@example.org")
	is.Equal(b.visit(t, "/?chat="+chat).path, "/chats/"+chat) // where other notifications lead

	for _, none := range []string{"/requests/per_9", `/requests/%22%20%7C%7C%20id%20!=%20%22`, "/requests/%27",
		"/requests/%5C"} {
		is.Equal(b.visit(t, none).status, http.StatusNotFound) // none
	}
	is.Equal(loggedIn(t, s, "bob").visit(t, "/requests/per_1").status, http.StatusNotFound)
}

func TestThePageOfARequestFollowsItsDecision(t *testing.T) {
	t.Parallel()
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	chat := s.Chat(t, token, "Tidy up")
	id := needed(t, s, chat, "per_1", "make everything")
	b := loggedIn(t, s, "ada")
	page := b.visit(t, "/requests/per_1")
	stream := b.follow(t, page)
	b.submit(t, "/chats/"+chat+"/requests/"+id, url.Values{"decision": {"authorized"},
		"shown_request": {shownRequest(page.body)}})
	stream.until("approved by ada@example.org")
}

func TestARequestForAToolOfAnMCPServerShowsItsArguments(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	chat := s.Chat(t, token, "Tidy up")
	s.AppendOpenCode(t, chat, "permission.asked", `{"id":"per_1","sessionID":"ses_`+chat+`","permission":"pocketcoder_mcp_lab_send_mail",
		"patterns":["*"],"always":["*"],"metadata":{},"tool":{"messageID":"msg_1","callID":"call_1"}}`)
	s.Append(t, chat, events.PermissionReferred{Permission: "per_1", Reason: "no rule allows it"})
	b := loggedIn(t, s, "ada")
	expect.Lacks(t, b.visit(t, "/requests/per_1").body, "ann@example.org") // OpenCode reports the arguments later
	call := func() map[string]any {
		return map[string]any{"type": "tool", "tool": "pocketcoder_mcp_lab_send_mail", "callID": "call_1",
			"state": map[string]any{"status": "running", "time": map[string]any{"start": 1},
				"input": map[string]any{"to": "ann@example.org", "caller": "signed"}}}
	}
	submitMessage(t, s, chat, "msg_1", call())
	page := b.visit(t, "/requests/per_1").body
	expect.Contains(t, page, "Use send_mail of the MCP server lab")
	is.True(strings.Contains(page, "ann@example.org"))
	expect.Lacks(t, page, "signed")
}

func TestACardShowsTheFilesOfACommandAndAnApprovalOfOtherFilesDoesNotCount(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	chat := s.Chat(t, token, "Ship it")
	script, data := filepath.Join(s.Workspace, "deploy.sh"), filepath.Join(s.Workspace, "data.bin")
	is.NoErr(os.WriteFile(script, []byte("echo \x1b[2Kold\n"), 0o600))
	is.NoErr(os.WriteFile(data, []byte("\x00"), 0o600))
	const command = "sh deploy.sh data.bin"
	id := s.AppendCommandRequest(t, chat, "per_1", command)
	files := workspace.CommandFingerprints(command, s.Workspace, s.Workspace)
	s.Append(t, chat, events.PermissionReferred{Permission: "per_1", Reason: "no rule allows it", Cwd: s.Workspace,
		Files: files, Contents: []events.FileContent{{Path: files[0].Path, Text: "echo \x1b[2Kold\n"}}})

	b := loggedIn(t, s, "ada")
	page := b.visit(t, "/requests/per_1").body
	for _, want := range []string{`<p class="hint">deploy.sh</p>`, `echo <b class="hidden">␛</b>[2Kold`,
		"other files that it names", "data.bin"} {
		expect.Contains(t, page, want)
	}
	approve := func(page string) shown {
		_, rest, _ := strings.Cut(page, `name="shown_files" value="`)
		files, _, _ := strings.Cut(rest, `"`)
		return b.submit(t, "/chats/"+chat+"/requests/"+id, url.Values{"decision": {"authorized"}, "from": {"request"},
			"shown_request": {shownRequest(page)}, "shown_files": {files}})
	}
	is.NoErr(os.WriteFile(script, []byte("echo new\n"), 0o600))
	expect.Contains(t, approve(page).body, "deploy.sh changed while the request waited. Nothing was decided.")
	expect.Contains(t, approve(page).body, "are not those that were shown") // the page still shows the old files
	var renewed string
	expect.Eventually(t, "the page shows the file again", func() bool { // a live page is sent the change
		renewed = b.visit(t, "/requests/per_1").body
		return strings.Contains(renewed, "deploy.sh changed while the request waited. Read it again.")
	})
	expect.Contains(t, approve(renewed).body, "approved by ada@example.org")
}

func TestACardSaysOnceThatACommandHasNoNetwork(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	chat := s.Chat(t, token, "Install")
	s.AppendCommandRequest(t, chat, "per_1", "npm install")
	const none = "The command has no network."
	s.Append(t, chat, events.PermissionReferred{Permission: "per_1", Reason: "no rule allows it. " + none, Network: none,
		Cwd: s.Workspace})
	is.Equal(strings.Count(loggedIn(t, s, "ada").visit(t, "/requests/per_1").body, none), 1)
}
