package quarantine

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
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

// A command that does more than this is stopped. A folder that a command creates again counts apart, because a program
// that unpacks files creates their folder again after each take.
const (
	maxTakes       = 16
	maxFolderTakes = 1000
	maxBacks       = 3
)

// maxReported limits the names of one report. The others come with the next one.
const maxReported = 100

// settleTime is how long an item of a running command must be unchanged before it counts as complete.
const settleTime = time.Second

// Quarantine is the quarantine of one workspace. It is safe for concurrent use. A nil Quarantine does nothing.
type Quarantine struct {
	Config
	mu       sync.Mutex
	items    []*item    // not reported yet, in the order in which they were taken
	asides   []aside    // not moved to the quarantine yet
	sessions []*Session // that are not closed, in the order of their start
	copies   map[string]*file
	lost     map[string]bool // paths of copies that could not be put back
	untaken  map[string]bool // names that could not be taken

	// these exist while there is a session
	top       *os.Root
	watch     *watch
	protected map[string]bool // names in the top directory
	watched   []string        // these, and those of a bare repository
	known     map[string]bool // those of names that exist and are not taken
	expected  map[string]time.Time
	guards    []*guard
	// by watch descriptor: the directories with guarded names, whose other files commands may change
	directories map[int32]*guard
	checked     time.Time     // when names and guarded files were compared last
	interval    time.Duration // until they are compared again
}

// Session is a command while one of its processes may run.
type Session struct {
	Command
	q                         *Quarantine
	takes, folderTakes, backs int
	folders                   map[string]bool // names that were taken as folders
	reported                  map[string]bool // names that were reported while the command ran
	notes                     []string
	ended, closed             bool
	reporting                 sync.Mutex // held by report; locked before Quarantine.mu
}

// item is a quarantined name. It is at one of three places: the file "taken" in its directory, or, on another file
// system than that of the data directory, a hidden file in the workspace. When it is reported it is a copy with the
// name "item" in its directory. A kept item has none of them.
type item struct {
	about
	id       string
	session  *Session // nil if it was a command of another worker
	isFolder bool
	isCopied bool       // before this worker started
	stowAt   time.Time  // when to try to stow it, if it is hidden; zero if not
	mu       sync.Mutex // held while it moves to another place
}

// about is stored with an item.
type about struct {
	Name      string    `json:"name"`
	Workspace string    `json:"workspace"`
	Exec      string    `json:"exec"`
	Chat      string    `json:"chat"` // of all commands that ran when it was taken; empty if they had several
	Worker    string    `json:"worker"`
	Time      time.Time `json:"time"`
}

const (
	aboutFile = "about.json"
	takenFile = "taken"
	itemFile  = "item"
	partFile  = "part" // an incomplete copy

	replacedDir  = "replaced"
	hiddenPrefix = ".pocketcoder-"
)

func (q *Quarantine) dir(id string) string { return filepath.Join(q.Dir, id) }

func hidden(id string) string { return hiddenPrefix + id }

// Open returns the quarantine of a workspace. The next report has what a dead worker took, and the items
// that wait for a decision.
func Open(c Config) (*Quarantine, error) {
	q := &Quarantine{Config: c, expected: map[string]time.Time{}, copies: map[string]*file{}, lost: map[string]bool{},
		untaken: map[string]bool{}}
	entries, err := os.ReadDir(c.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open quarantine: %w", err)
	}
	for _, e := range entries {
		a, err := q.about(e.Name())
		if err != nil || a.Workspace != c.Workspace || !c.IsDead(a.Worker) {
			continue
		}
		it := &item{about: a, id: e.Name(), isCopied: exists(filepath.Join(q.dir(e.Name()), itemFile))}
		isTaken := exists(filepath.Join(q.dir(it.id), takenFile)) || exists(filepath.Join(c.Workspace, hidden(it.id)))
		if isTaken || it.isCopied {
			q.items = append(q.items, it)
		}
	}
	slices.SortFunc(q.items, func(a, b *item) int { return a.Time.Compare(b.Time) })
	return q, nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func (q *Quarantine) about(id string) (a about, err error) {
	text, err := os.ReadFile(filepath.Join(q.dir(id), aboutFile))
	if err != nil {
		return a, err
	}
	return a, json.Unmarshal(text, &a)
}

// Begin watches the workspace for a command that is about to start.
func (q *Quarantine) Begin(c Command) (*Session, error) {
	if q == nil || c.Chat == "" && !q.Guards {
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
		q.forgetDeleted()
		q.scan()
	}
	s := &Session{q: q, Command: c, folders: map[string]bool{}, reported: map[string]bool{}}
	q.sessions = append(q.sessions, s)
	return s, nil
}

func (q *Quarantine) open() (err error) {
	if q.top, err = os.OpenRoot(q.Workspace); err != nil {
		return err
	}
	q.protected, q.known = map[string]bool{}, map[string]bool{}
	q.directories = map[int32]*guard{}
	workspace := protection.Workspace{Dir: q.Workspace}
	names := workspace.Names()
	for _, n := range names {
		if q.Guards || !n.HasPlaceholder() {
			q.protected[n.Path] = true
		}
	}
	q.watched = slices.AppendSeq(slices.Clone(protection.BareRepository), maps.Keys(q.protected))
	if q.watch, err = newWatch(q.top, q.Guards); err != nil {
		return err
	}
	q.checked, q.interval = time.Now(), checkEvery
	go q.run(q.watch)
	for name := range q.present() { // after the watch is open
		q.known[name] = !q.untaken[name]
	}
	if !q.Guards { // mounts cover all but symbolic links
		names = slices.DeleteFunc(names, func(n protection.Name) bool { return !isLink(q.top, n.Path) })
	}
	err = q.guard(nil, "", names, &workspace)
	for name, until := range q.expected {
		if time.Now().After(until) {
			delete(q.expected, name)
			continue
		}
		q.unguard(name)
	}
	return err
}

func isLink(root *os.Root, name string) bool {
	info, err := root.Lstat(name)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
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

// chat returns the chat of all commands that run, or "" if they have several. Commands of no chat do not count.
func (q *Quarantine) chat() (chat string) {
	for _, s := range q.sessions {
		switch {
		case chat == "":
			chat = s.Chat
		case s.Chat != "" && s.Chat != chat:
			return ""
		}
	}
	return chat
}

// present yields the watched names that exist. It looks for each of them, because the top directory may have very many
// files.
func (q *Quarantine) present() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, name := range q.watched {
			if _, err := q.top.Lstat(name); err == nil && !yield(name) {
				return
			}
		}
	}
}

