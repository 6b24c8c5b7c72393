// Package recovery finds what the log has lost, repairs its files, and remembers the loss.
//
// NATS opens a damaged store without an error: it cuts a block at the first bad record and forgets the rest, gives the
// sequences of lost events to new ones, or deletes all blocks (measured, nats-server 2.15.2). So the data directory
// holds a note outside NATS's store: when the stream was created, a sequence that it has reached, the good block
// files, and all losses. Check compares the files with the note before NATS opens them. Observe compares the opened
// stream with it, also on another machine.
//
// Promises:
//   - What Check repairs was copied first. The repair keeps every record whose checksum is right.
//   - No new event gets a sequence that the note, NATS's index, a block or the read models know. A log on another
//     machine can break this promise; the report then names the reused sequences.
//   - A loss names its sequences, and is noted before the files are changed. Nothing is lost that the loss does not
//     name.
//   - A stream that removes messages cannot tell which of its sequences are lost. Check reports a block that NATS's
//     index lists and that has no file. It also reports an end before the sequence that the note or the index knows.
//   - A start reads the last block and those that have changed since the last start. It reads all blocks only if NATS
//     does.
//   - The note does not slow down an append. After a crash it may be some seconds old, which loses nothing.
//
// The package must not know what an event means or what a read model holds.
package recovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/events/log"
	"pocketcoder/events/log/blob"
	"pocketcoder/events/log/sleep"
)

// Guard holds the note of the log of a data directory. It is safe for concurrent use.
type Guard struct {
	data   string
	logger *slog.Logger

	files sync.Mutex // held while Check changes block files, and while Verify reads one

	mu       sync.Mutex // is not held while files of the log are read
	note     note
	streams  string           // directory of the streams that Check has checked
	damaged  []string         // block files that Verify found damaged
	unread   map[string]error // by path: why Verify could not read a block file
	checked  bool             // Check has compared the files with the note
	missing  uint64           // number of sequences without an event when Observe looked last
	observed bool
}

// Open reads the note in a data directory. It moves a note that cannot be read aside.
func Open(data string, logger *slog.Logger) (*Guard, error) {
	n, err := readNote(data)
	if err != nil {
		aside := filepath.Join(data, noteFile+".bad")
		if renamed := os.Rename(filepath.Join(data, noteFile), aside); renamed != nil {
			return nil, errors.Join(err, renamed)
		}
		logger.Error("a new note of the log begins; losses that were known are reported again", "err", err, "moved_to", aside)
		n, err = readNote(data)
	}
	return &Guard{data: data, logger: logger, note: n, unread: map[string]error{}}, err
}

// Losses returns all losses, acknowledged ones too.
func (g *Guard) Losses() []Loss {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]Loss(nil), g.note.Lost...)
}

// HasDamage reports whether Verify has found damage that Check has not repaired yet.
func (g *Guard) HasDamage() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.damaged) > 0
}

// Trouble returns the losses that no person has acknowledged, the damage that the next Check repairs, and the files
// that the disk does not return. It returns "" if there are none.
func (g *Guard) Trouble() string {
	var all []string
	g.mu.Lock()
	if len(g.damaged) > 0 {
		all = append(all, "the log has damaged files, which are repaired when it is opened again: "+
			strings.Join(g.damaged, ", "))
	}
	for _, path := range slices.Sorted(maps.Keys(g.unread)) {
		all = append(all, "a file of the log cannot be read: "+g.unread[path].Error())
	}
	g.mu.Unlock()
	for _, l := range g.Losses() {
		if !l.Acknowledged() {
			all = append(all, l.String())
		}
	}
	return strings.Join(all, "\n")
}

// Stale reports whether the read models may show events that the log does not have, and returns the directory where
// their files belong. They are of no use if dir is empty. Call MarkReadModelsRenewed when the files are gone.
func (g *Guard) Stale() (dir string, stale bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	stale = g.note.Replaced
	for _, l := range g.note.Lost {
		if !l.Forgotten && len(l.Sequences) > 0 && l.Stream == log.EventsStream {
			dir, stale = l.Directory, true
		}
	}
	if dir != "" {
		err = os.MkdirAll(dir, 0o700) // a person may have removed it
	}
	return dir, stale, err
}

// MarkReadModelsRenewed notes that the read models are computed anew.
func (g *Guard) MarkReadModelsRenewed() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.note.Replaced = false
	for i := range g.note.Lost {
		g.note.Lost[i].Forgotten = true
	}
	return g.note.write(g.data)
}

// Uncertain returns a sequence after a loss, or after a backup was restored: the log does not show all that followed
// from the events before it. It returns 0 if there is nothing to compare. Call MarkCompared after the comparison.
func (g *Guard) Uncertain() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.note.Uncertain
}

// MarkCompared notes that what followed from the events before a sequence was compared with what the log shows.
func (g *Guard) MarkCompared(before uint64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.note.Uncertain > before {
		return nil // there is a new loss
	}
	g.note.Uncertain = 0
	return g.note.write(g.data)
}

// replaced begins a new note for a log that is not the one noted: another NATS, or a backup that was restored.
func (g *Guard) replaced(created time.Time) {
	g.logger.Warn("this is another log than before; the read models are computed anew", "created", created, "before",
		g.note.Created)
	g.note = note{Created: created, Blocks: map[string][]blockNote{}, Replaced: true}
}

