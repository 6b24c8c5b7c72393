package recovery

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/minio/highwayhash"
	"github.com/nats-io/nats-server/v2/server/avl"
)

// index is what NATS's index of a stream states.
type index struct {
	last   uint64   // sequence
	blocks []uint32 // that hold messages
}

// readIndex reads NATS's index. trusted reports whether NATS opens the stream by the index, without reading the blocks.
func readIndex(dir, stream string, blocks []storedBlock) (x index, trusted bool) {
	text, err := os.ReadFile(filepath.Join(dir, "msgs", "index.db"))
	if err != nil || len(text) < 32 {
		return x, false
	}
	text, is := text[:len(text)-checksumSize], text[len(text)-checksumSize:]
	key := sha256.Sum256([]byte(stream))
	sum, _ := highwayhash.New64(key[:])
	sum.Write(text)
	if !bytes.Equal(sum.Sum(nil), is) {
		return x, false
	}
	x, end, err := parseIndex(text)
	if err != nil {
		return x, false
	}
	if len(blocks) == 0 {
		return x, x.last == 0
	}
	written, err := readEnd(blocks[len(blocks)-1])
	return x, err == nil && bytes.Equal(written, end)
}

var errIndex = errors.New("the index of the stream has an unknown form")

// parseIndex reads an index without its hash. end is the last checksum of the last block.
//
// The index of nats-server 2.15 is, with all numbers as varints unless it says so:
//
//	magic u8 · version u8 · messages · bytes · first sequence · first time · last sequence · last time ·
//	number of subjects · [length of subject · subject · messages · first block · last block, if the version is 4 or
//	there are two messages] · number of blocks · [block] · last block · its last checksum of 8 bytes
//
// A block is: index · bytes · first sequence · first time · last sequence · last time · number of deleted sequences ·
// [messages with a TTL, since version 2] · [scheduled messages, since version 3] · [the set of deleted sequences]
func parseIndex(text []byte) (x index, end []byte, err error) {
	r := indexReader{rest: text[2:]}
	version := text[1]
	r.skip(4)
	x.last = r.number()
	r.skip(1)
	for range r.number() {
		r.take(r.number())
		if r.failed {
			return x, nil, errIndex
		}
		messages := r.number()
		r.skip(1)
		if messages > 1 || version >= 4 {
			r.skip(1)
		}
	}
	for range r.number() {
		block := uint32(r.number())
		r.skip(1)
		first := r.number()
		r.skip(1)
		last := r.number()
		r.skip(1)
		deleted := r.number()
		r.skip(min(max(int(version)-1, 0), 2))
		if deleted > 0 && !r.failed {
			_, n, err := avl.Decode(r.rest)
			if err != nil {
				return x, nil, errIndex
			}
			r.take(uint64(n))
		}
		if r.failed {
			return x, nil, errIndex
		}
		if last >= first && last-first+1 > deleted {
			x.blocks = append(x.blocks, block)
		}
	}
	r.skip(1)
	if end = r.take(checksumSize); r.failed {
		return x, nil, errIndex
	}
	return x, end, nil
}

// without returns the blocks of the index that have no file.
func (x index) without(files []storedBlock) (missing []uint32) {
	for _, block := range x.blocks {
		if !slices.ContainsFunc(files, func(b storedBlock) bool { return b.Index == block }) {
			missing = append(missing, block)
		}
	}
	return missing
}

// indexReader reads an index. After the first failure it returns zeros.
type indexReader struct {
	rest   []byte
	failed bool
}

// number returns a number. One with a sign is as long as one without.
func (r *indexReader) number() uint64 {
	v, n := binary.Uvarint(r.rest)
	if r.take(uint64(max(n, 0))); n <= 0 {
		r.failed = true
	}
	if r.failed {
		return 0
	}
	return v
}

func (r *indexReader) skip(numbers int) {
	for range numbers {
		r.number()
	}
}

func (r *indexReader) take(n uint64) []byte {
	if r.failed || n > uint64(len(r.rest)) {
		r.failed = true
		return nil
	}
	taken := r.rest[:n]
	r.rest = r.rest[n:]
	return taken
}

// readEnd returns the last checksum of a block file.
func readEnd(b storedBlock) ([]byte, error) {
	f, err := os.Open(b.path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	end := make([]byte, checksumSize)
	_, err = f.ReadAt(end, b.Size-checksumSize)
	return end, err
}
