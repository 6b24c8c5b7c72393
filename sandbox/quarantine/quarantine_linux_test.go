package quarantine

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"
	"golang.org/x/sys/unix"

	"pocketcoder/ops/expect"
	"pocketcoder/sandbox/wire"
)

func TestMain(m *testing.M) { expect.Run(m) }

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
	return beginIn(t, q, "chat")
}

// beginIn begins a command of a chat.
func beginIn(t *testing.T, q *Quarantine, chat string) *Session {
	t.Helper()
	s, err := q.Begin(Command{Exec: "exec", Chat: chat, Stop: func() { t.Error("stopped") }})
	is.New(t).NoErr(err)
	t.Cleanup(s.Close)
	return s
}

func (q *Quarantine) create(t testing.TB, name, text string) {
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

// replaced returns the content of the files that were set aside, with a path.
func (q *Quarantine) replaced(t *testing.T, path string) (texts []string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(q.Dir, replacedDir, "*", path))
	is.New(t).NoErr(err)
	for _, path := range found {
		text, err := os.ReadFile(path)
		is.New(t).NoErr(err)
		texts = append(texts, string(text))
	}
	slices.Sort(texts)
	return texts
}

// text returns the content of a file in the workspace.
func (q *Quarantine) text(name string) string {
	text, err := os.ReadFile(filepath.Join(q.Workspace, name))
	if err != nil {
		return err.Error()
	}
	return string(text)
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
	q.check(true)
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
		"pocketcoder: .npmrc was moved out of the workspace and cannot be kept: it is neither a file, a folder nor a symbolic link",
		"pocketcoder: .vscode was moved out of the workspace and cannot be kept: it has more than 16 MiB or 2000 files"})
	is.Equal(len(q.replaced(t, ".vscode/large")), 1)
}

func TestALargeProtectedNameIsAnErrorWithoutMounts(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	q := open(t, false, true)
	q.create(t, ".envrc", string(make([]byte, maxBytes+1)))
	_, err := q.Begin(Command{Exec: "exec", Chat: "chat"})
	is.True(err != nil)
	is.Equal(err.Error(), "watch the workspace: .envrc cannot be protected without bubblewrap: it has more than 16 MiB or 2000 files")
}

// A busy directory must not keep the watch from comparing what the kernel does not report.
func TestTheWatchComparesWhileEventsCome(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	q := open(t, false, true)
	q.create(t, ".envrc", "good")
	begin(t, q)
	mapped := q.mapFile(t, ".envrc")
	q.mu.Lock()
	defer q.mu.Unlock()
	copy(mapped, "evil")
	q.checked = time.Now().Add(-q.interval)
	q.handle([]event{{directory: q.watch.top, name: "noise", appeared: true}})
	is.Equal(q.text(".envrc"), "good")
}

// mapFile maps a file into memory. Its first change is stored and reported, later ones are not.
func (q *Quarantine) mapFile(t *testing.T, name string) []byte {
	t.Helper()
	is := is.New(t)
	f, err := os.OpenFile(filepath.Join(q.Workspace, name), os.O_RDWR, 0)
	is.NoErr(err)
	defer f.Close()
	info, err := f.Stat()
	is.NoErr(err)
	mapped, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	is.NoErr(err)
	t.Cleanup(func() { unix.Munmap(mapped) })
	return mapped
}

// Stores into a mapped page that is already dirty change neither size nor time of the file.
func TestAMemoryMapIsUndoneAtTheEnd(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	q := open(t, false, true)
	is.NoErr(os.Mkdir(filepath.Join(q.Workspace, ".git"), 0o755))
	q.create(t, ".git/config", "[core] good")
	s := begin(t, q)
	mapped := q.mapFile(t, ".git/config")
	mapped[0] = '[' // the page is dirty
	expect.Eventually(t, "its stamp is remembered", func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return slices.ContainsFunc(q.guards, func(g *guard) bool {
			return g.path == ".git/config" && g.want.stamp != stamp{} &&
				time.Since(time.Unix(g.want.stamp.changed.Unix())) < time.Minute
		})
	})
	copy(mapped, "[core] evil")
	_, lines := s.End()
	is.Equal(q.text(".git/config"), "[core] good")
	is.Equal(lines, []string{"pocketcoder: .git/config was put back: a command cannot change it"})
	is.Equal(q.replaced(t, ".git/config"), []string{"[core] evil"})
}

