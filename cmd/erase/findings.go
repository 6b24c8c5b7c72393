package erase

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/cmd/backup"
	"pocketcoder/cmd/datadir"
	"pocketcoder/events"
	"pocketcoder/events/archive"
	"pocketcoder/events/log"
	"pocketcoder/events/log/blob"
	"pocketcoder/ops/natsconf"
)

// findings holds what belongs to a chat in the log.
type findings struct {
	prefix   string   // of the subjects of its events
	deltas   []string // prefixes of the subjects of its fragments
	count    uint64   // of its events
	isErased bool     // by an earlier run
	closing  events.ChatErased
	sessions map[string]bool            // of OpenCode
	blobs    map[string]bool            // names that only its events name
	large    map[uint64]json.RawMessage // marks of the events whose body is in BLOBS, by sequence
	chunks   map[string]bool            // subjects of the contents of blobs
	metas    map[string][]byte          // what replaces the blob's description, by subject
	files    []string                   // with contents of blobs that were offloaded
}

// mark returns the mark that replaces an event's body. The body may be in BLOBS.
func (f *findings) mark(e archive.Entry) []byte {
	if m, ok := f.large[e.Seq]; ok {
		return m
	}
	return events.Erase(e.Body)
}

// look finds what belongs to a chat.
func look(ctx context.Context, nc *nats.Conn, chat string) (*findings, error) {
	f := &findings{
		prefix: strings.TrimSuffix(events.ChatFilter(chat), ">"), sessions: map[string]bool{}, blobs: map[string]bool{},
		large: map[uint64]json.RawMessage{}, chunks: map[string]bool{}, metas: map[string][]byte{},
	}
	for _, filter := range events.ChatDeltaFilters(chat) {
		f.deltas = append(f.deltas, strings.TrimSuffix(filter, ">"))
	}
	l, err := log.Attach(nc)
	if err != nil {
		return nil, err
	}
	_, err = l.Fold(ctx, events.ChatFilter(chat), 0, func(e events.Event) error {
		f.add(e)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if f.count == 0 {
		return nil, errNoChat
	}
	if err := f.readAll(ctx, nc, l); err != nil {
		return nil, err
	}
	return f, f.findBlobs(ctx, nc)
}

// delegatesOf returns the chats to which a chat delegated, from the current log.
func delegatesOf(ctx context.Context, d datadir.Dir, chat string) (ids []string, err error) {
	keys, err := natsconf.LoadKeys(d.Path("keys"))
	if err != nil {
		return nil, err
	}
	server, nc, err := backup.OpenStore(ctx, d.Path(current), keys, false)
	if err != nil {
		return nil, err
	}
	defer server.Close()
	defer nc.Close()
	l, err := log.Attach(nc)
	if err != nil {
		return nil, err
	}
	_, err = l.Fold(ctx, events.ChatSubject("*", events.ChatCreated{}.Kind()), 0, func(e events.Event) error {
		d, _ := events.Decode(e)
		if c, ok := d.(events.ChatCreated); ok && c.Parent != nil && c.Parent.Chat == chat {
			ids = append(ids, e.Subject.ID)
		}
		return nil
	})
	return ids, err
}

// add records what an event of the chat names. e.Data holds the body even if the log stores it in BLOBS.
func (f *findings) add(e events.Event) {
	f.count++
	if e.Malformed == nil {
		for _, name := range events.BlobsIn(e.Data) {
			f.blobs[name] = true
		}
	}
	if len(e.Data) > log.MaxInline {
		f.blobs[blob.HashName(e.Data)] = true
	}
	switch d, _ := events.Decode(e); d := d.(type) {
	case events.ChatCreated:
		f.closing.User = d.User
	case events.ChatUpdated:
		if d.User != nil {
			f.closing.User = *d.User
		}
	case events.Deleted:
		f.closing.Deleted = true
	case events.ChatErased:
		f.isErased = true
	case events.SessionBound:
		f.sessions[d.Session] = true
	case events.OpenCode:
		var p struct {
			SessionID string
			Info      struct{ ID string }
		}
		_ = json.Unmarshal(d.Properties, &p) // an error means that a field has another type, so it is no session id
		if strings.HasPrefix(d.Type, "session.") {
			f.sessions[p.Info.ID] = true
		}
		f.sessions[p.SessionID] = true
	}
	delete(f.sessions, "")
}

// readAll reads all events. It finds the large bodies of the chat, and removes from f.blobs the blobs that events of
// other chats name.
func (f *findings) readAll(ctx context.Context, nc *nats.Conn, l *log.Log) error {
	stream := archive.Stream{Conn: nc, Name: log.EventsStream}
	info, err := stream.Info(ctx)
	if err != nil {
		return err
	}
	type other struct {
		seq  uint64
		name string
	}
	var others []other
	err = stream.Read(ctx, 1, info.State.Last, func(e archive.Entry) error {
		isChats := f.isText(e.Subject)
		var reference events.Blob
		isLarge := bytes.Contains(e.Header, []byte("\r\n"+events.HeaderBlob+":")) &&
			json.Unmarshal(e.Body, &reference) == nil && reference.Name != ""
		switch {
		case isChats && isLarge:
			f.blobs[reference.Name] = true
			f.large[e.Seq] = events.Erased{SHA256: reference.SHA256, Size: reference.Size}.Mark()
		case !isChats:
			f.keep(e.Body)
			if isLarge {
				others = append(others, other{e.Seq, reference.Name})
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, o := range others {
		delete(f.blobs, o.name)
		if err := f.keepNamedIn(ctx, l, o.name); err != nil {
			return fmt.Errorf("read the body of event #%d: %w", o.seq, err)
		}
	}
	return nil
}

// keep removes from f.blobs the blobs that a body of another chat names, so that they stay.
func (f *findings) keep(body []byte) {
	for name := range f.blobs {
		if bytes.Contains(body, []byte(name)) {
			delete(f.blobs, name)
		}
	}
}

func (f *findings) keepNamedIn(ctx context.Context, l *log.Log, name string) error {
	if len(f.blobs) == 0 {
		return nil
	}
	r, err := l.Blobs.Open(ctx, name)
	if errors.Is(err, blob.ErrNotFound) {
		return nil // lost already
	}
	if err != nil {
		return err
	}
	defer r.Close()
	body, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	f.keep(body)
	return nil
}

// findBlobs finds the messages of the chat's blobs. It replaces their descriptions by those of deleted blobs, so that
// a body with the same hash can be stored again.
func (f *findings) findBlobs(ctx context.Context, nc *nats.Conn) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	bucket, err := js.ObjectStore(ctx, blob.Bucket)
	if err != nil {
		return err
	}
	for name := range f.blobs {
		info, err := bucket.GetInfo(ctx, name)
		if errors.Is(err, jetstream.ErrObjectNotFound) {
			delete(f.blobs, name)
			continue
		}
		if err != nil {
			return fmt.Errorf("look up blob %s: %w", name, err)
		}
		f.chunks[blob.ChunkSubject(info.NUID)] = true
		if file := blob.OffloadedTo(info); file != "" {
			if !filepath.IsAbs(file) {
				return fmt.Errorf("blob %s is not in a file but at %s, where only an earlier version can remove it", name, file)
			}
			f.files = append(f.files, file)
		}
		mark := jetstream.ObjectInfo{Bucket: info.Bucket, NUID: info.NUID, Deleted: true, Digest: info.Digest}
		mark.Name, mark.Description = name, "erased by an operator"
		body, err := json.Marshal(mark)
		if err != nil {
			return err
		}
		f.metas[blob.MetaSubject(name)] = body
	}
	return nil
}
