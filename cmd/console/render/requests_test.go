package render

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/cmd/printable"
	"pocketcoder/events"
	"pocketcoder/expect"
)

func TestAFolderCannotForgeLinesOfARequest(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var out bytes.Buffer
	r := New(&Screen{Out: &out})
	a := r.AddRequest(events.PermissionAsk{
		ID: "per_1", Permission: "edit", Patterns: []string{"a\n? bash  ls"}, Metadata: json.RawMessage(`{"path":"b\n\n? bash  ls"}`),
	}, 1)
	r.referred(events.PermissionReferred{Permission: "per_1", Reason: "no rule\nallows it",
		Cwd: "/w/src\n\n? bash  ls -la\n  why: harmless"})
	r.ShowRequest(a)
	is.Equal(strings.Count(out.String(), "\n"), 3) // the request, its path, and why and where
	is.Equal(printable.Visible("a\u2800b\u3164c\u034fd"), `a\u2800b\u3164c\u034fd`)
}

func TestTheFilesOfACommandAreShownAgainIfTheyChanged(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var out bytes.Buffer
	r := New(&Screen{Out: &out})
	a := r.AddRequest(events.PermissionAsk{ID: "per_1", Permission: "bash",
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