func TestNothingThatWasTakenIsDeleted(t *testing.T) {
	t.Parallel()
	for name, otherFileSystem := range map[string]bool{"same file system": false, "another": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			q := open(t, otherFileSystem, true)
			q.create(t, "AGENTS.md", "kind")
			s := begin(t, q)
			for _, text := range []string{"a person's hour", "two", "three"} {
				q.create(t, ".envrc", text)
				expect.Eventually(t, "it is taken", func() bool { return !q.has(".envrc") })
			}
			for _, text := range []string{"a person's text", "another"} {
				q.create(t, "AGENTS.md", text)
				expect.Eventually(t, "it is put back", func() bool { return q.text("AGENTS.md") == "kind" })
			}
			for _, text := range []string{"history", "more history"} {
				is.NoErr(os.Mkdir(filepath.Join(q.Workspace, "repository"), 0o755))
				q.create(t, "repository/HEAD", text)
				is.NoErr(os.Rename(filepath.Join(q.Workspace, "repository"), filepath.Join(q.Workspace, ".git")))
				expect.Eventually(t, "it is taken", func() bool { return !q.has(".git") })
			}
			list, lines := s.End()
			is.Equal(len(list), 1)
			is.Equal(list[0].Text, "three")
			expect.Contains(t, strings.Join(lines, "\n"), "an earlier version of .envrc is in the directory replaced")
			is.Equal(q.replaced(t, ".envrc"), []string{"a person's hour", "two"})
			is.Equal(q.replaced(t, "AGENTS.md"), []string{"a person's text", "another"})
			is.Equal(q.replaced(t, ".git/HEAD"), []string{"history", "more history"})
			is.Equal(q.names(t), []string{"AGENTS.md"})
		})
	}
}

func TestWhatDoesNotFitStaysInTheWorkspace(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	q := open(t, true, false)
	s := begin(t, q)
	q.create(t, ".envrc", "a person's hour")
	expect.Eventually(t, "it is taken", func() bool { return !q.has(".envrc") })
	is.NoErr(os.RemoveAll(q.Dir))
	is.NoErr(os.WriteFile(q.Dir, nil, 0o600)) // nothing can be created there
	list, lines := s.End()
	is.Equal(len(list), 0)
	names := q.names(t)
	is.Equal(len(names), 1)
	expect.Contains(t, names[0], ".envrc.moved-by-pocketcoder-")
	is.Equal(q.text(names[0]), "a person's hour")
	expect.Contains(t, strings.Join(lines, "\n"), ".envrc is "+names[0]+" in the workspace now")
}

// A program that unpacks files creates their folder again after each take.
func TestFoldersOfOneNameBecomeOneItem(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	q := open(t, false, false)
	s := begin(t, q)
	for n := range 2 * maxTakes {
		at := filepath.Join(q.Workspace, "folder")
		is.NoErr(os.Mkdir(at, 0o755))
		is.NoErr(os.WriteFile(filepath.Join(at, fmt.Sprint(n)), []byte("x"), 0o644))
		is.NoErr(os.WriteFile(filepath.Join(at, "all"), []byte(fmt.Sprint(n/maxTakes)), 0o644))
		is.NoErr(unix.Mkfifo(filepath.Join(at, "pipe"), 0o644))
		is.NoErr(os.Rename(at, filepath.Join(q.Workspace, ".vscode")))
		expect.Eventually(t, "it is taken", func() bool { return !q.has(".vscode") })
	}
	list, _ := s.End()
	is.Equal(len(list), 1)
	is.Equal(list[0].Files, 2*maxTakes+1)
	is.Equal(len(q.replaced(t, ".vscode/all")), maxTakes)
	s.Close()
	is.NoErr(q.Keep(list[0].ID))
	is.Equal(q.text(".vscode/all"), "1")
	is.Equal(q.text(".vscode/0"), "x")
}

func TestARefusedKeepLetsNoCommandCreateTheName(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	q := open(t, false, false)
	s := begin(t, q)
	q.create(t, ".envrc", "harmless")
	list, _ := s.End()
	s.Close()
	q.create(t, ".other", "")
	s = begin(t, q)
	q.mu.Lock()
	q.create(t, ".envrc", "evil") // while Keep works
	a, isHere := q.lookUp(list[0].ID)
	is.True(isHere)
	at, err := os.OpenRoot(q.dir(list[0].ID))
	is.NoErr(err)
	defer at.Close()
	f, err := readAll(at, itemFile)
	is.NoErr(err)
	err = q.place(f, at, a.Name)
	q.mu.Unlock()
	is.Equal(err.Error(), "a file has this name now; the created one stays in the quarantine")
	is.True(!q.has(".envrc"))
	list, _ = s.End()
	is.Equal(len(list), 1)
	is.Equal(list[0].Text, "evil")
}

