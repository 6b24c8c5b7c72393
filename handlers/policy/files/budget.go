package files

import "strings"

// TooLong is the cause when a budget is spent.
const TooLong = "it takes too long to find out what this reads"

// Budget limits the work of one evaluation, and caches its results. After it is spent, every path and folder has the
// cause TooLong or cannot be read. A nil Budget has no limit and no cache.
type Budget struct {
	steps int         // left; about one for each compared name, line or path
	over  func() bool // reports whether the evaluation must end earlier
	spent bool

	resolved     map[string]resolution
	listed       map[string]listing
	tracked      map[string]tracking
	repositories map[string]bool
}

type resolution struct {
	real string
	ok   bool
}

type listing struct {
	entries []Entry
	most    int
	ok      bool
}

type tracking struct {
	paths []string
	ok    bool
}

// NewBudget returns a budget with a number of steps. over reports whether the evaluation must end earlier.
func NewBudget(steps int, over func() bool) *Budget {
	return &Budget{
		steps: steps, over: over,
		resolved: map[string]resolution{}, listed: map[string]listing{}, tracked: map[string]tracking{}, repositories: map[string]bool{},
	}
}

// spend takes steps from the budget. It reports whether the evaluation may continue.
func (b *Budget) spend(steps int) bool {
	if b == nil {
		return true
	}
	b.steps -= steps
	b.spent = b.spent || b.steps < 0 || b.over()
	return !b.spent
}

func (b *Budget) Spent() bool { return b != nil && b.spent }

// A name that is read from disk costs more than one that is remembered, for its time and its memory.
const (
	readCost    = 8
	scansByStep = 16 // cached names that are compared for one step
)

func (w Workspace) resolve(p string) (string, bool) {
	switch b := w.Budget; {
	case w.Resolve == nil:
		return p, true
	case b == nil:
		return w.Resolve(p)
	case !b.spend(1 + strings.Count(p, "/")):
		return "", false
	default:
		r, found := b.resolved[p]
		if !found {
			r.real, r.ok = w.Resolve(p)
			b.resolved[p] = r
		}
		return r.real, r.ok
	}
}

// Entries returns the names in a folder, at most so many, and none for what is no folder. ok is false when the folder
// cannot be read.
func (w Workspace) Entries(folder string, most int) (entries []Entry, ok bool) {
	b := w.Budget
	if b == nil {
		return w.List(folder, most)
	}
	l, found := b.listed[folder]
	if !b.spend(1 + len(l.entries)/scansByStep) {
		return nil, false
	}
	if complete := len(l.entries) < l.most; !found || !complete && l.most < most {
		l.entries, l.ok = w.List(folder, most)
		l.most = most
		b.listed[folder] = l
		b.spend(readCost * len(l.entries))
	}
	return l.entries[:min(most, len(l.entries))], l.ok
}

// TrackedFiles returns the paths of the files that git tracks around a folder. ok is false when they are not known.
func (w Workspace) TrackedFiles(folder string) (paths []string, ok bool) {
	b := w.Budget
	switch {
	case w.Tracked == nil:
		return nil, false
	case b == nil:
		return w.Tracked(folder)
	}
	t, found := b.tracked[folder]
	if !b.spend(1 + len(t.paths)/scansByStep) {
		return nil, false
	}
	if !found {
		t.paths, t.ok = w.Tracked(folder)
		b.tracked[folder] = t
		b.spend(readCost * len(t.paths))
	}
	return t.paths, t.ok
}
