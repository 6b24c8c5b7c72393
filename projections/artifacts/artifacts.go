// Package artifacts is the read model of the files that executions left in the workspace, and of those that the
// assistant sent to the person.
//
// Promises: a row names the stored copy of a file as an execution left it, if there is a copy. A file that was sent
// always has one.
//
// It must not know what is in the workspace now.
package artifacts

import (
	"context"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/projections/store"
)

// Artifact is a file of the workspace that was created or changed while an execution ran, as it was after it, or a file
// that the assistant sent.
type Artifact struct {
	store.Record
	Chat      string `db:"chat" json:"chat"`
	Execution string `db:"execution" json:"execution"` // empty for a file that was sent
	Path      string `db:"path" json:"path"`           // from the workspace; if sent, from the session's directory
	Size      int64  `db:"size" json:"size"`           // bytes
	SHA256    string `db:"sha256" json:"sha256"`
	Blob      string `db:"blob" json:"blob"` // name in BLOBS; empty when the content was not kept
	Caption   string `db:"caption" json:"caption"`
}

// Update applies an event of a chat.
func Update(t *store.Table[Artifact], e events.Event, body any) {
	switch b := body.(type) {
	case events.ExecChanged:
		for _, f := range b.Files {
			a, _ := t.Get(recordID(b.Exec, f.Path))
			a.Chat, a.Execution, a.Path, a.Size, a.SHA256, a.Blob = e.Subject.ID, b.Exec, f.Path, f.Size, f.SHA256, ""
			if f.Blob != nil {
				a.Blob = f.Blob.Name
			}
			t.Put(a)
		}
	case events.FileSent:
		a, _ := t.Get(b.File)
		a.Chat, a.Path, a.Caption = e.Subject.ID, b.Path, b.Caption
		a.Size, a.SHA256, a.Blob = b.Content.Size, b.Content.SHA256, b.Content.Name
		t.Put(a)
	}
}

// recordID is the id of the record of a file of an execution.
func recordID(exec, path string) string { return store.RecordID(exec + "/" + path) }

// Find returns the record of a file of an execution, and whether there is one.
func Find(ctx context.Context, m *store.Model, exec, path string) (Artifact, bool, error) {
	return One(ctx, m, recordID(exec, path))
}

// One returns the record with an id, and whether there is one.
func One(ctx context.Context, m *store.Model, id string) (Artifact, bool, error) {
	return store.First[Artifact](ctx, m, "artifact "+id, "SELECT * FROM artifacts WHERE id={:id}", dbx.Params{"id": id})
}