func TestADeletedNameIsTakenWhenItIsCreatedAgain(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	q := open(t, false, false)
	q.create(t, ".envrc", "mine")
	begin(t, q) // a server that runs on
	is.NoErr(os.Remove(filepath.Join(q.Workspace, ".envrc")))
	s := begin(t, q)
	q.create(t, ".envrc", "evil")
	expect.Eventually(t, "it is taken", func() bool { return !q.has(".envrc") })
	list, _ := s.End()
	is.Equal(len(list), 1)
}

// vim and others save a file so.
func TestAnEditorThatRenamesTheFileItSavesKeepsIt(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	q := open(t, false, false)
	q.create(t, ".envrc", "mine")
	s := begin(t, q)
	is.NoErr(os.Rename(filepath.Join(q.Workspace, ".envrc"), filepath.Join(q.Workspace, ".envrc~")))
	q.create(t, ".envrc", "mine, too")
	list, _ := s.End()
	is.Equal(len(list), 0)
	is.True(q.has(".envrc"))
}

// A worker may die after End and before its Result is sent.
func TestAnUndecidedItemOfADeadWorkerIsReportedAgain(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	q := open(t, false, false)
	q.Worker = "dead"
	s := begin(t, q)
	q.create(t, ".envrc", "one")
	first, _ := s.End()
	is.Equal(len(first), 1)
	// a crash of End before it removed what it has copied
	is.NoErr(os.WriteFile(filepath.Join(q.dir(first[0].ID), takenFile), []byte("one"), 0o644))
	next, err := Open(q.Config)
	is.NoErr(err)
	again, _ := begin(t, next).End()
	is.Equal(again, first)
	is.NoErr(next.Dismiss(first[0].ID))
	last, err := Open(q.Config)
	is.NoErr(err)
	is.Equal(len(last.items), 0)
}

func TestEveryItemIsReportedByTheNextCommand(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	q := open(t, false, true)
	server := beginIn(t, q, "") // an MCP server
	q.create(t, ".envrc", "export TOKEN=1")
	expect.Eventually(t, "it is taken", func() bool { return !q.has(".envrc") })
	list, _ := server.End()
	is.Equal(len(list), 0)

	alice := beginIn(t, q, "alice")
	q.create(t, ".npmrc", "alice")
	expect.Eventually(t, "it is taken", func() bool { return !q.has(".npmrc") })
	bob := beginIn(t, q, "bob")
	q.create(t, ".exrc", "both")
	expect.Eventually(t, "it is taken", func() bool { return !q.has(".exrc") })
	expect.Eventually(t, "it is complete", func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.isComplete(q.items[1]) // .npmrc of the command that runs on
	})
	list, _ = bob.End()
	is.Equal(len(list), 2)
	for _, item := range list { // none is of bob's chat alone
		is.Equal([]any{item.Text, item.Cut}, []any{"", true})
	}
	list, _ = alice.End()
	is.Equal(len(list), 1) // a command that runs reports its own
	is.Equal([]any{list[0].Name, list[0].Text}, []any{".npmrc", "alice"})
}

// settled waits until a session reports names while its command runs.
func settled(t *testing.T, s *Session) (list []wire.Quarantined) {
	t.Helper()
	expect.Eventually(t, "it is reported", func() bool { list = s.Report(); return len(list) > 0 })
	return list
}

func TestAFileThatIsBeingWrittenIsNotReported(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	q := open(t, false, false)
	s := begin(t, q)
	f, err := os.Create(filepath.Join(q.Workspace, ".envrc"))
	is.NoErr(err)
	_, err = f.WriteString("one\n")
	is.NoErr(err)
	q.create(t, ".npmrc", "complete")
	is.Equal(settled(t, s)[0].Name, ".npmrc") // which was created later
	is.Equal(len(s.Report()), 0)
	_, err = f.WriteString("two\n")
	is.NoErr(err)
	is.NoErr(f.Close())
	is.Equal(settled(t, s)[0].Text, "one\ntwo\n")
}

// A program that unpacks files creates their folder again after each take.
func TestAFolderIsReportedOnceWhileItsCommandRuns(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	q := open(t, false, false)
	s := begin(t, q)
	const times = maxTakes + 2
	for n := range times {
		is.NoErr(os.Mkdir(filepath.Join(q.Workspace, ".vscode"), 0o755))
		expect.Eventually(t, "it is taken", func() bool { return !q.has(".vscode") })
		if n == 0 {
			is.Equal(settled(t, s)[0].Name, ".vscode")
		}
	}
	is.Equal(s.folderTakes, times-1)
	expect.Eventually(t, "the others are complete", func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.isComplete(q.items[len(q.items)-1])
	})
	is.Equal(len(s.Report()), 0)
	list, _ := s.End()
	is.Equal(len(list), 1)
}

