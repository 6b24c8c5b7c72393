// Package archive copies the messages of JetStream streams out of a server and into one: for a backup, and to write a
// log anew.
//
// Promises: an entry holds a message as it is stored: the bytes of its header and body, its sequence and the time at
// which it was stored. Restore stores exactly that. Read returns every message of a range in order, once, or fails; it
// never takes a damaged message for a deleted one. A file of entries that was cut or changed is refused. A stream that
// Restore did not finish must not be used.
//
// It must not know what the messages mean, where files are, or what a backup is made of.
package archive

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"time"

	"github.com/klauspost/compress/s2"
	format "github.com/nats-io/nats-server/v2/server/archive"
)

// Entry is a stored message.
type Entry struct {
	Seq     uint64
	Stored  time.Time // by the server
	Subject string
	Header  []byte // with the line NATS/1.0, as it is stored; empty if the message has no headers
	Body    []byte
}

// Size returns the number of bytes of the message.
func (e Entry) Size() int { return len(e.Subject) + len(e.Header) + len(e.Body) }

// write writes the entry in the format of the server's stream backups.
func (e Entry) write(w *format.Writer) error {
	err := w.WriteHeader(&format.Header{
		Name: e.Subject, Sequence: e.Seq, Timestamp: e.Stored.UnixNano(),
		HeaderSize: int64(len(e.Header)), PayloadSize: int64(len(e.Body)),
	})
	for _, part := range [][]byte{e.Header, e.Body} {
		if err == nil {
			_, err = w.Write(part)
		}
	}
	return err
}

// Digest is the SHA-256 of entries, in order. Equal digests mean equal sequences, times, subjects, headers and bodies.
type Digest struct {
	sum hash.Hash
	w   *format.Writer
}

func NewDigest() *Digest {
	sum := sha256.New()
	return &Digest{sum, format.NewWriter(sum)}
}

func (d *Digest) Add(e Entry) error { return e.write(d.w) }

// String returns the digest in hexadecimal digits.
func (d *Digest) String() string { return hex.EncodeToString(d.sum.Sum(nil)) }

// Writer writes a file of entries: the server's backup format in an S2 stream, without the state of the stream.
type Writer struct {
	*Digest
	compressed *s2.Writer
	w          *format.Writer
}

// NewWriter returns a writer to w. The file is incomplete until Close has returned.
func NewWriter(w io.Writer) *Writer {
	compressed := s2.NewWriter(w, s2.WriterConcurrency(1))
	return &Writer{NewDigest(), compressed, format.NewWriter(compressed)}
}

func (w *Writer) Add(e Entry) error {
	if err := w.Digest.Add(e); err != nil {
		return err
	}
	return e.write(w.w)
}

// Close writes the end mark. It does not close the underlying writer.
func (w *Writer) Close() error {
	return errors.Join(w.w.WriteHeader(&format.Header{}), w.compressed.Close())
}

// ErrDamaged means that a file of entries was cut or changed.
var ErrDamaged = errors.New("the archive is damaged")

// ReadFile calls fn with every entry of a file.
func ReadFile(r io.Reader, fn func(Entry) error) error {
	entries := format.NewReader(s2.NewReader(r))
	for {
		h, err := entries.Next()
		if err != nil { // io.EOF too, because the end mark must come first
			return errors.Join(ErrDamaged, err)
		}
		if h.Sequence == 0 && h.Name == "" {
			return nil
		}
		if h.HeaderSize < 0 || h.PayloadSize < 0 || h.HeaderSize+h.PayloadSize > maxMessage {
			return ErrDamaged
		}
		content := make([]byte, h.HeaderSize+h.PayloadSize)
		if _, err := io.ReadFull(entries, content); err != nil {
			return errors.Join(ErrDamaged, err)
		}
		err = fn(Entry{h.Sequence, time.Unix(0, h.Timestamp).UTC(), h.Name, content[:h.HeaderSize], content[h.HeaderSize:]})
		if err != nil {
			return err
		}
	}
}

// maxMessage is larger than the largest message that a server accepts, in bytes.
const maxMessage = 64 << 20
