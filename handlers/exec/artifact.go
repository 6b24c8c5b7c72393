package exec

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"pocketcoder/events"
	"pocketcoder/sandbox/wire"
)

// Limits for the files that an execution created or changed. Files beyond maxArtifacts are counted. Contents beyond the
// other limits are not stored, only their hashes.
const (
	maxArtifacts     = wire.MaxChanges // named in one exec.changed
	maxArtifact      = 1 << 20         // bytes of one stored content
	maxArtifactsAll  = 16 << 20        // bytes of all stored contents of an execution
	maxArtifactNames = 1 << 20         // bytes of all names; an event has up to six bytes for each
	maxChangeLine    = 64 << 10        // bytes of one line in a worker's list

	artifactsWithin = 2 * time.Minute // to list the changes of one execution
	lastChanges     = 2 * time.Second // to list, at the end of the process, the changes that are still missing
	maxFinished     = 1000            // executions in the queue
)

// endedExecution is an execution whose changed files are not listed yet.
type endedExecution struct {
	chat, exec string
	since      int64
}

// finishedQueue holds the executions whose changed files are not listed yet, in order. The zero value is empty.
type finishedQueue struct {
	made  sync.Once
	queue chan endedExecution
}

func (f *finishedQueue) waiting() chan endedExecution {
	f.made.Do(func() { f.queue = make(chan endedExecution, maxFinished) })
	return f.queue
}

// take returns all queued executions, in the order in which they began. It blocks until there is one or noMore is
// closed.
func (f *finishedQueue) take(noMore <-chan struct{}) (all []endedExecution) {
	select {
	case e := <-f.waiting():
		all = append(all, e)
	case <-noMore:
	}
	for {
		select {
		case e := <-f.waiting():
			all = append(all, e)
		default:
			slices.SortStableFunc(all, func(a, b endedExecution) int { return cmp.Compare(a.since, b.since) })
			return all
		}
	}
}

// queueChanges queues an execution whose changed files are to be listed. Changes of a private execution are not listed.
func (x *Executions) queueChanges(u *run, result wire.Result) {
	if result.Began == 0 || u.requested.Private {
		return
	}
	select {
	case x.finished.waiting() <- endedExecution{u.chat, u.requested.Exec, result.Began}:
	default:
		x.Logger.Error("list changed files: the queue is full", "exec", u.requested.Exec)
	}
}

// findChanges records the changed files of executions that have ended, one execution after the other. It returns when
// noMore is closed and the queue is empty. When ctx ends, it logs the remaining executions as failed. A list reads
// every file of the workspace. So if one list is empty, findChanges skips the executions that began later.
func (x *Executions) findChanges(ctx context.Context, noMore <-chan struct{}) {
	for all := x.finished.take(noMore); len(all) > 0; all = x.finished.take(noMore) {
		for _, e := range all {
			isChanged, err := x.recordChanges(ctx, e)
			if err != nil {
				x.Logger.Error("list changed files", "exec", e.exec, "err", err)
			} else if !isChanged {
				break
			}
		}
	}
}

// recordChanges appends exec.changed, unless nothing has changed, and reports whether something has. The list has every
// file of the workspace that was changed since the execution began, by any program. A file that changed while
// several commands ran is in the list of each. The list shows the state of each file when the list was made.
func (x *Executions) recordChanges(ctx context.Context, e endedExecution) (isChanged bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, artifactsWithin)
	defer cancel()
	var list changeList
	if err := x.askWorkers(ctx, wire.Request{Op: wire.Changes, Since: e.since}, &list); err != nil {
		return false, err
	}
	d := events.ExecChanged{Exec: e.exec, More: list.more}
	room := int64(maxArtifactsAll)
	for _, c := range list.files {
		a := events.Artifact{Path: c.Path, Size: c.Size, SHA256: c.SHA256}
		if c.Size > 0 && c.Size <= min(maxArtifact, room) && ctx.Err() == nil {
			var err error
			if a.Blob, err = x.storeFile(ctx, c); err != nil { // the event names the file all the same
				x.Logger.Error("store changed file", "exec", e.exec, "path", c.Path, "err", err)
			}
			if a.Blob != nil {
				room -= c.Size
			}
		}
		d.Files = append(d.Files, a)
	}
	if len(d.Files)+d.More == 0 {
		return false, nil
	}
	return true, x.record(ctx, e.chat, d)
}