// spelled returns the protected name that a name in the top directory is. On some file systems names in other case are
// the same.
func (q *Quarantine) spelled(name string) string {
	if q.isWatched(name) {
		return name
	}
	for _, other := range q.watched {
		if !strings.EqualFold(other, name) {
			continue
		}
		a, err := q.top.Lstat(name)
		b, e := q.top.Lstat(other)
		if err == nil && e == nil && os.SameFile(a, b) {
			return other
		}
	}
	return name
}

func (q *Quarantine) isWatched(name string) bool {
	return q.protected[name] || slices.Contains(protection.BareRepository, name)
}

// appeared handles a name that appeared in the top directory.
func (q *Quarantine) appeared(name string) {
	if slices.Contains(protection.BareRepository, name) && q.isBare() || q.protected[name] {
		if !q.known[name] && time.Now().After(q.expected[name]) {
			q.take(name)
		}
	}
}

// forgetDeleted forgets names that a person has deleted, so that they are taken if a command creates them. A name that
// is away for a moment stays known: some editors save a file by renaming it and creating it again.
func (q *Quarantine) forgetDeleted() {
	left := slices.Collect(q.present())
	for _, g := range q.guards {
		left = append(left, g.path)
	}
	maps.DeleteFunc(q.known, func(name string, _ bool) bool { return !slices.Contains(left, name) })
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
	q.guardExpected() // first, so that it is not taken when its time is over
	for name := range q.present() {
		q.appeared(name)
	}
}

// take moves a name out of the top directory.
func (q *Quarantine) take(name string) {
	s := q.last()
	it := &item{id: rand.Text(), session: s, about: about{Name: name, Workspace: q.Workspace, Exec: s.Exec, Chat: q.chat(),
		Worker: q.Worker, Time: time.Now()}}
	info, _ := q.top.Lstat(name)
	it.isFolder = info != nil && info.IsDir()
	text, err := json.Marshal(it.about)
	if err == nil {
		err = errors.Join(os.MkdirAll(q.dir(it.id), 0o700),
			os.WriteFile(filepath.Join(q.dir(it.id), aboutFile), text, 0o600))
	}
	if err == nil {
		err = move(q.top, name, filepath.Join(q.dir(it.id), takenFile))
	}
	if err != nil {
		if err = q.top.Rename(name, hidden(it.id)); errors.Is(err, fs.ErrPermission) {
			makeWritable(q.top, ".")
			err = q.top.Rename(name, hidden(it.id))
		}
		it.stowAt = it.Time.Add(settleTime)
	}
	if err != nil {
		os.RemoveAll(q.dir(it.id)) // it has no file of the workspace
	}
	q.untaken[name] = err != nil && !errors.Is(err, fs.ErrNotExist)
	if errors.Is(err, fs.ErrNotExist) { // the command or another worker was first
		return
	}
	if err != nil {
		s.note(fmt.Sprintf("pocketcoder: %s could not be moved out of the workspace: %v", name, err))
		s.Stop()
		return
	}
	if it.isFolder && s.folders[name] {
		s.folderTakes++
	} else {
		s.takes++
	}
	s.folders[name] = s.folders[name] || it.isFolder
	q.items = append(q.items, it)
	if s.takes == maxTakes+1 || s.folderTakes == maxFolderTakes+1 {
		s.Stop()
	}
}

