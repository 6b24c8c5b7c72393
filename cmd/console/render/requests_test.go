package render

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/cmd/printable"
	"pocketcoder/events"
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
