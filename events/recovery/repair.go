package recovery

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"pocketcoder/events/atomicfile"
	"pocketcoder/events/log"
)

// repair notes the good blocks of a stream. If some are damaged, or the stream does not reach the sequence known, it
// copies the files, notes the loss, and then changes the files so that NATS opens all that is left and gives no
// sequence twice.
func (g *Guard) repair(ctx context.Context, s store, known uint64) error {
	known = max(known, s.last)
	var contained Ranges
	var reasons []string
	last, torn := uint64(0), false
	indices := map[uint32]bool{}
	for _, b := range s.blocks {
		indices[b.Index] = true
		last = max(last, b.Last)
		if b.Last > 0 && len(b.holds) == 0 { // as noted
			contained = contained.union(Ranges{{b.First, b.Last}})
		}
		contained = contained.union(b.holds)
		if b.damaged && b.torn {
			torn = true
		} else if b.damaged {
			reasons = append(reasons, fmt.Sprintf("the file %s is damaged", filepath.Base(b.path)))
		}
	}
	var lost Ranges
	if s.stream == log.EventsStream && known > 0 {
		knownLost, blocks := g.noted(known)
		lost = Ranges{{1, known}}.without(contained).without(knownLost)
		for _, n := range blocks {
			if !indices[n.Index] && len(lost) > 0 { // a copy of a log can have other files
				reasons = append(reasons, fmt.Sprintf("the file %d.blk is missing", n.Index))
			}
		}
	}
	// The end is missing if the store has no mark of the last sequence. NATS makes one itself if its index tells it to.
	short := last < known && (len(lost) > 0 || !s.marks(ctx, known))
	if s.stream != log.EventsStream { // it removes messages, so a sequence without one need not be a loss
		for _, block := range s.missing {
			reasons = append(reasons, fmt.Sprintf("the file %d.blk is missing", block))
		}
		if short && len(reasons) == 0 {
			reasons = append(reasons, fmt.Sprintf("the files end at #%d, and had reached #%d", last, known))
		}
	}
	if len(lost) == 0 && len(reasons) == 0 && !torn && !short {
		g.noteBlocks(s.stream, s.blocks)
		return nil
	}
	if s.stream == log.DeltasStream { // the events have the whole text
		g.logger.Warn("streaming fragments are lost", "reason", strings.Join(reasons, ", "))
	} else if len(lost) > 0 || len(reasons) > 0 {
		if len(reasons) == 0 {
			reasons = []string{fmt.Sprintf("the files end at #%d", last)}
			if last >= known {
				reasons = []string{"the files do not hold them"}
			}
		}
		// before the repair, after which it cannot be seen
		if err := g.keepLoss(s, lost, strings.Join(reasons, ", ")); err != nil {
			return err
		}
	}
	if err := s.rewrite(ctx, known); err != nil {
		return fmt.Errorf("repair: %w", err)
	}
	g.noteBlocks(s.stream, nil) // the next start reads all
	return nil
}

// noted returns the sequences of events up to last that are known to be lost, and the blocks of events that were good.
func (g *Guard) noted(last uint64) (lost Ranges, blocks []blockNote) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.note.lost(last), g.note.Blocks[log.EventsStream]
}