// askWorkers sends a request other than a command to the workers of the workspace.
func (x *Executions) askWorkers(ctx context.Context, r wire.Request, stdout io.Writer) error {
	r.Workspace = x.Workspace
	result, err := wire.Call(ctx, x.Conn, wire.RunSubject(x.Pool), r, stdout, io.Discard)
	if err == nil && (result.Reason != wire.Exited || result.ExitCode != 0) {
		err = fmt.Errorf("%s, exit %d: %s", result.Reason, result.ExitCode, result.Error)
	}
	return err
}

// storeFile stores the content of a changed file. It returns nil if the file was deleted or has changed again, or if it
// contains a secret. A stored secret could not be removed, and a redacted file would not match its hash.
func (x *Executions) storeFile(ctx context.Context, c wire.Change) (*events.Blob, error) {
	content := &limitedBuffer{limit: int(c.Size)}
	if err := x.askWorkers(ctx, wire.Request{Op: wire.Read, Path: c.Path}, content); err != nil {
		return nil, ctx.Err()
	}
	b := content.Bytes()
	sum := sha256.Sum256(b)
	if hex.EncodeToString(sum[:]) != c.SHA256 || !bytes.Equal(x.Log.Redactor().Bytes(b), b) {
		return nil, nil
	}
	blob, err := x.Log.Blobs.PutByHash(ctx, b)
	if err != nil {
		return nil, err
	}
	return &blob, nil
}

// limitedBuffer is a buffer that returns errTooLarge beyond its limit.
type limitedBuffer struct {
	bytes.Buffer
	limit int
}

var errTooLarge = errors.New("it is larger than it was")

func (l *limitedBuffer) Write(p []byte) (int, error) {
	if l.Len()+len(p) > l.limit {
		return 0, errTooLarge
	}
	return l.Buffer.Write(p)
}

// changeList parses a worker's list of changed files, one JSON object a line. It counts the files that are beyond the
// limits or have invalid names, because a command chooses the names of its files.
type changeList struct {
	files     []wire.Change
	nameBytes int
	more      int
	line      []byte // the incomplete last line, at most maxChangeLine bytes
}

func (l *changeList) Write(p []byte) (int, error) {
	for rest := p; ; {
		part, after, whole := bytes.Cut(rest, []byte("\n"))
		l.line = append(l.line, part[:min(len(part), maxChangeLine-len(l.line))]...)
		if !whole {
			return len(p), nil
		}
		l.add(l.line)
		l.line, rest = l.line[:0], after
	}
}

func (l *changeList) add(line []byte) {
	var c wire.Change
	err := json.Unmarshal(line, &c)
	if err == nil && c.More > 0 && c.Path == "" {
		l.more += min(c.More, math.MaxInt32-min(l.more, math.MaxInt32))
		return
	}
	if err != nil || !filepath.IsLocal(c.Path) || !utf8.ValidString(c.Path) || c.Size < 0 || !isSHA256(c.SHA256) ||
		len(l.files) == maxArtifacts || l.nameBytes+len(c.Path) > maxArtifactNames {
		l.more++
		return
	}
	l.files, l.nameBytes = append(l.files, c), l.nameBytes+len(c.Path)
}

// isSHA256 reports whether s is a SHA-256 in hex, or empty.
func isSHA256(s string) bool {
	_, err := hex.DecodeString(s)
	return err == nil && (s == "" || len(s) == hex.EncodedLen(sha256.Size))
}
