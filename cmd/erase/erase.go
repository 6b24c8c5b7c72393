// Package erase removes the text of a chat from the data directory of a stopped system.
//
// It writes a new log. A mark with size and SHA-256 replaces the bodies of the chat's events, its fragments, and the
// large contents that only its events name. Then it replaces the old log by the new one, and removes the read models
// and the chat's sessions in OpenCode's database.
//
// Promises: sequences, stored times, subjects and headers stay, and so does every byte of every other message. The old
// log is removed only after the new one was read back. A run that was killed leaves either the complete old log, or a
// directory on which no system starts until the same command has finished.
//
// It must not know flags or terminals.
package erase

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"pocketcoder/cmd/backup"
	"pocketcoder/cmd/datadir"
	"pocketcoder/events"
	"pocketcoder/events/archive"
	"pocketcoder/events/atomicfile"
	"pocketcoder/events/log"
	"pocketcoder/events/log/blob"
	"pocketcoder/events/recovery"
	"pocketcoder/ops/natsconf"
)

type Options struct {
	Data     datadir.Dir
	Chat     string
	Actor    string // who erases
	Command  string // that repeats the erasure
	Progress func(step string, done, total uint64)
}

type Result struct {
	Chat     string `json:"chat"`
	Events   uint64 `json:"events"`
	Deltas   uint64 `json:"deltas"`
	Blobs    int    `json:"blobs"`
	Sessions int    `json:"sessions"` // of OpenCode

	Delegates []string `json:"workers"` // chats to which it delegated, whose text stays
}

// erasureOf names an unfinished erasure in datadir.Unfinished.
const erasureOf = "erasure"

// The directories of an erasure, in the data directory.
const (
	current = "nats"
	written = "nats.new"
	former  = "nats.old"
)

// errNoChat means that the log has no event of the chat.
var errNoChat = errors.New(`there is no such chat; "pocketcoder chats" lists them while the system runs`)

func Run(ctx context.Context, o Options) (Result, error) {
	r, err := run(ctx, o)
	if err != nil {
		return r, fmt.Errorf("erase chat %s in %s: %w", o.Chat, o.Data, err)
	}
	return r, nil
}

func run(ctx context.Context, o Options) (r Result, err error) {
	isOld, isCurrent := exists(o.Data.Path(former)), exists(o.Data.Path(current))
	if !isOld && !isCurrent {
		return r, errors.New("there is no log here; an external NATS server has it. Restore a backup of it to a data directory, erase there, and move the streams back")
	}
	release, err := o.Data.OpenUnfinished()
	if err != nil {
		return r, err
	}
	defer release()
	unfinished, err := o.Data.Unfinished()
	if err != nil {
		return r, err
	}
	if unfinished != nil && unfinished.Command != o.Command {
		return r, fmt.Errorf("the %s of this directory is unfinished; run it again first: %s", unfinished.What,
			unfinished.Command)
	}
	r.Chat = o.Chat
	if !isOld {
		found, done, err := rewrite(ctx, o)
		if err != nil {
			return r, err
		}
		r = done
		if err := o.Data.Begin(datadir.UnfinishedCommand{What: erasureOf, Command: o.Command}); err != nil {
			return r, err
		}
		// Before the log is replaced: after a kill, the next run finds the sessions and the files only in the old log.
		if err := errors.Join(forget(ctx, o.Data, found.sessions), removeOffloaded(found.files)); err != nil {
			return r, err
		}
		if err := os.Rename(o.Data.Path(current), o.Data.Path(former)); err != nil {
			return r, err
		}
	}
	o.Progress("replace the log", 0, 1)
	if !exists(o.Data.Path(current)) {
		if err := os.Rename(o.Data.Path(written), o.Data.Path(current)); err != nil {
			return r, err
		}
	}
	if err := errors.Join(atomicfile.SyncDir(string(o.Data)), removeReadModels(o.Data)); err != nil {
		return r, err
	}
	o.Progress("remove the old log", 0, 1)
	if err := os.RemoveAll(o.Data.Path(former)); err != nil {
		return r, err
	}
	if r.Delegates, err = delegatesOf(ctx, o.Data, o.Chat); err != nil { // not by rewrite, which a resumed run skips
		return r, err
	}
	return r, o.Data.Finish()
}

