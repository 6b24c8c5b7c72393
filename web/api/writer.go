package api

import (
	"errors"
	"net/http"
	"time"
)

// A client that does not read a piece of an answer within writeTimeout is dropped. Pieces are small, so that a client
// with a slow connection can read one in time.
const (
	writeTimeout = 10 * time.Second
	WritePiece   = 64 << 10 // bytes

	PingEvery = 20 * time.Second // less than the idle timeout of proxies, mostly 60 s
)

// ErrGone is the error of a write to a client that has disconnected or is too slow.
var ErrGone = errors.New("the client is gone")

// DeadlineWriter writes an answer to a client that may be slow. Every route gets one. A client that does not read a
// piece of the answer within writeTimeout is dropped.
type DeadlineWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	reserve func(n int) (release func(), err error) // counts a whole answer; nil for none
	// of a whole answer, after which its client is dropped; zero for none
	deadline time.Time
}

// NewDeadlineWriter returns w itself if it is one already.
func NewDeadlineWriter(w http.ResponseWriter) *DeadlineWriter {
	if p, ok := w.(*DeadlineWriter); ok {
		return p
	}
	return &DeadlineWriter{ResponseWriter: w, control: http.NewResponseController(w)}
}

// Unwrap is for http.ResponseController.
func (p *DeadlineWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// begin begins a whole answer of n bytes: it is counted until release is called, and its client has a limited time for
// all of it. An answer of one piece is not counted, so that small requests work while the account's limit is reached.
func (p *DeadlineWriter) begin(n int) (release func(), err error) {
	p.deadline = time.Now().Add(answerTimeout + time.Duration(n)*time.Second/answerRate)
	if p.reserve == nil || n <= WritePiece {
		return func() {}, nil
	}
	return p.reserve(n)
}

// extendDeadline sets the deadline of the next write. A writer without deadlines is not a connection, so its writes do
// not block.
func (p *DeadlineWriter) extendDeadline() error {
	deadline := time.Now().Add(writeTimeout)
	if !p.deadline.IsZero() && p.deadline.Before(deadline) {
		deadline = p.deadline
	}
	err := p.control.SetWriteDeadline(deadline)
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

func (p *DeadlineWriter) WriteHeader(status int) {
	_ = p.extendDeadline() // if the connection is gone, the next write returns an error
	p.ResponseWriter.WriteHeader(status)
}

func (p *DeadlineWriter) Write(b []byte) (n int, err error) {
	for err == nil && n < len(b) {
		piece := b[n:min(n+WritePiece, len(b))]
		if err = p.extendDeadline(); err == nil {
			_, err = p.ResponseWriter.Write(piece)
			n += len(piece)
		}
	}
	if err != nil {
		return n, errors.Join(ErrGone, err)
	}
	return n, nil
}

// Flush sends all that was written.
func (p *DeadlineWriter) Flush() error {
	err := p.extendDeadline()
	if err == nil {
		err = p.control.Flush()
	}
	if err != nil {
		return errors.Join(ErrGone, err)
	}
	return nil
}
