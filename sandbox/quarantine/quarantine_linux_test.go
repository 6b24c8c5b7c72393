package quarantine

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/matryer/is"
	"golang.org/x/sys/unix"

	"pocketcoder/expect"
	"pocketcoder/sandbox/wire"
)

// open returns the quarantine of a new workspace, in a directory on another file system than the workspace or not.
func open(t testing.TB, otherFileSystem, guards bool) *Quarantine {
	t.Helper()
	is := is.New(t)
	dir, err := os.MkdirTemp("/var/tmp", "pocketcoder-quarantine-")
	is.NoErr(err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	c := Config{Dir: filepath.Join(dir, "quarantine"), Workspace: filepath.Join(dir, "workspace"), Guards: guards,
		Worker: "one", IsDead: func(worker string) bool { return worker == "dead" }}
	is.NoErr(os.Mkdir(c.Workspace, 0o755))
	if otherFileSystem {
		c.Dir, err = os.MkdirTemp("/dev/shm", "pocketcoder-quarantine-")
		is.NoErr(err)
		t.Cleanup(func() { os.RemoveAll(c.Dir) })
		var one, other unix.Stat_t
		is.NoErr(unix.Stat(c.Dir, &one))
		is.NoErr(unix.Stat(c.Workspace, &other))
		is.True(one.Dev != other.Dev)
	}
	q, err := Open(c)
	is.NoErr(err)
	return q
}

func begin(t *testing.T, q *Quarantine) *Session {
	t.Helper()
	s, err := q.Begin("exec", false, func() { t.Error("stopped") })
	is.New(t).NoErr(err)
	t.Cleanup(s.Close)
	return s
}

func (q *Quarantine) create(t *testing.T, name, text string) {
	t.Helper()
	is.New(t).NoErr(os.WriteFile(filepath.Join(q.Workspace, name), []byte(text), 0o644))
}

// names lists the top directory of the workspace.
func (q *Quarantine) names(t *testing.T) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(q.Workspace)
	is.New(t).NoErr(err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func (q *Quarantine) has(name string) bool {
	_, err := os.Lstat(filepath.Join(q.Workspace, name))
	return err == nil
}

func TestNamesAreTakenWhereTheDirectoryIsOnAnotherFileSystem(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	q := open(t, true, false)
	s := begin(t, q)
	q.create(t, ".envrc", "one")
	expect.Eventually(t, "it is taken", func() bool { return !q.has(".envrc") })
	q.create(t, ".envrc", "two")
	list, _ := s.End()
	is.Equal(len(list), 1)
	is.Equal(list[0].Text, "two")
	is.Equal(q.names(t), nil)
	s.Close()
	is.NoErr(q.Keep(list[0].ID))
	is.Equal(q.names(t), []string{".envrc"})
}

func TestLostEventsAreFoundByListing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	q := open(t, false, false)
	begin(t, q)
	most, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	is.NoErr(err)
	is.Equal(string(most), "16384\n")
	q.mu.Lock() // the watch handles nothing
	for i := range 20_000 {
		name := filepath.Join(q.Workspace, []string{"a", "b"}[i%2])
		is.NoErr(os.WriteFile(name, nil, 0o644))
		is.NoErr(os.Remove(name))
	}
	q.create(t, ".envrc", "one")
	q.mu.Unlock()
	expect.Eventually(t, "it is taken", func() bool { return !q.has(".envrc") })
}

func TestWhatADeadWorkerTookIsReportedByTheNextCommand(t *testing.T) {
	t.Parallel()
	for name, otherFileSystem := range map[string]bool{"same file system": false, "another": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			q := open(t, otherFileSystem, false)
			q.Worker = "dead"
			begin(t, q)
			q.create(t, ".envrc", "one")
			expect.Eventually(t, "it is taken", func() bool { return !q.has(".envrc") })
			q.mu.Lock()
			q.watch = nil
			q.mu.Unlock() // it does nothing more
			c := q.Config
			c.Worker = "two"
			next, err := Open(c)
			is.NoErr(err)
			list, _ := begin(t, next).End()
			is.Equal(len(list), 1)
			is.Equal(list[0].Text, "one")
			is.Equal(q.names(t), nil)

			// a crash while the item is kept
			is.NoErr(next.Keep(list[0].ID))
			is.NoErr(os.WriteFile(filepath.Join(next.dir(list[0].ID), itemFile), []byte("one"), 0o644))
			is.NoErr(next.Keep(list[0].ID))
			_, err = os.Lstat(filepath.Join(next.dir(list[0].ID), itemFile))
			is.True(os.IsNotExist(err))
			is.Equal(q.names(t), []string{".envrc"})
		})
	}
}

