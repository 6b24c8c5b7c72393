package api

import (
	"errors"
	"net/http"
	"time"
)

// A client that does not take a piece of an answer within the patience is dropped. Pieces are small, so one behind a slow
// line is not.
const (
	writePatience = 10 * time.Second
	writePiece    = 64 << 10 // bytes

	pingEvery = 20 * time.Second // less than proxies wait, 60 s mostly
)

// errGone says that a client went away, or was too slow.
var errGone = errors.New("the client is gone")

// patientWriter writes an answer to a client that may be slow. Every route is given one.
type patientWriter struct {
	http.ResponseWriter
	control *http.ResponseController
}

func newPatientWriter(w http.ResponseWriter) *patientWriter {
	if p, ok := w.(*patientWriter); ok {
		return p
	}
	return &patientWriter{w, http.NewResponseController(w)}
}

// Unwrap is for http.ResponseController.
func (p *patientWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// await gives the client time for what is written next. What has no deadline is no connection, and keeps nobody waiting.
func (p *patientWriter) await() error {
	err := p.control.SetWriteDeadline(time.Now().Add(writePatience))
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

func (p *patientWriter) WriteHeader(status int) {
	_ = p.await() // of a connection that is gone, the next write says so
	p.ResponseWriter.WriteHeader(status)
}

func (p *patientWriter) Write(b []byte) (n int, err error) {
	for err == nil && n < len(b) {
		piece := b[n:min(n+writePiece, len(b))]
		if err = p.await(); err == nil {
			_, err = p.ResponseWriter.Write(piece)
			n += len(piece)
		}
	}
	if err != nil {
		return n, errors.Join(errGone, err)
	}
	return n, nil
}

// flush sends what was written.
func (p *patientWriter) flush() error {
	err := p.await()
	if err == nil {
		err = p.control.Flush()
	}
	if err != nil {
		return errors.Join(errGone, err)
	}
	return nil
}
