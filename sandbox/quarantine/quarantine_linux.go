package quarantine

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"pocketcoder/sandbox/isolation/protection"
	"pocketcoder/sandbox/wire"
)

// A command that does more than this is stopped.
const (
	maxTakes = 16
	maxBacks = 3
)

// Quarantine is the quarantine of one workspace. It is safe for concurrent use. A nil Quarantine does nothing.
type Quarantine struct {
	Config
	mu       sync.Mutex
	items    []*item    // taken and not reported yet
	sessions []*Session // that are not closed, in the order of their start
	copies   map[string]*file

	// these exist while there is a session
	top       *os.Root
	watch     *watch
	protected map[string]bool // names in the top directory
	known     map[string]bool // those of them that are not taken
	expected  map[string]time.Time
	guards    []*guard
	checked   time.Time
}

// Session is a command while one of its processes may run.
type Session struct {
	q                *Quarantine
	exec             string
	stop             func()
	managesWorktrees bool
	takes, backs     int
	notes            []string
	ended, closed    bool
}

// item is a quarantined name. It is at one of three places: the file "taken" in its directory, or, on another file
// system than that of the data directory, a hidden file in the workspace. When its command has ended it is a copy with
// the name "item" in its directory. A kept item has none of them.
type item struct {
	about
	id      string
	session *Session // nil if it was a command of another worker
}

// about is stored with an item.
type about struct {
	Name      string    `json:"name"`
	Workspace string    `json:"workspace"`
	Exec      string    `json:"exec"`
	Worker    string    `json:"worker"`
	Time      time.Time `json:"time"`
}

const (
	aboutFile = "about.json"
	takenFile = "taken"
	itemFile  = "item"

	replacedDir  = "replaced"
	hiddenPrefix = ".pocketcoder-"
)

func (q *Quarantine) dir(id string) string { return filepath.Join(q.Dir, id) }

func hidden(id string) string { return hiddenPrefix + id }

// Open returns the quarantine of a workspace. The next Session reports what a dead worker took.
func Open(c Config) (*Quarantine, error) {
	q := &Quarantine{Config: c, expected: map[string]time.Time{}, copies: map[string]*file{}}
	entries, err := os.ReadDir(c.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open quarantine: %w", err)
	}
	for _, e := range entries {
		a, err := q.about(e.Name())
		if err != nil || a.Workspace != c.Workspace || !c.IsDead(a.Worker) {
			continue
		}
		for _, path := range []string{filepath.Join(q.dir(e.Name()), takenFile),
			filepath.Join(c.Workspace, hidden(e.Name()))} {
			if _, err := os.Lstat(path); err == nil {
				q.items = append(q.items, &item{about: a, id: e.Name()})
			}
		}
	}
	return q, nil
}

func (q *Quarantine) about(id string) (a about, err error) {
	text, err := os.ReadFile(filepath.Join(q.dir(id), aboutFile))
	if err != nil {
		return a, err
	}
	return a, json.Unmarshal(text, &a)
}

// Begin watches the workspace for a command that is about to start. stop stops the command, because it created or
// changed a protected name again and again. It must not block.
func (q *Quarantine) Begin(exec string, managesWorktrees bool, stop func()) (*Session, error) {
	if q == nil {
		return nil, nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.sessions) == 0 {
		if err := q.open(); err != nil {
			q.close()
			return nil, fmt.Errorf("watch the workspace: %w", err)
		}
	} else {
		q.scan()
	}
	s := &Session{q: q, exec: exec, managesWorktrees: managesWorktrees, stop: stop}
	q.sessions = append(q.sessions, s)
	return s, nil
}

func (q *Quarantine) open() (err error) {
	if q.top, err = os.OpenRoot(q.Workspace); err != nil {
		return err
	}
	q.protected, q.known = map[string]bool{}, map[string]bool{}
	workspace := protection.Workspace{Dir: q.Workspace}
	names := workspace.Names()
	for _, n := range names {
		if q.Guards || !n.HasPlaceholder() {
			q.protected[n.Path] = true
		}
	}
	if q.watch, err = newWatch(q.top, q.Guards); err != nil {
		return err
	}
	q.checked = time.Now()
	go q.run(q.watch)
	present, err := list(q.top, ".") // after the watch is open
	if err != nil {
		return err
	}
	for _, name := range present {
		q.known[name] = true
	}
	if q.Guards {
		err = q.guard(nil, "", names, &workspace)
	}
	for name, until := range q.expected {
		if time.Now().After(until) {
			delete(q.expected, name)
			continue
		}
		q.unguard(name)
	}
	return err
}

func (q *Quarantine) close() {
	for _, g := range q.guards {
		if g.dir != nil {
			g.dir.Close()
		}
	}
	if q.top != nil {
		q.top.Close()
	}
	q.guards, q.watch, q.top = nil, nil, nil
}