func (s *Session) note(note string) {
	if !slices.Contains(s.notes, note) {
		s.notes = append(s.notes, note)
	}
}

// End returns what was taken and was not reported yet. It also returns the lines for the command's output, also those
// about earlier reports of the session. The command has ended, but processes that it has left may run.
func (s *Session) End() (list []wire.Quarantined, lines []string) { return s.report(true) }

// Report returns what was taken and was not reported yet, while the command runs. It leaves out what may not be
// complete. After End it returns nothing.
func (s *Session) Report() []wire.Quarantined {
	list, _ := s.report(false)
	return list
}

// report returns what was taken and is not reported yet, and the notes of the session. It includes what was taken while
// other commands ran.
func (s *Session) report(isLast bool) (list []wire.Quarantined, notes []string) {
	if s == nil {
		return nil, nil
	}
	s.reporting.Lock() // so that End has the notes of each Report
	defer s.reporting.Unlock()
	q := s.q
	q.mu.Lock()
	if s.ended {
		q.mu.Unlock()
		return nil, nil
	}
	if isLast { // the watch does it too, and keeps its share of the processor
		q.scan()
		q.check(false)
	}
	s.ended = isLast
	asides, names := q.asides, q.removeReportable(s)
	q.asides = nil
	q.mu.Unlock()

	var lines []string
	for _, a := range asides {
		if err := q.stowAside(a); err != nil {
			lines = append(lines, fmt.Sprintf("pocketcoder: %v", a.stays(err)))
		}
	}
	texts := wire.MaxQuarantineTexts
	for _, takes := range names {
		described, notes, err := q.freeze(takes)
		name := takes[0].Name
		if err != nil {
			lines = append(lines, fmt.Sprintf("pocketcoder: %s was moved out of the workspace and cannot be kept: %v", name, err))
			lines = append(lines, notes...)
			continue
		}
		if most := min(texts, wire.MaxQuarantineText); len(described.Text) > most {
			described.Text, described.Cut = strings.ToValidUTF8(described.Text[:most], ""), true
		}
		if takes[0].Chat != s.Chat { // people of another chat must not read it
			described.Text, described.Cut = "", true
		}
		texts -= len(described.Text)
		list = append(list, described)
		lines = append(lines, fmt.Sprintf("pocketcoder: %s was moved out of the workspace: a person is asked whether to keep it",
			name))
		lines = append(lines, notes...)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, line := range lines {
		s.note(line)
	}
	return list, slices.Clone(s.notes)
}

// isComplete reports whether a running command has for a while neither changed an item nor created its name again, and
// cannot write to it any more. A program that unpacks files creates their folder again and again.
func (q *Quarantine) isComplete(it *item) bool {
	if slices.ContainsFunc(q.items, func(other *item) bool {
		return other.Name == it.Name && time.Since(other.Time) < settleTime
	}) {
		return false
	}
	root, name, err := q.locate(it)
	if err != nil {
		return true // freeze says why
	}
	defer root.Close()
	info, err := root.Lstat(name)
	if err != nil || !info.Mode().IsRegular() {
		return true
	}
	return time.Since(changed(info)) >= settleTime && !hasWriter(root, name, info)
}

// hasWriter reports whether a process can write to a file. The kernel grants a lease only if none can (fcntl(2)). A
// file system without leases counts as one without writers.
func hasWriter(root *os.Root, name string, info fs.FileInfo) bool {
	f, err := openRegular(root, name, info)
	if err != nil {
		return false
	}
	defer f.Close() // which ends the lease
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
	return errors.Is(err, unix.EAGAIN)
}

// removeReportable removes the items that a session reports, and returns those of each name together.
func (q *Quarantine) removeReportable(s *Session) (list [][]*item) {
	if s.Chat == "" {
		return nil
	}
	waits := map[*item]bool{}
	for _, it := range q.items {
		t := it.session
		waits[it] = t != nil && !t.ended && t.Chat != "" && (t != s || s.reported[it.Name] || !q.isComplete(it))
	}
	q.items = slices.DeleteFunc(q.items, func(it *item) bool {
		if waits[it] {
			return false
		}
		at := slices.IndexFunc(list, func(takes []*item) bool {
			return takes[0].Name == it.Name && takes[0].Chat == it.Chat && !takes[len(takes)-1].isCopied
		})
		if at < 0 {
			if len(list) == maxReported {
				return false
			}
			list, at = append(list, nil), len(list)
		}
		list[at] = append(list[at], it)
		s.reported[it.Name] = true
		return true
	})
	return list
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
	q.check(false)
	q.sessions = slices.DeleteFunc(q.sessions, func(other *Session) bool { return other == s })
	q.guards = slices.DeleteFunc(q.guards, func(g *guard) bool {
		return g.sessions != nil && !slices.ContainsFunc(g.sessions, func(s *Session) bool { return !s.closed })
	})
	switch {
	case len(q.sessions) == 0:
		q.close()
	case s.ManagesWorktrees:
		q.guardWorktrees()
	}
}
