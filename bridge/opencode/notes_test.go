package opencode_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/bridge/opencode/notes"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/handlers/agent"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/recordtype"
	"pocketcoder/ops/expect"
)

type system struct {
	*notes.Notes
	t    *testing.T
	conn *nats.Conn
	log  bytes.Buffer
}

func open(t *testing.T) *system {
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	l := eventstest.Open(t, nc, "hunter2-secret")
	s := &system{t: t, conn: nc}
	s.Notes = &notes.Notes{Log: l, Records: recordtype.Open(l, recordtype.Machine{}), Engine: chat.DefaultEngine,
		Project: chat.DefaultEngine, Workspace: expect.MemoryDir(t),
		State:  filepath.Join(t.TempDir(), "opencode", "notes.json"),
		Logger: slog.New(slog.NewTextHandler(&s.log, nil))}
	s.save("ai_agents", "a1", `{"name":"Reviewer"}`)
	return s
}

func (s *system) save(collection, id, fields string) {
	s.t.Helper()
	all, err := record.All[struct{}](s.t.Context(), s.Records, collection)
	is.New(s.t).NoErr(err)
	isNew := true
	for _, r := range all {
		isNew = isNew && r.ID != id
	}
	_, _, err = s.Records.Save(s.t.Context(), record.Save{Collection: collection, Record: id, New: isNew,
		Set: handlerstest.Fields(fields)})
	is.New(s.t).NoErr(err)
}

func (s *system) saveNote(name, content string) {
	s.save(agent.NotesCollection, agent.Note{Agent: "a1", Name: name}.ID(),
		`{"agent":"a1","name":"`+name+`","content":"`+content+`"}`)
}

func (s *system) sync() {
	s.t.Helper()
	is.New(s.t).NoErr(s.Sync(s.t.Context()))
}

func (s *system) path(name string) string {
	return filepath.Join(notes.Folder(s.Workspace, "a1"), name)
}

func (s *system) write(name, content string) {
	s.t.Helper()
	is.New(s.t).NoErr(os.MkdirAll(notes.Folder(s.Workspace, "a1"), 0o755))
	expect.WriteFile(s.t, s.path(name), content)
}

// file returns the content of a file, "-" if it does not exist.
func (s *system) file(name string) string {
	text, err := os.ReadFile(s.path(name))
	if err != nil {
		return "-"
	}
	return string(text)
}

// stored returns the notes as NAME=CONTENT.
func (s *system) stored() string {
	all, err := record.All[agent.Note](s.t.Context(), s.Records, agent.NotesCollection)
	is.New(s.t).NoErr(err)
	var list []string
	for _, r := range all {
		list = append(list, r.Value.Name+"="+r.Value.Content)
	}
	return strings.Join(list, " ")
}

func (s *system) events() int {
	last, err := s.Log.Last(s.t.Context())
	is.New(s.t).NoErr(err)
	return int(last)
}

func TestAFileBecomesANoteAndANoteBecomesAFile(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := open(t)
	s.sync()
	s.write("plan.md", "by the agent, hunter2-secret")
	s.sync()
	expect.Contains(t, s.stored(), "plan=by the agent, ")
	expect.Lacks(t, s.stored(), "hunter2-secret")
	is.Equal("plan="+s.file("plan.md"), s.stored()) // the secret has left the file, too
	s.saveNote("plan", "by a person")
	s.sync()
	is.Equal(s.file("plan.md"), "by a person")
	is.Equal(s.stored(), "plan=by a person")
	ignore, err := os.ReadFile(filepath.Join(s.Workspace, ".agent-notes", ".gitignore"))
	is.NoErr(err)
	is.Equal(string(ignore), "*\n")

	s.write("plan.md", "file") // both change: the file wins, and the other text is the version before
	s.saveNote("plan", "record")
	s.sync()
	is.Equal([]string{s.file("plan.md"), s.stored()}, []string{"file", "plan=file"})

	is.NoErr(os.RemoveAll(filepath.Join(s.Workspace, ".agent-notes"))) // as git clean does
	s.sync()
	is.Equal(s.file("plan.md"), "file")

	before := s.events()
	s.sync()
	is.Equal(s.events(), before) // nothing has changed
}

func TestAnOlderFileIsNotTakenForAChange(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := open(t)
	s.saveNote("plan", "one")
	s.sync()
	s.saveNote("plan", "two")
	again := *s.Notes // another process, which has only the files
	is.NoErr(again.Sync(t.Context()))
	is.Equal([]string{s.file("plan.md"), s.stored()}, []string{"two", "plan=two"})
	s.write("plan.md", "one") // the agent goes back itself
	s.sync()
	is.Equal([]string{s.file("plan.md"), s.stored()}, []string{"one", "plan=one"})
}

