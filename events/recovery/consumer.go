package recovery

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"pocketcoder/events/atomicfile"
)

// repairConsumers moves the damaged state of each consumer of a stream aside, so that the consumer begins at the first
// event. NATS does not open such a consumer, and neither creates nor deletes one of its name (measured,
// nats-server 2.15.2). last is the last sequence of the stream.
func (g *Guard) repairConsumers(s store, last uint64) error {
	consumers := filepath.Join(s.dir, "obs")
	entries, err := os.ReadDir(consumers)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(consumers, e.Name(), "o.dat")
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && isConsumerState(text, last) {
			continue
		}
		if err != nil {
			return err
		}
		if err := os.Rename(path, path+".damaged"); err != nil {
			return err
		}
		if err := atomicfile.SyncDir(filepath.Dir(path)); err != nil {
			return err
		}
		g.logger.Warn("a consumer begins again, because its state is damaged", "stream", s.stream,
			"consumer", e.Name(), "moved_to", path+".damaged")
	}
	return nil
}

// isConsumerState reports whether NATS can have written the state of a consumer. The file has no checksum.
//
// The state is: magic u8 · version u8 · the sequences, of the consumer and of the stream, up to which all is
// acknowledged, and those of the last delivery, as varints · number of pending messages · if there are any, a time and
// for each message its two sequences, relative to the acknowledged ones, and a time · number of redelivered messages ·
// for each its sequence and a count.
func isConsumerState(text []byte, last uint64) bool {
	if len(text) == 0 { // as NATS reads it, a new one
		return true
	}
	if len(text) < 2 || text[0] != consumerMagic {
		return false
	}
	if text[1] == 1 { // of an old server
		return true
	}
	rest := text[2:]
	broken := text[1] != 2
	next := func() uint64 { // a signed varint is as long as an unsigned one
		v, n := binary.Uvarint(rest)
		if broken = broken || n <= 0; broken {
			return 0
		}
		rest = rest[n:]
		return v
	}
	acked, ackedOfStream, delivered, deliveredOfStream := next(), next(), next(), next()
	pending := next()
	if broken || acked > delivered || ackedOfStream > deliveredOfStream || deliveredOfStream > last ||
		pending > deliveredOfStream-ackedOfStream {
		return false
	}
	if pending > 0 {
		next()
	}
	for ; pending > 0 && !broken; pending-- {
		ofStream := next()
		broken = broken || ofStream == 0 || ofStream > deliveredOfStream-ackedOfStream
		next()
		next()
	}
	for redelivered := next(); redelivered > 0 && !broken; redelivered-- {
		next()
		next()
	}
	return !broken && len(rest) == 0
}

const consumerMagic = 22