// last returns the session that a change is attributed to: of the command that started last, if possible of one that
// has not ended.
func (q *Quarantine) last() *Session {
	for _, s := range slices.Backward(q.sessions) {
		if !s.ended {
			return s
		}
	}
	return q.sessions[len(q.sessions)-1]
}

// appeared handles a name that appeared in the top directory.
func (q *Quarantine) appeared(name string) {
	if slices.Contains(protection.BareRepository, name) && q.isBare() || q.protected[name] {
		if !q.known[name] && time.Now().After(q.expected[name]) {
			q.take(name)
		}
	}
}

// isBare reports whether the workspace has all names of a bare repository.
func (q *Quarantine) isBare() bool {
	return !slices.ContainsFunc(protection.BareRepository, func(name string) bool {
		_, err := q.top.Lstat(name)
		return err != nil
	})
}

// scan takes what the watch has missed.
func (q *Quarantine) scan() {
	names, err := list(q.top, ".")
	if err != nil {
		return // the workspace is gone
	}
	for _, name := range names {
		q.appeared(name)
	}
}

// take moves a name out of the top directory.
func (q *Quarantine) take(name string) {
	s := q.last()
	it := &item{id: rand.Text(), session: s, about: about{Name: name, Workspace: q.Workspace, Exec: s.exec,
		Worker: q.Worker, Time: time.Now()}}
	text, err := json.Marshal(it.about)
	if err == nil {
		err = errors.Join(os.MkdirAll(q.dir(it.id), 0o700),
			os.WriteFile(filepath.Join(q.dir(it.id), aboutFile), text, 0o600))
	}
	if err == nil {
		err = move(q.top, name, filepath.Join(q.dir(it.id), takenFile))
	}
	if err != nil {
		err = q.top.Rename(name, hidden(it.id))
	}
	if errors.Is(err, fs.ErrNotExist) { // the command or another worker was first
		os.RemoveAll(q.dir(it.id))
		return
	}
	if s.takes++; s.takes == maxTakes+1 || err != nil {
		s.stop()
	}
	if err != nil {
		return
	}
	q.items = slices.DeleteFunc(q.items, func(old *item) bool {
		if old.session != s || old.Name != name {
			return false
		}
		q.delete(old)
		return true
	})
	q.items = append(q.items, it)
}

// move renames a file of root to an absolute path.
func move(root *os.Root, name, to string) error {
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	err = unix.Renameat(int(dir.Fd()), name, unix.AT_FDCWD, to)
	if errors.Is(err, unix.EACCES) && root.Chmod(name, 0o700) == nil { // a folder that cannot be written
		err = unix.Renameat(int(dir.Fd()), name, unix.AT_FDCWD, to)
	}
	return err
}

func (q *Quarantine) delete(it *item) {
	os.RemoveAll(q.dir(it.id))
	q.top.RemoveAll(hidden(it.id))
}

// setAside moves a file that a person is not asked about out of the way. It replaces the former one of that path.
func (q *Quarantine) setAside(root *os.Root, name, path string) {
	to := filepath.Join(q.Dir, replacedDir, strings.ReplaceAll(path, "/", "%"))
	os.MkdirAll(filepath.Dir(to), 0o700)
	os.RemoveAll(to)
	if move(root, name, to) != nil {
		root.RemoveAll(name)
	}
}

// End returns what was taken while the command ran, and a line for the command's output about each name. The command
// has ended, but processes that it has left may run.
func (s *Session) End() (list []wire.Quarantined, lines []string) {
	if s == nil {
		return nil, nil
	}
	q := s.q
	q.mu.Lock()
	q.scan()
	q.check()
	s.ended = true
	lines = s.notes
	var ended []*item
	q.items = slices.DeleteFunc(q.items, func(it *item) bool {
		if it.session != nil && !it.session.ended {
			return false
		}
		ended = append(ended, it)
		return true
	})
	q.mu.Unlock()
	texts := wire.MaxQuarantineTexts
	for _, it := range ended {
		described, err := q.freeze(it)
		if err != nil {
			lines = append(lines, fmt.Sprintf("pocketcoder: %s was moved out of the workspace: %v", it.Name, err))
			continue
		}
		if most := min(texts, wire.MaxQuarantineText); len(described.Text) > most {
			described.Text, described.Cut = strings.ToValidUTF8(described.Text[:most], ""), true
		}
		texts -= len(described.Text)
		list = append(list, described)
		lines = append(lines, fmt.Sprintf("pocketcoder: %s was moved out of the workspace: a person is asked whether to keep it",
			it.Name))
	}
	return list, lines
}

// freeze replaces a taken item by a copy that no process has open. The error says why the item cannot be kept.
func (q *Quarantine) freeze(it *item) (wire.Quarantined, error) {
	at, err := os.OpenRoot(q.dir(it.id))
	if err != nil {
		return wire.Quarantined{}, err
	}
	defer at.Close()
	from, name := at, takenFile
	if _, err := at.Lstat(takenFile); err != nil {
		if from, err = os.OpenRoot(q.Workspace); err != nil {
			return wire.Quarantined{}, err
		}
		defer from.Close()
		name = hidden(it.id)
	}
	f, err := copyKeepable(from, name, at, it.Name)
	if err != nil {
		q.setAside(from, name, it.Name)
		os.RemoveAll(q.dir(it.id))
		return wire.Quarantined{}, err
	}
	from.RemoveAll(name)
	described := f.describe()
	described.ID, described.Name = it.id, it.Name
	return described, nil
}

