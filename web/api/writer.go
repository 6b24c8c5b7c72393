package api

import (
	"errors"
	"net/http"
	"time"
)

// A client that does not take a piece of an answer within writePatience is dropped. Pieces are small, so one behind a
// slow line is not.
const (
	writePatience = 10 * time.Second
	WritePiece    = 64 << 10 // bytes

	PingEvery = 20 * time.Second // less than proxies wait, 60 s mostly
)

// ErrGone is the error of a write to a client that has disconnected or is too slow.
var ErrGone = errors.New("the client is gone")

// PatientWriter writes an answer to a client that may be slow. Every route gets one. A client that does not take a
// piece of the answer within writePatience is dropped.
type PatientWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	hold    func(n int) (release func(), err error) // counts a whole answer; nil for none
	end     time.Time                               // of a whole answer, after which its client is dropped; zero for none
}

// NewPatientWriter returns w itself if it is one already.
func NewPatientWriter(w http.ResponseWriter) *PatientWriter {
	if p, ok := w.(*PatientWriter); ok {
		return p
	}
	return &PatientWriter{ResponseWriter: w, control: http.NewResponseController(w)}
}

// Unwrap is for http.ResponseController.
func (p *PatientWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// begin begins a whole answer of n bytes: it is counted until release is called, and its client has a limited time for
// all of it. An answer of one piece is not counted, so that small requests work while an account has too much to read.
func (p *PatientWriter) begin(n int) (release func(), err error) {
	p.end = time.Now().Add(answerPatience + time.Duration(n)*time.Second/answerRate)
	if p.hold == nil || n <= WritePiece {
		return func() {}, nil
	}
	return p.hold(n)
}

// await gives the client time for what is written next. What has no deadline is no connection, and keeps nobody
// waiting.
func (p *PatientWriter) await() error {
	deadline := time.Now().Add(writePatience)
	if !p.end.IsZero() && p.end.Before(deadline) {
		deadline = p.end
	}
	err := p.control.SetWriteDeadline(deadline)
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

func (p *PatientWriter) WriteHeader(status int) {
	_ = p.await() // of a connection that is gone, the next write says so
	p.ResponseWriter.WriteHeader(status)
}

func (p *PatientWriter) Write(b []byte) (n int, err error) {
	for err == nil && n < len(b) {
		piece := b[n:min(n+WritePiece, len(b))]
		if err = p.await(); err == nil {
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
func (p *PatientWriter) Flush() error {
	err := p.await()
	if err == nil {
		err = p.control.Flush()
	}
	if err != nil {
		return errors.Join(ErrGone, err)
	}
	return nil
}
