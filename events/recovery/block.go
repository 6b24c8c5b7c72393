package recovery

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"hash/crc32"
	"os"

	"github.com/klauspost/compress/s2"
	"github.com/minio/highwayhash"
)

// The layout of a record in a block file of nats-server 2.15, all numbers little endian:
//
//	length u32 (the high bit: it has headers) · sequence u64 · time i64 · length of subject u16 ·
//	subject · [length of headers u32 · headers] · body · checksum of 8 bytes
//
// A full block may be compressed: "cmp" · algorithm · original size as a varint · S2 frames · the last 8 bytes of the
// block.
const (
	recordHeader = 22
	checksumSize = 8
	maxRecord    = 32 << 20
	maxSequence  = 1 << 48
	hasHeaders   = 1 << 31 // of the length
	erased       = 1 << 63 // of the sequence: the event was removed
	tombstone    = 1 << 62 // of the sequence: an event elsewhere was removed, or the stream had reached this sequence
)

// record is the position of a good record in a block.
type record struct {
	offset, length int
	seq            uint64 // with its bits
	time           int64
}

// stored returns the sequence of the event that the record holds, 0 if it holds none.
func (r record) stored() uint64 {
	if r.seq&(erased|tombstone) != 0 {
		return 0
	}
	return r.seq
}

// block is what could be read from a block file.
type block struct {
	data    []byte // not compressed
	records []record
	holes   bool   // a good record comes after damaged bytes, or the compression is damaged
	rest    int    // number of bytes after the last good record
	claimed uint64 // the last sequence for which these bytes look like a record that was written to its end, 0 for none
}

func (b block) damaged() bool { return b.holes || b.rest > 0 }

// unreadableHelp says what to do about a file that the disk does not return.
const unreadableHelp = "if the disk is damaged, copy the data directory to another disk and start there, or restore a backup"

// readBlock reads a block file. Damage is no error. After damaged bytes it looks for the next good record, which can
// take minutes.
func readBlock(ctx context.Context, path, stream string, index uint32) (b block, err error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return b, fmt.Errorf("%w; %s", err, unreadableHelp)
	}
	sum := newChecksum(stream, index)
	if len(raw) > 4 && string(raw[:4]) == "cmp\x01" {
		content, damaged := decompress(ctx, raw)
		return parseBlock(ctx, content, damaged, sum), ctx.Err()
	}
	b = parseBlock(ctx, raw, false, sum)
	if len(b.records) > 0 && b.records[0].offset == 0 {
		return b, ctx.Err()
	}
	// The damage may be where it says that it is compressed. S2 stores what it cannot compress as it is, so some records
	// can be read either way.
	content, _ := decompress(ctx, raw)
	if c := parseBlock(ctx, content, true, sum); len(c.records) > len(b.records) {
		b = c
	}
	return b, ctx.Err()
}

// parseBlock returns the records of a block that is not compressed. It stops when ctx ends.
func parseBlock(ctx context.Context, data []byte, damaged bool, sum hash.Hash) block {
	b := block{data: data, holes: damaged}
	last, next := uint64(0), 0 // next is where the record after last, or after the last claim, begins
	for at := 0; at < len(b.data) && ctx.Err() == nil; {
		r, length := parseRecord(b.data, at, sum)
		switch {
		case r.length > 0:
			b.holes = b.holes || b.rest > 0
			b.records = append(b.records, r)
			last = max(last, r.stored())
			b.rest, b.claimed = 0, 0
			at += length
			next = at
			continue
		case length > 0 && at == next && last > 0 && r.seq == max(last, b.claimed)+1:
			b.claimed = r.seq
			next += length
		}
		b.rest = len(b.data) - at
		if n := len(b.records); n > 0 {
			b.rest = len(b.data) - b.records[n-1].end()
		}
		at++
	}
	return b
}

func (r record) end() int { return r.offset + r.length }

// newChecksum returns the hash of the records of a block.
func newChecksum(stream string, index uint32) hash.Hash {
	key := sha256.Sum256(fmt.Appendf(nil, "%s-%d", stream, index))
	sum, err := highwayhash.New64(key[:])
	if err != nil {
		panic(err) // the key has another length than 32
	}
	return sum
}

