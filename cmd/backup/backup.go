// Package backup copies an installation to a directory while it runs, and makes a new data directory of such a copy.
//
// A backup is a directory: backup.json, the messages of EVENTS and BLOBS in numbered files, and secrets and keys in
// one encrypted file. A second run adds what is new. A file is never changed once backup.json names it, so a tool that
// copies directories elsewhere copies only new files.
//
// Promises: a backup is consistent: it holds every event up to one sequence and every blob that those events name.
// Each file is read again after it was written. A run that was killed leaves the backup as it was, and the next run
// resumes where that one stopped. Restore writes to an empty directory only, reads regular files only, checks each
// before it writes, and reads back all that it has stored. No system starts on the directory of a restore that did not
// finish.
//
// It must not know flags, terminals, or what events mean. Read models and the state of consumers are left out, because
// they can be computed again. Streaming fragments are left out, because a later event has the whole text.
package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"pocketcoder/cmd/datadir"
	"pocketcoder/cmd/program"
	"pocketcoder/events"
	"pocketcoder/events/archive"
	"pocketcoder/events/atomicfile"
	"pocketcoder/events/log"
	"pocketcoder/events/log/blob"
)

// maxPart is the size of messages, in bytes, after which a new file begins. After a run was killed, the next one
// repeats at most this much.
const maxPart = 64 << 20

// Progress receives the progress of a step. Steps run one after the other; done grows to total.
type Progress func(step string, done, total uint64)

type Options struct {
	Data       datadir.Dir
	NATS       string // URL of an external server, for a system that does not run
	To         string // directory
	Passphrase string // for secrets and keys; "" leaves them out
	Progress   Progress
	maxPart    uint64 // 0 for maxPart
}

// Result describes what a backup holds now, and what this run added.
type Result struct {
	Directory string `json:"directory"`
	Events    uint64 `json:"events"` // sequence of the last one
	NewEvents uint64 `json:"newEvents"`
	NewBytes  uint64 `json:"newBytes"` // of messages, before compression
	Secrets   bool   `json:"secrets"`  // they and the keys are in it
}

// Write makes a backup, or adds new messages to an existing one.
func Write(ctx context.Context, o Options) (Result, error) {
	r, err := write(ctx, o)
	if err != nil {
		return r, fmt.Errorf("back up %s to %s: %w", o.Data, o.To, err)
	}
	return r, nil
}

func write(ctx context.Context, o Options) (r Result, err error) {
	o.maxPart = cmp.Or(o.maxPart, maxPart)
	release, err := hold(o.To)
	if err != nil {
		return r, err
	}
	defer release()
	m, err := readManifest(o.To)
	if errors.Is(err, errNoBackup) {
		m, err = newManifest(), checkEmpty(o.To)
	}
	if err != nil {
		return r, err
	}
	if err := m.checkPassphrase(o); err != nil {
		return r, err
	}
	if err := m.removeLeftovers(o.To); err != nil {
		return r, err
	}
	nc, closeLog, err := openLog(ctx, o.Data, o.NATS)
	if err != nil {
		return r, err
	}
	defer closeLog()
	now := point{Time: time.Now().UTC(), Program: program.Version(), Last: map[string]uint64{}}
	held := map[string]*streamBackup{}
	for _, name := range streams {
		c, added, err := m.copyStream(ctx, o, archive.Stream{Conn: nc, Name: name}, &now)
		if err != nil {
			return r, err
		}
		held[name] = c
		r.NewBytes += added.Bytes
		if name == log.EventsStream {
			r.NewEvents = added.Messages
		}
	}
	if o.Passphrase != "" {
		if now.Secrets, err = writeSecrets(ctx, o, archive.Stream{Conn: nc, Name: secretsStream}); err != nil {
			return r, err
		}
	}
	m.Complete, m.Streams = &now, held
	if err := m.write(o.To); err != nil {
		return r, err
	}
	if err := m.removeLeftovers(o.To); err != nil {
		return r, err
	}
	r.Directory, r.Events, r.Secrets = o.To, now.Last[log.EventsStream], now.Secrets != nil
	return r, nil
}