func removeOffloaded(files []string) (err error) {
	for _, f := range files {
		err = errors.Join(err, os.RemoveAll(f))
	}
	return err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// removeReadModels removes the read models, also those that were moved aside, because they hold the text.
func removeReadModels(d datadir.Dir) error {
	files, err := filepath.Glob(d.Path("readmodel*"))
	for _, f := range files {
		err = errors.Join(err, os.RemoveAll(f))
	}
	return err
}

// rewrite writes the new log beside the old one and reads it back.
func rewrite(ctx context.Context, o Options) (found *findings, r Result, err error) {
	fail := func(err error) (*findings, Result, error) {
		return nil, r, errors.Join(err, os.RemoveAll(o.Data.Path(written)))
	}
	if err := os.RemoveAll(o.Data.Path(written)); err != nil { // of a run that was killed
		return fail(err)
	}
	keys, err := natsconf.LoadKeys(o.Data.Path("keys"))
	if err != nil {
		return fail(err)
	}
	old, from, err := backup.OpenStore(ctx, o.Data.Path(current), keys, false)
	if err != nil {
		return fail(err)
	}
	defer old.Close()
	defer from.Close()
	copies, err := recovery.Copies(string(o.Data))
	for _, p := range o.Data.Projects() {
		databases, _ := filepath.Glob(filepath.Join(p.OpenCode, "damaged", "*")) // of OpenCode; the pattern is valid
		copies = append(copies, databases...)
	}
	if err != nil || len(copies) > 0 {
		return fail(errors.Join(err, fmt.Errorf("copies of damaged files may hold the text of the chat; remove them, and erase again: %s", strings.Join(copies, ", "))))
	}
	if found, err = look(ctx, from, o.Chat); err != nil {
		return fail(err)
	}
	w := &rewriter{Options: o, from: from, found: found}
	if w.server, w.to, err = backup.OpenStore(ctx, o.Data.Path(written), keys, true); err != nil {
		return fail(err)
	}
	err = w.copyAll(ctx)
	w.to.Close()
	w.server.Close()
	if err == nil {
		err = datadir.SyncTree(o.Data.Path(written))
	}
	if err != nil {
		return fail(err)
	}
	return found, Result{o.Chat, w.events, w.deltas, len(found.blobs), len(found.sessions), nil}, nil
}

// rewriter copies streams and replaces bodies.
type rewriter struct {
	Options
	from   *nats.Conn
	to     *nats.Conn
	server *natsconf.Server
	found  *findings
	events uint64
	deltas uint64
}

func (w *rewriter) copyAll(ctx context.Context) error {
	names, err := archive.Names(ctx, w.from)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := w.copyStream(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// copyStream copies a stream, and reads it back.
func (w *rewriter) copyStream(ctx context.Context, name string) error {
	stream := archive.Stream{Conn: w.from, Name: name}
	info, err := stream.Info(ctx)
	if err != nil {
		return err
	}
	consumers, err := stream.Consumers(ctx)
	if err != nil {
		return err
	}
	if info.Config, err = withoutAge(info.Config); err != nil {
		return err
	}
	closing, err := w.closing(name, info.State.Last+1)
	if err != nil {
		return err
	}
	read := info.State.Last
	info.State.Last += uint64(len(closing))
	info.State.Messages += uint64(len(closing))
	account, err := w.server.App()
	if err != nil {
		return err
	}
	want := archive.NewDigest()
	err = archive.Restore(account, info, consumers, func(add func(archive.Entry) error) error {
		one := func(e archive.Entry) error {
			w.Progress(name, e.Seq, info.State.Last)
			e.Body = w.body(name, e)
			return errors.Join(want.Add(e), add(e))
		}
		if read > 0 {
			if err := stream.Read(ctx, max(1, info.State.First), read, one); err != nil {
				return err
			}
		}
		for _, e := range closing {
			if err := one(e); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || info.State.Last == 0 {
		return err
	}
	copied := archive.Stream{Conn: w.to, Name: name}
	got, err := copied.Digest(ctx, max(1, info.State.First), info.State.Last, func(e archive.Entry) {
		w.Progress("read back "+name, e.Seq, info.State.Last)
	})
	if err == nil && got != want.String() {
		err = fmt.Errorf("read back stream %s: its messages are not those that were written", name)
	}
	return err
}

// withoutAge returns the configuration without a limit on the age of messages, so that none expires while the copy is
// read back. The next start of the system sets the limit again.
func withoutAge(config json.RawMessage) (json.RawMessage, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(config, &all); err != nil {
		return nil, fmt.Errorf("read the configuration of a stream: %w", err)
	}
	all["max_age"] = json.RawMessage("0")
	return json.Marshal(all)
}

// body returns the body to store: the message's own, or the mark that replaces it.
func (w *rewriter) body(stream string, e archive.Entry) []byte {
	switch {
	case stream == log.EventsStream && w.found.isText(e.Subject):
		w.events++
		return w.found.mark(e)
	case stream == log.DeltasStream && w.found.isDelta(e.Subject):
		w.deltas++
		return events.Erase(e.Body)
	case stream == blob.Stream && w.found.chunks[e.Subject]:
		return events.Erase(e.Body)
	case stream == blob.Stream && w.found.metas[e.Subject] != nil:
		return w.found.metas[e.Subject]
	}
	return e.Body
}

// closing returns the event of the chat's erasure, for the end of EVENTS. It returns none for other streams.
func (w *rewriter) closing(stream string, seq uint64) ([]archive.Entry, error) {
	if stream != log.EventsStream || w.found.isErased {
		return nil, nil
	}
	w.found.closing.Events = w.found.count
	e, err := events.New(w.Chat, w.Actor, w.found.closing)
	if err != nil {
		return nil, err
	}
	m := events.Message(e, e.Data)
	header := "NATS/1.0\r\n"
	for _, name := range slices.Sorted(maps.Keys(m.Header)) {
		header += name + ": " + m.Header.Get(name) + "\r\n"
	}
	return []archive.Entry{{Seq: seq, Stored: time.Now(), Subject: m.Subject, Header: []byte(header + "\r\n"),
		Body: m.Data}}, nil
}

// isText reports whether a subject belongs to an event whose body is erased.
func (f *findings) isText(subject string) bool {
	return strings.HasPrefix(subject, f.prefix) && subject != f.prefix+events.ChatErased{}.Kind()
}

func (f *findings) isDelta(subject string) bool {
	return slices.ContainsFunc(f.deltas, func(prefix string) bool { return strings.HasPrefix(subject, prefix) })
}
