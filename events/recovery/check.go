package recovery

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"pocketcoder/events/log"
)

// Check compares the files of the log with the note, before NATS opens them, and repairs what is damaged. streams is
// the directory of the account's streams. applied is the sequence of the last event that the read models have, 0 if it
// is unknown.
//
// It reads the last block, the blocks that are not as noted, and all blocks if NATS would: if NATS's index is missing
// or old.
func (g *Guard) Check(ctx context.Context, streams string, applied uint64) error {
	g.files.Lock()
	defer g.files.Unlock()
	if err := g.check(ctx, streams, applied); err != nil {
		return fmt.Errorf("check the files of the log in %s: %w", streams, err)
	}
	return nil
}

func (g *Guard) check(ctx context.Context, streams string, applied uint64) error {
	before := g.begin(streams)
	if before.Created.IsZero() || before.Replaced { // the read models may be those of another log
		applied = 0
	}
	names, err := listStreams(streams)
	if err != nil {
		return err
	}
	for _, name := range names {
		s, err := readStore(ctx, name, filepath.Join(streams, name), before.Blocks[name])
		if err != nil {
			return err
		}
		known := uint64(0)
		for _, b := range before.Blocks[name] {
			known = max(known, b.Last)
		}
		if name == log.EventsStream {
			known = max(known, before.Last, applied)
		}
		if err := g.repair(ctx, s, known); err != nil {
			return err
		}
		if err := g.repairConsumers(s, max(known, s.last)); err != nil {
			return err
		}
	}
	if err := g.noteRemoved(streams, before, names); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.checked, g.damaged = true, nil
	return g.note.write(g.data)
}

// noteRemoved notes the loss of each stream that was noted and has no files now. EVENTS is always among the names of
// those that have.
func (g *Guard) noteRemoved(streams string, before note, names []string) error {
	for _, name := range slices.Sorted(maps.Keys(before.Blocks)) {
		if slices.Contains(names, name) {
			continue
		}
		if name == log.DeltasStream { // the events have the whole text
			g.logger.Warn("streaming fragments are lost", "reason", "the directory of the stream is missing")
		} else if err := g.keepLoss(store{stream: name, dir: filepath.Join(streams, name)}, nil,
			"the directory of the stream is missing"); err != nil {
			return err
		}
		g.mu.Lock()
		delete(g.note.Blocks, name)
		g.mu.Unlock()
	}
	return nil
}

// begin returns the note for a check of the streams in a directory. The note begins anew if they belong to another log.
// It keeps the sequence that the former log had reached: the log after an erasure reaches it, and an older copy does
// not.
func (g *Guard) begin(streams string) note {
	created := readCreated(filepath.Join(streams, log.EventsStream))
	g.mu.Lock()
	defer g.mu.Unlock()
	g.streams = streams
	if !created.IsZero() && !g.note.Created.IsZero() && !created.Equal(g.note.Created) {
		before := g.note // of the log that was copied into this one
		g.replaced(created)
		g.note.Last, g.note.Lost, g.note.Uncertain = before.Last, before.Lost, before.Uncertain
	}
	n := g.note
	n.Blocks = maps.Clone(n.Blocks)
	return n
}

// listStreams returns the names of the streams that have files, and that of EVENTS.
func listStreams(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if _, err := os.Stat(filepath.Join(dir, e.Name(), "msgs")); err == nil && e.Name() != log.EventsStream {
			names = append(names, e.Name())
		}
	}
	return append(names, log.EventsStream), nil
}

// readCreated returns when a stream was created, the zero time if its files do not say.
func readCreated(dir string) time.Time {
	var meta struct {
		Created time.Time `json:"created"`
	}
	text, err := os.ReadFile(filepath.Join(dir, "meta.inf"))
	if err != nil || json.Unmarshal(text, &meta) != nil {
		return time.Time{}
	}
	return meta.Created
}