// copyKeepable copies a taken file to itemFile in a directory, unless it cannot be kept.
func copyKeepable(from *os.Root, name string, to *os.Root, original string) (*file, error) {
	switch {
	case original == ".git":
		return nil, errors.New("a command cannot create .git here; a person can, with git init")
	case original == "commondir" || slices.Contains(protection.BareRepository, original):
		return nil, errors.New("a command cannot make the workspace a repository")
	}
	f, err := readAll(from, name)
	if err != nil {
		return nil, err
	}
	if f.mode.Type()&^(fs.ModeDir|fs.ModeSymlink) != 0 {
		return nil, errSpecial
	}
	return f, errors.Join(to.RemoveAll(itemFile), f.write(to, itemFile))
}

// Close says that no process of the command is left. It may be called again.
func (s *Session) Close() {
	if s == nil {
		return
	}
	q := s.q
	q.mu.Lock()
	defer q.mu.Unlock()
	if s.closed {
		return
	}
	s.ended, s.closed = true, true
	q.scan()
	q.check()
	q.sessions = slices.DeleteFunc(q.sessions, func(other *Session) bool { return other == s })
	switch {
	case len(q.sessions) == 0:
		q.close()
	case s.managesWorktrees:
		q.guardWorktrees()
	}
}

// Holds reports whether the quarantine has an item, or had one that was kept.
func (q *Quarantine) Holds(id string) bool {
	if q == nil || !wire.IsToken(id) {
		return false
	}
	a, err := q.about(id)
	return err == nil && a.Workspace == q.Workspace
}

// Keep moves an item back to its name. It fails if a file has the name. It does nothing if the item was kept.
func (q *Quarantine) Keep(id string) error {
	if !q.Holds(id) {
		return fmt.Errorf("the quarantine of this workspace has no item %s", id)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	a, err := q.about(id)
	if err != nil {
		return fmt.Errorf("keep: %w", err)
	}
	at, err := os.OpenRoot(q.dir(id))
	if err != nil {
		return fmt.Errorf("keep %s: %w", a.Name, err)
	}
	defer at.Close()
	f, err := readAll(at, itemFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = q.place(f, a.Name)
	}
	if err == nil {
		err = at.RemoveAll(itemFile)
	}
	if err != nil {
		return fmt.Errorf("keep %s: %w", a.Name, err)
	}
	return nil
}

// place creates a file with a protected name. While commands run that started before, it is put back when it changes.
func (q *Quarantine) place(f *file, name string) error {
	top, err := os.OpenRoot(q.Workspace)
	if err != nil {
		return err
	}
	defer top.Close()
	if !f.isAt(top, name) { // otherwise a crash has interrupted Keep
		dir, err := top.Open(".")
		if err != nil {
			return err
		}
		defer dir.Close()
		temp := hidden(rand.Text())
		if err := f.write(top, temp); err != nil {
			top.RemoveAll(temp)
			return err
		}
		if len(q.sessions) > 0 {
			q.known[name] = true // before it appears
		}
		err = unix.Renameat2(int(dir.Fd()), temp, int(dir.Fd()), name, unix.RENAME_NOREPLACE)
		if err != nil {
			top.RemoveAll(temp)
			if errors.Is(err, unix.EEXIST) {
				return errors.New("a file has this name; move it away first")
			}
			return err
		}
	}
	if len(q.sessions) > 0 {
		q.guards = append(q.guards, &guard{name: name, path: name, want: f})
	}
	return nil
}

// Expect says that a person has approved that another program creates or changes a protected name. For wire.ExpectTime
// the name is neither taken nor put back. Afterwards it is guarded as it is then.
func (q *Quarantine) Expect(name string) error {
	if q == nil {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.expected[name] = time.Now().Add(wire.ExpectTime)
	if len(q.sessions) > 0 {
		q.unguard(name)
	}
	return nil
}

// unguard ends the guard of an expected name. The name is not expected if commands cannot change it, because it is
// covered by a mount.
func (q *Quarantine) unguard(name string) {
	before := len(q.guards)
	q.guards = slices.DeleteFunc(q.guards, func(g *guard) bool { return g.path == name && g.dir == nil })
	if q.known[name] && len(q.guards) == before {
		delete(q.expected, name)
	}
}

// Dismiss deletes an item, if it is here.
func (q *Quarantine) Dismiss(id string) error {
	if !q.Holds(id) {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := os.RemoveAll(q.dir(id)); err != nil {
		return fmt.Errorf("dismiss: %w", err)
	}
	return nil
}
