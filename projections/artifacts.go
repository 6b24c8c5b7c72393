package projections

import (
	"context"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/projections/store"
)

// Artifact is a file of the workspace that was created or changed while an execution ran, as it was after it.
type Artifact struct {
	store.Record
	Chat      string `db:"chat" json:"chat"`
	Execution string `db:"execution" json:"execution"`
	Path      string `db:"path" json:"path"` // from the workspace
	Size      int64  `db:"size" json:"size"` // bytes
	SHA256    string `db:"sha256" json:"sha256"`
	Blob      string `db:"blob" json:"blob"` // name in BLOBS; empty when the content was not kept
}

func updateArtifacts(t *tables, e events.Event, body any) error {
	b, ok := body.(events.ExecChanged)
	if !ok {
		return nil
	}
	for _, f := range b.Files {
		a, _ := t.artifacts.Get(artifactID(b.Exec, f.Path))
		a.Chat, a.Execution, a.Path, a.Size, a.SHA256, a.Blob = e.Subject.ID, b.Exec, f.Path, f.Size, f.SHA256, ""
		if f.Blob != nil {
			a.Blob = f.Blob.Name
		}
		t.artifacts.Put(a)
	}
	return nil
}

// artifactID is the id of the record of a file of an execution.
func artifactID(exec, path string) string { return RecordID(exec + "/" + path) }

// Artifact returns the record of a file of an execution, and whether there is one.
func (m *Model) Artifact(ctx context.Context, exec, path string) (Artifact, bool, error) {
	return store.First[Artifact](ctx, m.Model, "artifact of "+exec, "SELECT * FROM artifacts WHERE id={:id}",
		dbx.Params{"id": artifactID(exec, path)})
}