// hold creates the directory and locks it.
func hold(dir string) (release func(), err error) {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return nil, errors.New("it is a file, and a backup is a directory; name a new directory")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if release, err = atomicfile.LockOpen(d); err != nil {
		return nil, errors.New("another backup to this directory is running; wait until it ends")
	}
	return release, nil
}

// ownFile matches the names of a backup's files.
var ownFile = regexp.MustCompile(`^(\.new-\d+|(events|obj_blobs)-\d{12}(-\d+)?\.s2|secrets-[0-9a-f]{12}\.age)$`)

func checkEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if name := e.Name(); !ownFile.MatchString(name) && name != "lost+found" { // a killed run leaves some of ours
			return fmt.Errorf("the directory holds %q and no backup; name an empty directory, or a new one", name)
		}
	}
	return nil
}

// removeLeftovers removes the files that a killed run left, and those that the manifest does not name any more.
func (m *manifest) removeLeftovers(dir string) error {
	named := map[string]bool{}
	for _, c := range m.Streams {
		for _, p := range c.Parts {
			named[p.File] = true
		}
	}
	if m.Complete != nil && m.Complete.Secrets != nil {
		named[m.Complete.Secrets.File] = true
	}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if name := e.Name(); err == nil && ownFile.MatchString(name) && !named[name] {
			err = os.Remove(filepath.Join(dir, name))
		}
	}
	return err
}

// copyStream adds the messages of a stream that the backup does not hold yet, up to the current last one, and sets the
// sequence of that one in now. It copies a stream that began anew whole, beside the old copy, which m holds until the
// backup is complete.
func (m *manifest) copyStream(ctx context.Context, o Options, s archive.Stream,
	now *point) (c *streamBackup, added archive.State, err error) {
	info, err := s.Info(ctx)
	if errors.Is(err, archive.ErrNoStream) {
		return nil, added, fmt.Errorf("the server has no stream %s: no system has run on it yet", s.Name)
	}
	if err != nil {
		return nil, added, err
	}
	last := info.State.Last
	if last > 0 && s.Name == log.EventsStream {
		if last, err = s.BatchEnd(ctx, last); err != nil {
			return nil, added, err
		}
	}
	now.Last[s.Name] = last
	c = m.Streams[s.Name]
	// the messages of EVENTS are compared
	if s.Name != log.EventsStream && !c.Created.IsZero() && !c.Created.Equal(info.Created) {
		c = &streamBackup{}
	}
	if c.Config, c.Created = info.Config, info.Created; len(c.Parts) == 0 {
		c.First = max(1, info.State.First)
	}
	if err := c.checkSameLog(ctx, s, last); err != nil {
		return nil, added, err
	}
	for {
		begin := c.last()
		for c.last() < last {
			p, err := writePart(ctx, o, s, c.last()+1, last,
				func(seq uint64) { o.Progress(steps[s.Name], seq-begin, last-begin) }, begin >= c.First)
			if err != nil {
				return nil, added, err
			}
			c.Parts = append(c.Parts, p)
			if err := m.write(o.To); err != nil {
				return nil, added, err
			}
			added.Messages, added.Bytes = added.Messages+p.Messages, added.Bytes+p.Bytes
		}
		if s.Name == log.EventsStream {
			return c, added, nil
		}
		// A content may have been moved or replaced meanwhile: its old chunks are gone, and what says where it is now came
		// after last.
		if info, err = s.Info(ctx); err != nil || info.State.Last == last {
			return c, added, err
		}
		last = info.State.Last
		now.Last[s.Name] = last
	}
}

// steps are the names of steps for people.
var steps = map[string]string{log.EventsStream: "events", blob.Stream: "large contents"}