func TestACommandOfNoChatKeepsNoWatchOpen(t *testing.T) {
	t.Parallel()
	q := open(t, false, false)
	is.New(t).True(beginIn(t, q, "") == nil)
}

// A command must not see what was moved for long: git add -A would record it.
func TestAHiddenItemIsStowed(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	q := open(t, true, false)
	s := begin(t, q)
	q.create(t, ".envrc", "one")
	expect.Eventually(t, "it is moved to the quarantine", func() bool { return q.names(t) == nil })
	list, _ := s.End()
	is.Equal(len(list), 1)
	is.Equal(list[0].Text, "one")
}

func TestAKeptNameIsGuardedForTheCommandsThatRun(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	q := open(t, false, false)
	server := begin(t, q)
	q.create(t, ".envrc", "one")
	list, _ := server.End() // its processes run on
	is.NoErr(q.Keep(list[0].ID))
	for range 2 * maxBacks { // perhaps by a person: no command is stopped
		q.create(t, ".envrc", "two")
		expect.Eventually(t, "it is put back", func() bool { return q.text(".envrc") == "one" })
	}
	later := begin(t, q)
	server.Close()
	q.create(t, ".envrc", "mine")
	later.End()
	is.Equal(q.text(".envrc"), "mine")
}

func TestWhatCouldNotBeTakenOrPutBackIsTriedAgain(t *testing.T) {
	t.Parallel()
	q := open(t, false, true)
	q.create(t, ".envrc", "one")
	begin(t, q).Close()
	q.create(t, ".envrc", "changed")
	q.create(t, ".npmrc", "created")
	q.lost[".envrc"], q.untaken[".npmrc"] = true, true
	begin(t, q)
	expect.Eventually(t, "it is put back", func() bool { return q.text(".envrc") == "one" })
	expect.Eventually(t, "it is taken", func() bool { return !q.has(".npmrc") })
}

// A command may take away the right to write in its folders, which stops no worker of root.
func TestFoldersThatCannotBeWrittenAreMovedAndRemoved(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	dir, err := os.MkdirTemp("/var/tmp", "pocketcoder-quarantine-") // every user reaches it
	is.NoErr(err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	is.NoErr(os.Chmod(dir, 0o755))
	sub := filepath.Join(dir, "from", ".vscode", "sub")
	is.NoErr(os.MkdirAll(sub, 0o755))
	is.NoErr(os.Mkdir(filepath.Join(dir, "to"), 0o755))
	is.NoErr(os.WriteFile(filepath.Join(sub, "file"), nil, 0o644))
	for _, path := range []string{sub, filepath.Dir(sub), filepath.Join(dir, "from")} {
		is.NoErr(os.Chmod(path, 0o555))
	}
	root, err := os.OpenRoot(filepath.Join(dir, "from"))
	is.NoErr(err)
	defer root.Close()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread ends with its user
		if os.Getuid() == 0 {
			const other = 65534
			for _, path := range []string{filepath.Join(dir, "to"), filepath.Join(dir, "from"), filepath.Dir(sub), sub} {
				if err := os.Chown(path, other, other); err != nil {
					done <- err
					return
				}
			}
			unix.Setfsuid(other)
		}
		err := move(root, ".vscode", filepath.Join(dir, "to", "taken"))
		if err == nil {
			var to *os.Root
			if to, err = os.OpenRoot(filepath.Join(dir, "to")); err == nil {
				defer to.Close()
				err = removeAll(to, "taken")
			}
		}
		done <- err
	}()
	is.NoErr(<-done)
	left, err := os.ReadDir(filepath.Join(dir, "to"))
	is.NoErr(err)
	is.Equal(len(left), 0)
}

func TestAPipeInThePlaceOfAFolderBlocksNothing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	dir := t.TempDir()
	is.NoErr(unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	root, err := os.OpenRoot(dir)
	is.NoErr(err)
	defer root.Close()
	done := make(chan error, 1)
	go func() {
		_, err := list(root, "pipe")
		done <- err
	}()
	select {
	case err := <-done:
		is.True(err != nil)
	case <-time.After(time.Minute):
		t.Fatal("it is opened as a pipe")
	}
}
