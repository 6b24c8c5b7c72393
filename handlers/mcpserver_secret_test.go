package handlers_test

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/secret"
	"pocketcoder/handlers"
	"pocketcoder/handlers/mcpserver"
	"pocketcoder/handlers/project"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/recordtype"
	"pocketcoder/ops/expect"
)

// The event of a server may be damaged, or on no replica that this node reads. Its values are not lost with it.
func TestOnlyADeletionDeletesTheValuesOfAnMCPServer(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	records := recordtype.Open(eventstest.Open(t, nc), recordtype.Machine{})
	secrets, err := secret.Open(t.Context(), nc, 1)
	is.NoErr(err)
	records.Secrets = secrets
	m := mcpserver.Secrets{Records: records}
	system := handlers.Command{Actor: events.ActorSystem}
	save := func(id string) {
		t.Helper()
		_, _, err := records.Save(t.Context(), record.Save{Command: system, New: true, Collection: mcpserver.Collection,
			Record: id, Set: record.Fields(map[string]any{"name": id, "command": "serve", "environment": []string{"TOKEN"},
				"status": "pending"})})
		is.NoErr(err)
		is.NoErr(m.Set(t.Context(), mcpserver.SetSecret{Server: id, Name: "TOKEN", Value: rand.Text() + rand.Text()}))
	}
	stored := func() (all []string) {
		t.Helper()
		keys, err := secrets.Keys(t.Context(), mcpserver.SecretPrefix)
		is.NoErr(err)
		return slices.Sorted(slices.Values(keys))
	}
	save("damaged")
	is.NoErr(nc.Publish(events.ConfigSubject(mcpserver.Collection, "damaged", events.Saved{}.Kind()), []byte("{}")))
	is.NoErr(nc.Flush())
	is.NoErr(secrets.Put(t.Context(), mcpserver.SecretPrefix+".later", []byte("{}"))) // its record is not here yet
	save("deleted")
	_, err = records.Delete(t.Context(), record.Delete{Command: system, Collection: mcpserver.Collection,
		Record: "deleted"})
	is.NoErr(err)
	is.Equal(len(stored()), 3)
	is.NoErr(records.Clean(t.Context(), mcpserver.Collection))
	is.Equal(stored(), []string{"mcp.damaged", "mcp.later"})
}

func TestAValueThatAFileOfAProjectHasInItsPathIsRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	records := recordtype.Open(eventstest.Open(t, nc), recordtype.Machine{})
	secrets, err := secret.Open(t.Context(), nc, 1)
	is.NoErr(err)
	records.Secrets = secrets
	names := map[string]string{events.DefaultEngine: rand.Text(), "app": rand.Text()} // by project
	for id, name := range names {
		directory := t.TempDir()
		is.NoErr(os.MkdirAll(filepath.Join(directory, "build", "app-"+name), 0o755))
		_, err := project.Ensure(t.Context(), records, project.Project{ID: id, Name: id, Directory: directory})
		is.NoErr(err)
	}
	m := mcpserver.Secrets{Records: records}
	_, _, err = records.Save(t.Context(), record.Save{Command: handlers.Command{Actor: events.ActorSystem}, New: true,
		Collection: mcpserver.Collection, Record: "lab", Set: record.Fields(map[string]any{"name": "lab",
			"command": "serve", "environment": []string{"TOKEN"}, "status": "pending"})})
	is.NoErr(err)
	for value, refused := range map[string]bool{names[events.DefaultEngine]: true, "Bearer " + names["app"]: true,
		rand.Text(): false} {
		err := m.Set(t.Context(), mcpserver.SetSecret{Server: "lab", Name: "TOKEN", Value: value})
		is.Equal(err != nil, refused)
		if refused {
			expect.Contains(t, err.Error(), "is part of the path of a file of a project")
		}
	}
}