// Members of one project could otherwise read what was noted in another one.
func TestAProjectHasOnlyFilesOfItsOwnNotes(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := open(t)
	s.saveNote("plan", "first project") // stored before notes had a project
	s.sync()
	other := *s.Notes
	other.Workspace, other.State, other.Project = t.TempDir(), filepath.Join(t.TempDir(), "notes.json"), "app"
	inOther := filepath.Join(notes.Folder(other.Workspace, "a1"), "plan.md")
	is.NoErr(other.Sync(t.Context()))
	_, err := os.Stat(inOther)
	is.True(os.IsNotExist(err))

	is.NoErr(os.MkdirAll(filepath.Dir(inOther), 0o755))
	expect.WriteFile(t, inOther, "app")
	is.NoErr(other.Sync(t.Context()))
	s.sync()
	is.Equal([]string{s.file("plan.md"), s.stored()}, []string{"first project", "plan=first project plan=app"})
	_, err = s.Records.Delete(t.Context(), record.Delete{Collection: agent.NotesCollection,
		Record: agent.Note{Agent: "a1", Name: "plan"}.ID()})
	is.NoErr(err)
	is.NoErr(other.Sync(t.Context()))
	s.sync()
	is.Equal([]string{s.file("plan.md"), s.stored()}, []string{"-", "plan=app"})
	text, err := os.ReadFile(inOther)
	is.NoErr(err)
	is.Equal(string(text), "app")
}

func TestTheFileOfADeletedNoteIsRemoved(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := open(t)
	s.saveNote("plan", "one")
	s.saveNote("style", "two")
	s.sync()
	for _, name := range []string{"plan", "style"} {
		_, err := s.Records.Delete(t.Context(), record.Delete{Collection: agent.NotesCollection,
			Record: agent.Note{Agent: "a1", Name: name}.ID()})
		is.NoErr(err)
	}
	s.write("style.md", "changed meanwhile")
	s.sync()
	is.Equal([]string{s.file("plan.md"), s.file("style.md"), s.stored()},
		[]string{"-", "changed meanwhile", "style=changed meanwhile"})
}

// An agent could otherwise change a note without a version.
func TestManyOtherFilesHideNoNote(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := open(t)
	s.write("plan.md", "one")
	s.sync()
	s.write("plan.md", "two")
	for i := range 50 * agent.MaxNotes {
		s.write(fmt.Sprint(i), "")
	}
	s.sync()
	is.Equal([]string{s.file("plan.md"), s.stored()}, []string{"two", "plan=two"})
}

func TestAFileThatCannotBeANoteStaysAndIsReportedOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := open(t)
	s.saveNote("large", "small")
	s.saveNote("plan", "one")
	s.sync()
	outside := filepath.Join(t.TempDir(), "outside.md")
	expect.WriteFile(t, outside, "outside")
	inside := filepath.Join(s.Workspace, ".env")
	expect.WriteFile(t, inside, "inside")
	long := strings.Repeat("x", agent.MaxNoteContent+1)
	s.write("large.md", long)
	s.write("binary.md", "\xff\xfe")
	s.write("bad name.md", "text")
	is.NoErr(os.Mkdir(s.path("folder.md"), 0o755))
	is.NoErr(os.Remove(s.path("plan.md")))
	is.NoErr(os.Symlink(outside, s.path("plan.md")))
	is.NoErr(os.Symlink("../../.env", s.path("link.md")))
	for range 2 {
		s.sync()
	}
	is.Equal(s.stored(), "large=small plan=one")
	is.Equal([]string{s.file("large.md"), s.file("bad name.md")}, []string{long, "text"})
	text, err := os.ReadFile(outside)
	is.NoErr(err)
	is.Equal(string(text), "outside")
	is.Equal(strings.Count(s.log.String(), "is not stored"), 6)
	expect.Contains(t, s.log.String(), "bad name.md")
}

// A folder of notes that is a symbolic link would let an agent read and write files that it may not.
func TestALinkedFolderIsLeftAlone(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := open(t)
	private := filepath.Join(notes.Folder(s.Workspace, "other"), "private.md")
	expect.WriteFile(t, private, "private")
	is.NoErr(os.Symlink("other", notes.Folder(s.Workspace, "a1")))
	s.sync()
	is.Equal(s.stored(), "")
	s.saveNote("private", "note")
	s.sync()
	text, err := os.ReadFile(private)
	is.NoErr(err)
	is.Equal(string(text), "private")
	expect.Contains(t, s.log.String(), "symbolic link")
}

// As after a restore. Run reads all files when it starts.
func TestAConsumerWithoutProgressSkipsWhatIsStored(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := open(t)
	s.saveNote("plan", "by a person")
	stored := s.events()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	js, err := jetstream.New(s.conn)
	is.NoErr(err)
	handled := func(last int) func() bool {
		return func() bool {
			c, err := js.Consumer(t.Context(), log.EventsStream, notes.Consumer)
			return err == nil && c.CachedInfo().AckFloor.Stream == uint64(last)
		}
	}
	expect.Eventually(t, "it has begun", handled(stored))
	s.saveNote("plan", "once more")
	expect.Eventually(t, "the next event is handled", handled(stored+1))
	is.Equal(s.file("plan.md"), "once more")
	c, err := js.Consumer(t.Context(), log.EventsStream, notes.Consumer)
	is.NoErr(err)
	is.Equal(c.CachedInfo().Delivered.Consumer, uint64(1))
	stop()
	<-ended
}
