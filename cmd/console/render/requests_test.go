package render

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/ops/expect"
)

func TestAFolderCannotForgeLinesOfARequest(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var out bytes.Buffer
	r := New(&Screen{Out: &out})
	a := r.AddRequest(events.PermissionRequest{
		ID: "per_1", Permission: "edit", Patterns: []string{"a\n? bash  ls"}, Metadata: json.RawMessage(`{"path":"b\n\n? bash  ls"}`),
	}, 1)
	r.referred(events.PermissionReferred{Permission: "per_1", Reason: "no rule\nallows it",
		Cwd: "/w/src\n\n? bash  ls -la\n  why: harmless"})
	r.ShowRequest(a)
	is.Equal(strings.Count(out.String(), "\n"), 3) // the request, its path, and why and where
}

func TestARequestToKeepANameIsShownWithItsContent(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var out bytes.Buffer
	r := New(&Screen{Out: &out})
	feed := func(d events.Data) {
		e, err := events.New("c1", events.UserActor("u1"), d)
		is.NoErr(err)
		r.Event(e)
	}
	feed(events.PermissionRequested{Permission: "k1", Type: "keep", Patterns: []string{".envrc"},
		Message: "A command created .envrc. Keep it?", Metadata: events.MustEncode(events.KeepMetadata{
			Quarantined: events.Quarantined{Item: "q1", Name: ".envrc", Kind: "file", Bytes: 9}, Text: "ls\x1b[2K\n", Cut: true})})
	feed(events.PermissionReferred{Permission: "k1", Reason: "a person decides"})
	r.ShowRequest(r.Due()[0])
	expect.Contains(t, out.String(), "? keep  A command created .envrc. Keep it? If you deny it, it is deleted.\n"+
		"  what it is: file, 9 bytes\n  created before this ended: a person's shell\n  in the quarantine: q1\n  .envrc:\n    ls␛[2K\n")
	expect.Contains(t, out.String(), "Only its beginning is shown.")
	out.Reset()
	feed(events.PermissionDecided{Permission: "k1", Type: "keep", Decision: events.Denied})
	feed(events.PermissionApplied{Permission: "k1"})
	expect.Contains(t, out.String(), "keep .envrc: it was deleted")
	feed(events.PermissionApplied{Permission: "k1", Error: "no worker has it"})
	expect.Contains(t, out.String(), "keep .envrc failed: no worker has it")
}

func TestARequestForAToolShowsItsNameAndItsArguments(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	r := New(&Screen{Out: &out})
	tool := "pocketcoder_mcp_" + strings.Repeat("long", 6) + "_delete_everything"
	request := events.PermissionRequest{ID: "per_1", SessionID: "ses_1", Permission: tool, Patterns: []string{"*"},
		Tool: events.Call{CallID: "call_1"}}
	r.ShowRequest(r.AddRequest(request, 1))
	expect.Contains(t, out.String(), tool)
	expect.Contains(t, out.String(), "not all known here")
	out.Reset()
	r.inputs["ses_1/call_1"] = json.RawMessage(`{"table":"accounts"}`)
	request.ID = "per_2"
	r.ShowRequest(r.AddRequest(request, 2))
	expect.Contains(t, out.String(), `"table": "accounts"`)
	if strings.Contains(out.String(), "not all known here") {
		t.Error(out.String())
	}
}

func TestTheFilesOfACommandAreShownAgainIfTheyChanged(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var out bytes.Buffer
	r := New(&Screen{Out: &out})
	a := r.AddRequest(events.PermissionRequest{ID: "per_1", Permission: "bash",
		Metadata: json.RawMessage(`{"command":"sh x.sh"}`)}, 1)
	refer := func(text string) {
		r.referred(events.PermissionReferred{Permission: "per_1", Reason: "no rule allows it", Cwd: "/w",
			Files:    []events.FileFingerprint{{Path: "/w/x.sh", SHA256: text}, {Path: "/w/data"}},
			Contents: []events.FileContent{{Path: "/w/x.sh", Text: text + "\x1b[2K\n"}}})
		r.ShowRequest(a)
	}
	refer("echo old")
	expect.Contains(t, out.String(), "  x.sh:\n    echo old␛[2K\n")
	shown := a.FilesHash
	a.Closed = true // an approval was sent, and refused
	refer("echo new")
	expect.Contains(t, out.String(), "echo new")
	is.Equal(len(r.Due()), 1)
	is.True(a.FilesHash != shown)
}