// noteBlocks notes the good blocks of a stream. The next check reads the others.
func (g *Guard) noteBlocks(stream string, good []storedBlock) {
	blocks := []blockNote{}
	for _, b := range good {
		blocks = append(blocks, b.blockNote)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.note.Blocks[stream] = blocks
}

// marks reports whether the last block keeps NATS from using sequences up to seq.
func (s store) marks(ctx context.Context, seq uint64) bool {
	for _, b := range s.blocks {
		content, err := readBlock(ctx, b.path, s.stream, b.Index)
		if err != nil {
			return false
		}
		for _, r := range content.records {
			if r.seq&^(erased|tombstone) >= seq {
				return true
			}
		}
	}
	return false
}

// rewrite replaces each damaged block by one with its good records, and marks the end if the blocks do not reach the
// sequence known. NATS then reads all blocks, because it finds no index. Gaps between records are removed messages to
// NATS.
func (s store) rewrite(ctx context.Context, known uint64) error {
	msgs := filepath.Join(s.dir, "msgs")
	if err := os.MkdirAll(msgs, 0o700); err != nil {
		return err
	}
	// First, because NATS trusts an index that fits the end of the last block, also if this is interrupted.
	if err := os.Remove(filepath.Join(msgs, "index.db")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := atomicfile.SyncDir(msgs); err != nil {
		return err
	}
	index, last := uint32(0), uint64(0)
	for _, b := range s.blocks {
		index, last = max(index, b.Index), max(last, b.Last)
		if !b.damaged {
			continue
		}
		content, err := readBlock(ctx, b.path, s.stream, b.Index)
		if err != nil {
			return err
		}
		var good []byte
		for _, r := range content.records {
			good = append(good, content.data[r.offset:r.end()]...)
		}
		if len(content.records) == 0 { // NATS stops at an empty file
			err = os.Remove(b.path)
		} else {
			err = atomicfile.Write(b.path, good)
		}
		if err != nil {
			return err
		}
	}
	if last < known { // in a block of its own, because NATS ignores a mark after events
		moment := cmp.Or(s.time, time.Now().UnixNano())
		index++
		mark := emptyRecord(known|tombstone, moment, newChecksum(s.stream, index))
		if err := atomicfile.Write(filepath.Join(msgs, fmt.Sprintf("%d.blk", index)), mark); err != nil {
			return err
		}
	}
	return atomicfile.SyncDir(msgs)
}

// keepLoss copies the files of a stream and notes the loss.
func (g *Guard) keepLoss(s store, lost Ranges, reason string) (err error) {
	l := Loss{Found: time.Now().UTC(), Stream: s.stream, Sequences: lost, Reason: reason}
	if l.Directory, err = g.lossDir(l.Found); err != nil {
		return err
	}
	if err := s.copyTo(l.Directory); err != nil {
		return errors.Join(fmt.Errorf("copy damaged files to %s: %w", l.Directory, err), os.RemoveAll(l.Directory))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.addLoss(l)
}

// copyTo copies the files of a stream into the directory of a loss. A good block that NATS does not change any more
// gets a second name instead.
func (s store) copyTo(dir string) error {
	constant := map[string]bool{}
	for i, b := range s.blocks {
		constant[b.path] = !b.damaged && i < len(s.blocks)-1
	}
	to := filepath.Join(dir, s.stream)
	return filepath.WalkDir(s.dir, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path == s.dir {
			return fs.SkipAll // the stream has no files at all
		}
		if err != nil {
			return err
		}
		target := filepath.Join(to, strings.TrimPrefix(path, s.dir))
		if e.IsDir() {
			return os.MkdirAll(target, 0o700)
		}
		if constant[path] && os.Link(path, target) == nil {
			return nil
		}
		return copyFile(path, target)
	})
}

// lossDir makes the directory of a loss.
func (g *Guard) lossDir(found time.Time) (string, error) {
	parent := filepath.Join(g.data, lossesDir)
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return "", err
	}
	for n := 1; ; n++ {
		dir := filepath.Join(parent, found.Format("2006-01-02T15-04-05Z"))
		if n > 1 {
			dir += fmt.Sprintf("-%d", n)
		}
		if err := os.Mkdir(dir, 0o700); !errors.Is(err, fs.ErrExist) {
			return dir, err
		}
	}
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Sync(), out.Close())
}

// addLoss writes the report of a loss, and notes it. The caller holds g.mu.
func (g *Guard) addLoss(l Loss) error {
	text, err := json.MarshalIndent(l, "", " ")
	if err == nil {
		err = atomicfile.Write(filepath.Join(l.Directory, reportFile), append(text, '\n'))
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(l.Directory))
	}
	g.note.Lost = append(g.note.Lost, l)
	g.note.Uncertain = max(g.note.Uncertain, l.after())
	return g.note.write(g.data)
}
