package permission_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/bridge/push"
	"pocketcoder/cmd/console/render"
	"pocketcoder/events"
	"pocketcoder/handlers/permission"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
	"pocketcoder/projections/store"
	"pocketcoder/projections/timeline"
	"pocketcoder/web/pages/requests"
)

// shown returns what each renderer shows of a request that waits for a person.
func shown(t *testing.T, request events.PermissionRequest) map[string]string {
	t.Helper()
	patterns, err := json.Marshal(request.Patterns)
	if err != nil {
		t.Fatal(err)
	}
	row := projections.Permission{EnginePermission: request.ID, Permission: request.Permission,
		Patterns: store.JSON(patterns),
		Metadata: store.JSON(request.Metadata), Status: events.Draft, Referred: true, Message: request.Line(), Source: "opencode"}
	row.ID = "r1"
	var page, screen bytes.Buffer
	entry := timeline.Entry{ID: row.ID, Request: &timeline.Request{Permission: row}}
	if err := requests.Card(entry, requests.FromChat).Render(t.Context(), &page); err != nil {
		t.Fatal(err)
	}
	terminal := render.New(&render.Screen{Out: &screen})
	terminal.ShowRequest(terminal.AddRequest(request, 1))
	c := push.Card(row, "")
	message, _ := push.Body(c)
	return map[string]string{"page": page.String(), "terminal": screen.String(),
		"message": push.Visible(c.Line()) + "\n" + message}
}

func TestOnlyARequestForACommandIsShownAsOne(t *testing.T) {
	t.Parallel()
	metadata := json.RawMessage(`{"command":"ls build","filepath":"/safe/a.go","url":"https://safe.example.org",` +
		`"diff":"@@ -0,0 +1 @@\n+safe\n","target":"pro\u001b[2Kduction"}`)
	for _, kind := range []string{"deploy", "external_directory", "webfetch", "read", "grep", "task", "question"} {
		for renderer, text := range shown(t, events.PermissionRequest{ID: "per_1", Permission: kind,
			Patterns: []string{"shop to production"}, Metadata: metadata}) {
			t.Run(renderer+" of "+kind, func(t *testing.T) {
				for _, part := range []string{"shop to production", "ls build", "/safe/a.go", "https://safe.example.org", "␛"} {
					expect.Contains(t, text, part)
				}
				for _, part := range []string{"Run ", "? bash", "<textarea", "Edit a.go", "Write a.go", "\x1b[2K"} {
					expect.Lacks(t, text, part)
				}
			})
		}
	}
	command := events.PermissionRequest{ID: "per_1", Permission: "bash", Patterns: []string{"ls build"},
		Metadata: metadata}
	for renderer, title := range map[string]string{"page": "Run a command", "terminal": "? bash  ls build",
		"message": "Run ls build"} {
		expect.Contains(t, shown(t, command)[renderer], title)
	}
}

func TestACardIsWholeIfItShowsAllThatAnApprovalAllows(t *testing.T) {
	t.Parallel()
	diff := `"diff":"--- /w/a\n+++ /w/a\n@@ -1 +1 @@\n-a\n+b\n"`
	for name, c := range map[string]struct {
		kind, metadata, arguments string
		whole                     bool
	}{
		"a command":                  {"bash", `{"command":"ls"}`, "", true},
		"a secret":                   {"bash", `{"command":"login [redacted]"}`, "", false},
		"a search":                   {"grep", `{"path":"/w/private","include":".env*"}`, "", true},
		"a change":                   {"edit", `{"filepath":"/w/a",` + diff + `}`, "", true},
		"a patch of one file":        {"edit", `{"files":[{"filePath":"/w/a","type":"update"}],` + diff + `}`, "", true},
		"a moved file":               {"edit", `{"files":[{"filePath":"/w/a","movePath":"/w/b"}],` + diff + `}`, "", false},
		"a deleted file":             {"edit", `{"files":[{"filePath":"/w/a","type":"delete"}],` + diff + `}`, "", false},
		"a patch without its diff":   {"edit", `{"files":[{"filePath":"/w/a","type":"update"}]}`, "", false},
		"several files":              {"edit", `{"files":[{"filePath":"/w/a"},{"filePath":"/w/b"}],` + diff + `}`, "", false},
		"a tool":                     {"pocketcoder_schedule_task", `{}`, `{"every":"24h"}`, true},
		"a tool with a secret":       {"pocketcoder_schedule_task", `{}`, `{"token":"[redacted]"}`, false},
		"a tool without arguments":   {"pocketcoder_schedule_task", `{}`, "", false},
		"a name with hidden content": {"keep", `{"name":".envrc","kind":"file","cut":true}`, "", false},
		"metadata of another shape":  {"deploy", `["production"]`, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			is.New(t).Equal(permission.CardOf(permission.CardSource{Cwd: "/w", Arguments: c.arguments,
				PermissionRequest: events.PermissionRequest{Permission: c.kind, Patterns: []string{"*"},
					Metadata: json.RawMessage(c.metadata)}}).Whole, c.whole)
		})
	}
	if permission.CardOf(permission.CardSource{PermissionRequest: events.PermissionRequest{Permission: "bash",
		Metadata: json.RawMessage(`{"command":"ls"}`)}}).Whole {
		t.Error("the folder of a command is not known")
	}
}

func TestTheTitleOfAChangeNamesItsFile(t *testing.T) {
	t.Parallel()
	for metadata, title := range map[string]string{
		`{"filepath":"/w/a","diff":"@@ -0,0 +1 @@\n+b\n"}`:           "Write a (+1 −0)",
		`{"filepath":"/w/a","diff":"@@ -1 +1 @@\n-a\n+b\n"}`:         "Edit a (+1 −1)",
		`{"diff":"x","files":[{"filePath":"/a","movePath":"/b"}]}`:   "Move /a to /b",
		`{"diff":"x","files":[{"filePath":"/a"},{"filePath":"/b"}]}`: "Change 2 files",
	} {
		request := events.PermissionRequest{Permission: "edit", Metadata: json.RawMessage(metadata)}
		c := permission.CardOf(permission.CardSource{PermissionRequest: request})
		if c.Title != title || strings.Contains(c.Text, "\n") {
			t.Errorf("%s: %q", metadata, c.Title)
		}
	}
}

// The policy judges the filepath of a write, and the files of an edit.
func TestACardShowsWhatThePolicyJudges(t *testing.T) {
	t.Parallel()
	diff := `"diff":"@@ -1 +1 @@\n-a\n+b\n"`
	for metadata, want := range map[string]string{
		`{"filepath":"/etc/x","files":[{"filePath":"/w/README.md"}],` + diff + `}`: "/etc/x",
		`{"pattern":"secrets","path":"secrets"}`:                                   "path",
	} {
		kind := events.KindWrite
		if want == "path" {
			kind = events.KindGrep
		}
		c := permission.CardOf(permission.CardSource{PermissionRequest: events.PermissionRequest{Permission: kind, Patterns: []string{"secrets"},
			Metadata: json.RawMessage(metadata)}})
		if !slices.ContainsFunc(c.Details, func(d permission.CardDetail) bool { return d.Name == want || d.Value == want }) {
			t.Errorf("%s %s: %+v", kind, metadata, c.Details)
		}
	}
}