// parseRecord reads the record at an offset. length is 0 if the bytes there cannot be a record. r has the length 0 if
// its checksum is wrong.
func parseRecord(data []byte, at int, sum hash.Hash) (r record, length int) {
	data = data[at:]
	if len(data) < recordHeader+checksumSize {
		return r, 0
	}
	size, subject := binary.LittleEndian.Uint32(data), int(binary.LittleEndian.Uint16(data[20:]))
	headers := 0
	if size&hasHeaders != 0 {
		headers = 4
	}
	length = int(size &^ hasHeaders)
	if length > maxRecord || length > len(data) || recordHeader+subject+headers+checksumSize > length {
		return r, 0
	}
	r = record{offset: at, seq: binary.LittleEndian.Uint64(data[4:]), time: int64(binary.LittleEndian.Uint64(data[12:]))}
	if r.seq&^(erased|tombstone) > maxSequence { // hashing all that is no record takes seconds
		return r, 0
	}
	begin, end := recordHeader+subject, length-checksumSize
	sum.Reset()
	sum.Write(data[4:20])
	sum.Write(data[recordHeader:begin])
	sum.Write(data[begin+headers : end])
	var is [checksumSize]byte
	if !bytes.Equal(sum.Sum(is[:0]), data[end:length]) {
		return r, length
	}
	if headers > 0 { // the checksum does not cover their length
		n := int(binary.LittleEndian.Uint32(data[begin:]))
		if n > end-begin-headers || !bytes.HasSuffix(data[begin+headers:begin+headers+n], []byte("\r\n\r\n")) {
			return r, length
		}
	}
	r.length = length
	return r, length
}

// unfinishedRecord returns the sequence of the record at the beginning of data if the data end before the record,
// otherwise 0.
func unfinishedRecord(data []byte) uint64 {
	if len(data) < recordHeader {
		return 0
	}
	length, seq := int(binary.LittleEndian.Uint32(data)&^hasHeaders), binary.LittleEndian.Uint64(data[4:])
	if length <= len(data) || length > maxRecord || seq > maxSequence {
		return 0
	}
	return seq
}

// emptyRecord returns a record without a subject and a body.
func emptyRecord(seq uint64, time int64, sum hash.Hash) []byte {
	b := binary.LittleEndian.AppendUint32(nil, recordHeader+checksumSize)
	b = binary.LittleEndian.AppendUint64(b, seq)
	b = binary.LittleEndian.AppendUint64(b, uint64(time))
	b = binary.LittleEndian.AppendUint16(b, 0)
	sum.Reset()
	sum.Write(b[4:20])
	return sum.Sum(b)
}

// decompress returns the content of a compressed block, as far as it can be read. The checksums of the records tell
// which of them are good. It stops when ctx ends.
func decompress(ctx context.Context, raw []byte) (data []byte, damaged bool) {
	if len(raw) < 4+1+checksumSize {
		return nil, true
	}
	size, n := binary.Uvarint(raw[4:])
	frames, tail := raw[4+max(n, 0):len(raw)-checksumSize], raw[len(raw)-checksumSize:]
	data = make([]byte, 0, min(size, maxRecord))
	for found := true; len(frames) > 0 && ctx.Err() == nil; {
		content, length, good := readFrame(frames)
		if !good {
			damaged = true
			if found { // what can be read of a damaged frame
				data = append(data, content...)
			}
			if found = found && length > 0 && beginsFrame(frames[length:]); !found {
				frames = frames[1:]
				continue
			}
		} else {
			found = true
			data = append(data, content...)
		}
		frames = frames[length:]
	}
	data = append(data, tail...)
	return data, damaged || uint64(len(data)) != size
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const (
	frameHeader = 4 // kind u8 · length u24
	maxFrame    = 4 << 20
)

// readFrame returns the content of the S2 frame at the beginning of b, and its length, 0 if there is none. good
// reports whether its checksum is right. Content that cannot be decompressed to its end has zeros after the damage.
func readFrame(b []byte) (content []byte, length int, good bool) {
	if len(b) < frameHeader+4 {
		return nil, 0, false
	}
	kind, size := b[0], int(b[1])|int(b[2])<<8|int(b[3])<<16
	length = frameHeader + size
	if kind == 0xff && bytes.HasPrefix(b[1:], []byte("\x06\x00\x00S2sTwO")) { // the beginning of the stream
		return nil, length, true
	}
	if kind > 1 || size <= 4 || size > maxFrame {
		return nil, 0, false
	}
	cut := length > len(b)
	length = min(length, len(b))
	want, body := binary.LittleEndian.Uint32(b[frameHeader:]), b[frameHeader+4:length]
	if kind == 1 {
		content = body
	} else {
		n, err := s2.DecodedLen(body)
		if err != nil || n > maxFrame {
			return nil, 0, false
		}
		content = make([]byte, n)
		_, err = s2.Decode(content, body) // writes what comes before the damage
		cut = cut || err != nil
	}
	sum := crc32.Checksum(content, castagnoli)
	sum = (sum>>15 | sum<<17) + 0xa282ead8
	return content, length, !cut && sum == want
}

// beginsFrame reports whether b begins with a good frame, or is empty.
func beginsFrame(b []byte) bool {
	_, _, good := readFrame(b)
	return good || len(b) == 0
}