func TestAnExpectedNameStays(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	q := open(t, false, false)
	is.NoErr(q.Expect(".mcp.json")) // before the command
	s := begin(t, q)
	q.create(t, ".mcp.json", "first")
	is.NoErr(q.Expect(".npmrc"))
	q.create(t, ".npmrc", "later")
	list, lines := s.End()
	is.Equal([]int{len(list), len(lines)}, []int{0, 0})
	is.Equal(q.names(t), []string{".mcp.json", ".npmrc"})

	q.mu.Lock()
	delete(q.expected, ".mcp.json")
	q.expected[".npmrc"] = time.Now() // the time is over
	q.mu.Unlock()
	expect.Eventually(t, "it is guarded", func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return len(q.guards) == 1
	})
	q.create(t, ".npmrc", "evil")
	expect.Eventually(t, "it is put back", func() bool {
		text, _ := os.ReadFile(filepath.Join(q.Workspace, ".npmrc"))
		return string(text) == "later"
	})
	is.NoErr(q.Expect(".npmrc")) // a person has approved an edit of it
	q.create(t, ".npmrc", "edited")
	q.mu.Lock()
	q.check()
	q.expected[".npmrc"] = time.Now()
	q.mu.Unlock()
	expect.Eventually(t, "it is guarded again", func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return len(q.guards) == 1
	})
	text, err := os.ReadFile(filepath.Join(q.Workspace, ".npmrc"))
	is.NoErr(err)
	is.Equal(string(text), "edited")
}

// The kernel reports no change by a memory map, and one by another name for the other directory.
func TestGuardsNoticeChangesThatAreNotReported(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	q := open(t, false, true)
	path := filepath.Join(q.Workspace, ".envrc")
	q.create(t, ".envrc", "good")
	is.NoErr(os.Mkdir(filepath.Join(q.Workspace, "sub"), 0o755))
	begin(t, q)
	isBack := func() bool {
		text, err := os.ReadFile(path)
		return err == nil && string(text) == "good"
	}

	f, err := os.OpenFile(path, os.O_RDWR, 0)
	is.NoErr(err)
	defer f.Close()
	mapped, err := unix.Mmap(int(f.Fd()), 0, 4, unix.PROT_WRITE, unix.MAP_SHARED)
	is.NoErr(err)
	copy(mapped, "evil")
	is.True(!isBack())
	expect.Eventually(t, "it is put back", isBack)
	copy(mapped, "foul") // it is another file
	is.True(isBack())

	is.NoErr(os.Link(path, filepath.Join(q.Workspace, "sub", "alias")))
	q.create(t, "sub/alias", "evil")
	expect.Eventually(t, "it is put back", isBack)
}

func TestALargeNameCannotBeKept(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	q := open(t, false, false)
	s := begin(t, q)
	q.create(t, ".envrc", "")
	is.NoErr(unix.Mkfifo(filepath.Join(q.Workspace, ".npmrc"), 0o644))
	is.NoErr(os.Mkdir(filepath.Join(q.Workspace, ".vscode"), 0o755))
	expect.Eventually(t, "they are taken", func() bool { return q.names(t) == nil })
	q.mu.Lock()
	for _, it := range q.items {
		if it.Name == ".vscode" {
			is.NoErr(os.WriteFile(filepath.Join(q.dir(it.id), takenFile, "large"), make([]byte, maxBytes+1), 0o644))
		}
	}
	q.mu.Unlock()
	list, lines := s.End()
	is.Equal(len(list), 1)
	is.Equal([]any{list[0].Name, list[0].Kind}, []any{".envrc", wire.FileKind})
	is.Equal(lines[1:], []string{
		"pocketcoder: .npmrc was moved out of the workspace: it is neither a file, a folder nor a symbolic link",
		"pocketcoder: .vscode was moved out of the workspace: it has more than 16 MiB or 2000 files"})
	_, err := os.Stat(filepath.Join(q.Dir, replacedDir, ".vscode", "large"))
	is.NoErr(err)
}

func TestALargeProtectedNameIsAnErrorWithoutMounts(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	q := open(t, false, true)
	q.create(t, ".envrc", string(make([]byte, maxBytes+1)))
	_, err := q.Begin("exec", false, nil)
	is.True(err != nil)
	is.Equal(err.Error(), "watch the workspace: .envrc cannot be protected without bubblewrap: it has more than 16 MiB or 2000 files")
}
