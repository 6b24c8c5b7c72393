package quarantine

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"pocketcoder/sandbox/wire"
)

// Holds reports whether the quarantine has an item, or had one that was kept.
func (q *Quarantine) Holds(id string) bool {
	_, isHere := q.lookUp(id)
	return isHere
}

func (q *Quarantine) lookUp(id string) (a about, isHere bool) {
	if q == nil || !wire.IsToken(id) {
		return a, false
	}
	a, err := q.about(id)
	return a, err == nil && a.Workspace == q.Workspace
}

// Keep moves an item back to its name. It fails if a file has the name. It does nothing if the item was kept.
func (q *Quarantine) Keep(id string) error {
	a, isHere := q.lookUp(id)
	if !isHere {
		return fmt.Errorf("the quarantine of this workspace has no item %s", id)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
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
		err = q.place(f, at, a.Name)
	}
	if err == nil {
		err = removeAll(at, itemFile)
	}
	if err != nil {
		return fmt.Errorf("keep %s: %w", a.Name, err)
	}
	return nil
}

// place moves an item from its directory to a protected name. While commands run that started before, it is put back
// when it changes.
func (q *Quarantine) place(f *file, at *os.Root, name string) error {
	top, err := os.OpenRoot(q.Workspace)
	if err != nil {
		return err
	}
	defer top.Close()
	if !f.isAt(top, name, false) { // otherwise a crash has interrupted Keep
		wasKnown := q.known[name]
		if len(q.sessions) > 0 {
			q.known[name] = true // before it appears
		}
		if err := q.moveIn(f, at, top, name); err != nil {
			if len(q.sessions) > 0 {
				q.known[name] = wasKnown
				q.scan() // a command may have created it meanwhile
			}
			return err
		}
	}
	if len(q.sessions) > 0 {
		q.guardForNow(name, f)
	}
	return nil
}

// moveIn renames a copy of an item to its name. Commands cannot see the copy before, unless the quarantine is on
// another file system.
func (q *Quarantine) moveIn(f *file, at, top *os.Root, name string) error {
	err := renameCopy(f, at, partFile, top, name)
	if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EACCES) {
		err = renameCopy(f, top, hidden(rand.Text()), top, name)
	}
	if errors.Is(err, unix.EEXIST) {
		return errors.New("a file has this name now; the created one stays in the quarantine")
	}
	return err
}

// renameCopy creates the file with another name and renames it, if the name is free.
func renameCopy(f *file, from *os.Root, temp string, to *os.Root, name string) error {
	from.RemoveAll(temp) // of a crash
	err := f.write(from, temp)
	if err == nil {
		err = withDescriptor(from, func(source int) error {
			return withDescriptor(to, func(target int) error {
				return unix.Renameat2(source, temp, target, name, unix.RENAME_NOREPLACE)
			})
		})
	}
	if err != nil {
		from.RemoveAll(temp)
	}
	return err
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
	all, err := os.OpenRoot(q.Dir)
	if err == nil {
		defer all.Close()
		err = removeAll(all, id)
	}
	if err != nil {
		return fmt.Errorf("dismiss: %w", err)
	}
	return nil
}
