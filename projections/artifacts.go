package projections

import (
	"context"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/projections/store"
)

// Artifact is a file of the workspace that was created or changed while an execution ran, as it was after it, or a file
// that the assistant sent. It names the stored copy of the file, if there is one. A file that was sent always has one.
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

// updateArtifacts applies an event of a chat.
func updateArtifacts(t *tables, e events.Event, body any) error {
	switch b := body.(type) {
	case events.ExecChanged:
		for _, f := range b.Files {
			a, _ := t.artifacts.Get(artifactID(b.Exec, f.Path))
			a.Chat, a.Execution, a.Path, a.Size, a.SHA256, a.Blob = e.Subject.ID, b.Exec, f.Path, f.Size, f.SHA256, ""
			if f.Blob != nil {
				a.Blob = f.Blob.Name
			}
			t.artifacts.Put(a)
		}
	case events.FileSent:
		a, _ := t.artifacts.Get(b.File)
		a.Chat, a.Path, a.Caption = e.Subject.ID, b.Path, b.Caption
		a.Size, a.SHA256, a.Blob = b.Content.Size, b.Content.SHA256, b.Content.Name
		t.artifacts.Put(a)
	}
	return nil
}

// artifactID is the id of the record of a file of an execution.
func artifactID(exec, path string) string { return store.RecordID(exec + "/" + path) }

// ArtifactOf returns the record of a file of an execution, and whether there is one.
func (m *Model) ArtifactOf(ctx context.Context, exec, path string) (Artifact, bool, error) {
	return m.Artifact(ctx, artifactID(exec, path))
}

// Artifact returns the record with an id, and whether there is one.
func (m *Model) Artifact(ctx context.Context, id string) (Artifact, bool, error) {
	return store.First[Artifact](ctx, m.Model, "artifact "+id, "SELECT * FROM artifacts WHERE id={:id}",
		dbx.Params{"id": id})
}