// checkSameLog returns an error if the last message of the backup is not in the stream.
func (c *streamBackup) checkSameLog(ctx context.Context, s archive.Stream, last uint64) error {
	if len(c.Parts) == 0 {
		return nil
	}
	newest := c.Parts[len(c.Parts)-1]
	if newest.To > last {
		return fmt.Errorf("the backup holds stream %s up to message %d, and this system's ends at %d: it is the backup of another system, or of one that lost events; name another directory", s.Name, newest.To, last)
	}
	if s.Name != log.EventsStream { // in others a message may be deleted
		return nil
	}
	got, err := s.Digest(ctx, newest.To, newest.To, func(archive.Entry) {})
	if err != nil {
		return err
	}
	if got != newest.Last {
		return fmt.Errorf("event #%d of the backup is not that of this system: it is the backup of another system; name another directory", newest.To)
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

var errFull = errors.New("the part is full")

// writePart writes the next file of a stream, and reads it again.
func writePart(ctx context.Context, o Options, s archive.Stream, from, to uint64, progress func(uint64),
	isLater bool) (p part, err error) {
	p = part{File: fmt.Sprintf("%s-%012d.s2", strings.ToLower(s.Name), from), From: from, To: to}
	path := filepath.Join(o.To, p.File)
	for n := 2; exists(path); n++ { // the old copy of a stream that began anew
		p.File = fmt.Sprintf("%s-%012d-%d.s2", strings.ToLower(s.Name), from, n)
		path = filepath.Join(o.To, p.File)
	}
	f, err := os.CreateTemp(o.To, ".new-*")
	if err != nil {
		return p, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	w := archive.NewWriter(f)
	var last archive.Entry
	err = s.Read(ctx, from, to, func(e archive.Entry) error {
		if p.Bytes >= o.maxPart {
			p.To = last.Seq
			return errFull
		}
		if isLater && s.Name == log.EventsStream && isErasure(e.Subject) {
			return fmt.Errorf("event #%d says that a chat was erased, and this backup was begun before and still holds its text: name a new directory, and delete this one", e.Seq)
		}
		last, p.Messages, p.Bytes = e, p.Messages+1, p.Bytes+uint64(e.Size())
		progress(e.Seq)
		return w.Add(e)
	})
	if err != nil && !errors.Is(err, errFull) {
		return p, err
	}
	if err := errors.Join(w.Close(), f.Sync(), f.Close()); err != nil {
		return p, err
	}
	p.SHA256 = w.String()
	if p.Messages > 0 {
		one := archive.NewDigest()
		if err := one.Add(last); err != nil {
			return p, err
		}
		p.Last = one.String()
	}
	if err := p.check(f.Name(), func(archive.Entry) error { return nil }); err != nil {
		return p, fmt.Errorf("read back what was written: %w", err)
	}
	return p, os.Rename(f.Name(), path)
}

// check reads a part from a file, calls fn with its entries and returns an error if they are not those of the part.
func (p part) check(path string, fn func(archive.Entry) error) error {
	f, err := openFile(path)
	if err != nil {
		return err
	}
	defer f.Close()
	d, n := archive.NewDigest(), uint64(0)
	err = archive.ReadFile(f, func(e archive.Entry) error {
		n++
		return errors.Join(d.Add(e), fn(e))
	})
	if err == nil && (d.String() != p.SHA256 || n != p.Messages) {
		err = archive.ErrDamaged
	}
	if err != nil {
		return fmt.Errorf("%s: %w", p.File, err)
	}
	return nil
}

// openFile opens a file of a backup. It refuses what is no regular file: a named pipe, for example, would block the
// reader forever.
func openFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe without a writer would block Open
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func readFile(path string) ([]byte, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// isErasure reports whether a subject belongs to the event of a chat's erasure.
func isErasure(subject string) bool {
	s, err := events.ParseSubject(subject)
	return err == nil && s.Scope == events.ScopeChat && s.Kind == events.ChatErased{}.Kind()
}