// Observe compares the opened stream with the note, and notes its last sequence. It notes events that are missing as a
// loss.
func (g *Guard) Observe(ctx context.Context, js jetstream.JetStream) error {
	s, err := js.Stream(ctx, log.EventsStream)
	if err != nil {
		return fmt.Errorf("compare stream %s with its note: %w", log.EventsStream, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.observe(ctx, s); err != nil {
		return fmt.Errorf("compare stream %s with its note: %w", log.EventsStream, err)
	}
	return nil
}

func (g *Guard) observe(ctx context.Context, s jetstream.Stream) error {
	info := s.CachedInfo()
	state := info.State
	changed := !info.Created.Equal(g.note.Created)
	if changed && !g.note.Created.IsZero() && !g.checked {
		g.replaced(info.Created)
		g.note.Uncertain = state.LastSeq + 1
	}
	g.note.Created = info.Created
	if state.LastSeq < g.note.Last { // Check leaves no such store
		loss := Loss{Sequences: Ranges{{state.LastSeq + 1, g.note.Last}}, Reused: true}
		loss.Reason = fmt.Sprintf("the log ends at #%d, and had reached #%d", state.LastSeq, g.note.Last)
		g.note.Last = state.LastSeq
		if err := g.noteLoss(loss); err != nil {
			return err
		}
	}
	if missing := state.LastSeq - state.Msgs; missing != g.missing || !g.observed {
		known := g.note.lost(state.LastSeq)
		if missing > known.Count() {
			deletedRanges, err := deleted(ctx, s)
			if err != nil {
				return err
			}
			if deletedRanges = deletedRanges.without(known); len(deletedRanges) > 0 {
				if err := g.noteLoss(Loss{Sequences: deletedRanges, Reason: "NATS does not have them"}); err != nil {
					return err
				}
			}
		}
		g.missing, g.observed = missing, true
	}
	if changed = changed || state.LastSeq != g.note.Last; !changed {
		return nil
	}
	g.note.Last = state.LastSeq
	return g.note.write(g.data)
}

// deleted returns the sequences up to the last one that have no event.
func deleted(ctx context.Context, s jetstream.Stream) (missing Ranges, err error) {
	info, err := s.Info(ctx, jetstream.WithDeletedDetails(true))
	if err != nil {
		return nil, err
	}
	if first := info.State.FirstSeq; first > 1 {
		missing = Ranges{{1, first - 1}}
	}
	for _, seq := range info.State.Deleted {
		missing = missing.add(seq)
	}
	return missing, nil
}

// noteLoss notes a loss that was found in the opened stream.
func (g *Guard) noteLoss(l Loss) (err error) {
	l.Found, l.Stream = time.Now().UTC(), log.EventsStream
	if l.Directory, err = g.lossDir(l.Found); err != nil {
		return err
	}
	g.logger.Error("the log is damaged: " + l.String())
	return g.addLoss(l)
}

// pause is the time between two notes.
const pause = 3 * time.Second

// Run observes the stream until ctx ends.
func (g *Guard) Run(ctx context.Context, js jetstream.JetStream) error {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := g.Observe(ctx, js); err != nil && ctx.Err() == nil {
			g.logger.Debug(err.Error()) // the log reports the failure itself
		}
	}
}

const (
	verifyPause = 100 * time.Millisecond // between two blocks; it reads at most 80 MB/s
	verifyEvery = 24 * time.Hour
)

// Verify reads all blocks that NATS does not write to any more, again and again until ctx ends. Damage that came after
// the start is noted, so that HasDamage reports it and the next Check reads all blocks.
func (g *Guard) Verify(ctx context.Context) {
	for {
		for _, stream := range []string{log.EventsStream, blob.Stream} { // those whose old blocks stay
			if err := g.verify(ctx, stream); err != nil && ctx.Err() == nil {
				g.logger.Warn("verify the files of the log", "stream", stream, "err", err)
			}
		}
		if sleep.For(ctx, verifyEvery) != nil {
			return
		}
	}
}

func (g *Guard) verify(ctx context.Context, stream string) error {
	g.mu.Lock()
	dir := filepath.Join(g.streams, stream)
	g.mu.Unlock()
	blocks, err := listBlocks(filepath.Join(dir, "msgs"))
	for i := 0; i < len(blocks)-2; i++ { // NATS compresses the last but one
		if sleep.For(ctx, verifyPause) != nil {
			return ctx.Err()
		}
		err = errors.Join(err, g.verifyBlock(ctx, stream, blocks[i]))
	}
	return err
}

func (g *Guard) verifyBlock(ctx context.Context, stream string, b storedBlock) error {
	g.files.Lock()
	defer g.files.Unlock()
	err := b.read(ctx, stream)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	g.noteUnread(b.path, err)
	if err == nil && b.damaged {
		err = g.noteDamage(stream, b.path)
	}
	return err
}

// noteUnread notes whether a file can be read. Check is of no help for one that cannot: it would keep the log closed.
func (g *Guard) noteUnread(path string, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err == nil {
		delete(g.unread, path)
	} else {
		g.unread[path] = err
	}
}

func (g *Guard) noteDamage(stream, path string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if slices.Contains(g.damaged, path) {
		return nil
	}
	g.logger.Error("a file of the log is damaged", "path", path)
	g.damaged = append(g.damaged, path)
	g.note.Blocks[stream] = nil // the next check reads all
	return g.note.write(g.data)
}
