package stream

import (
	"bytes"
	"context"
	"io"

	"pocketcoder/events"
	"pocketcoder/events/log"
)

// OpenOutput opens the stored output of an execution.
func OpenOutput(ctx context.Context, log *log.Log, o events.Output) (io.ReadSeekCloser, error) {
	if o.Blob != nil {
		return openBlob(ctx, log, o.Blob.Name, o.Blob.Size)
	}
	if o.Base64 != nil {
		return inlineContent{bytes.NewReader(o.Base64)}, nil
	}
	return inlineContent{bytes.NewReader([]byte(o.Text))}, nil
}

func openBlob(ctx context.Context, log *log.Log, name string, size int64) (io.ReadSeekCloser, error) {
	b := &blobContent{open: func() (io.ReadCloser, error) { return log.Blobs.Open(ctx, name) }, size: size}
	return b, b.reopen()
}

type inlineContent struct{ *bytes.Reader }

func (inlineContent) Close() error { return nil }

// blobContent is a blob with random access. Each reader of a blob starts at the beginning, so a seek back opens a new
// one.
type blobContent struct {
	open   func() (io.ReadCloser, error)
	size   int64
	at     int64 // where the next read begins
	reader io.ReadCloser
	place  int64 // where reader is
}

func (b *blobContent) reopen() (err error) {
	b.Close()
	b.reader, err = b.open()
	b.place = 0
	return err
}

func (b *blobContent) Read(p []byte) (int, error) {
	if b.at < b.place {
		if err := b.reopen(); err != nil {
			return 0, err
		}
	}
	skipped, err := io.CopyN(io.Discard, b.reader, b.at-b.place)
	b.place += skipped
	if err != nil {
		return 0, err
	}
	n, err := b.reader.Read(p)
	b.place += int64(n)
	b.at += int64(n)
	return n, err
}

func (b *blobContent) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += b.at
	case io.SeekEnd:
		offset += b.size
	}
	b.at = max(offset, 0)
	return b.at, nil
}

func (b *blobContent) Close() error {
	if b.reader == nil {
		return nil
	}
	return b.reader.Close()
}