// store is what the files of a stream hold.
type store struct {
	stream, dir string
	blocks      []storedBlock
	missing     []uint32 // blocks with messages that NATS's index lists and that have no file
	last        uint64   // that NATS's index or a block states
	time        int64    // of the newest event that was read
}

// storedBlock is a block file, and what was read from it unless it is as noted.
type storedBlock struct {
	blockNote
	path    string
	holds   Ranges // of events; empty if the block is as noted
	damaged bool
	torn    bool   // the damage is a record at the end that was not written to its end
	begun   uint64 // sequence of the only record, which was not written to its end; 0 if there are others
	claimed uint64
	time    int64 // of the last event
}

// readStore reads the blocks of a stream that are not as noted, or all of them if NATS does.
func readStore(ctx context.Context, stream, dir string, notes []blockNote) (s store, err error) {
	s = store{stream: stream, dir: dir}
	if s.blocks, err = listBlocks(filepath.Join(dir, "msgs")); err != nil {
		return s, err
	}
	index, trusted := readIndex(dir, stream, s.blocks)
	stated := index.last
	s.last = stated
	if trusted {
		s.missing = index.without(s.blocks)
	}
	noted := map[uint32]blockNote{}
	for _, b := range notes {
		noted[b.Index] = b
	}
	for i := range s.blocks {
		b := &s.blocks[i]
		if n := noted[b.Index]; n.Size == b.Size && n.Modified.Equal(b.Modified) && i < len(s.blocks)-1 {
			b.blockNote = n
		}
		delete(noted, b.Index)
	}
	all := !trusted || len(noted) > 0 && stream == log.EventsStream // in other streams old blocks go
	var readers sync.WaitGroup
	errs, next := make([]error, len(s.blocks)), make(chan int)
	for range runtime.GOMAXPROCS(0) {
		readers.Go(func() {
			for i := range next {
				errs[i] = s.blocks[i].read(ctx, stream)
			}
		})
	}
	for i, b := range s.blocks {
		if ctx.Err() == nil && (all || b.Last == 0) {
			next <- i
		}
	}
	close(next)
	readers.Wait()
	reached := uint64(0)
	for i, b := range s.blocks {
		reached = max(reached, b.Last)
		s.blocks[i].torn = b.torn && i == len(s.blocks)-1 && reached >= stated && (b.begun == 0 || b.begun == reached+1)
		s.last, s.time = max(s.last, b.Last, b.claimed), max(s.time, b.time)
	}
	return s, errors.Join(append(errs, ctx.Err())...)
}

// listBlocks returns the block files of a directory, in order.
func listBlocks(dir string) (blocks []storedBlock, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		var b storedBlock
		if n, _ := fmt.Sscanf(e.Name(), "%d.blk", &b.Index); n != 1 || !strings.HasSuffix(e.Name(), ".blk") {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		b.path, b.Size, b.Modified = filepath.Join(dir, e.Name()), info.Size(), info.ModTime().UTC()
		blocks = append(blocks, b)
	}
	slices.SortFunc(blocks, func(a, b storedBlock) int { return cmp.Compare(a.Index, b.Index) })
	return blocks, nil
}

func (b *storedBlock) read(ctx context.Context, stream string) error {
	content, err := readBlock(ctx, b.path, stream, b.Index)
	if err != nil {
		return err
	}
	for _, r := range content.records {
		if seq := r.stored(); seq > b.holds.last() { // NATS, too, takes the first of two
			b.holds, b.time = b.holds.add(seq), r.time
		}
	}
	b.First, b.Last = 0, b.holds.last()
	if len(b.holds) > 0 {
		b.First = b.holds[0].First
	}
	b.damaged, b.claimed = content.damaged(), content.claimed
	if b.torn = !content.holes && content.claimed == 0; b.torn && len(content.records) == 0 {
		b.begun = unfinishedRecord(content.data)
		b.torn = b.begun > 0
	}
	return nil
}
