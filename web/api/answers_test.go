package api

import (
	"errors"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/matryer/is"
)

// pipeWriter answers over one end of a pipe.
type pipeWriter struct{ net.Conn }

func (pipeWriter) Header() http.Header { return http.Header{} }
func (pipeWriter) WriteHeader(int)     {}

// A client that takes every piece in time, but slowly, is dropped too. Its answer is counted until then.
func TestAWholeAnswerIsReadInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		const size = 20 * answerRate
		var a answers
		client, server := net.Pipe()
		defer client.Close()
		w := NewPatientWriter(pipeWriter{server})
		w.hold = func(n int) (func(), error) { return a.hold("eve", n) }
		written := make(chan time.Duration)
		go func() {
			begun := time.Now()
			_ = Write(w, http.StatusOK, "application/json", make([]byte, size))
			written <- time.Since(begun)
		}()
		synctest.Wait()
		is.Equal(a.held["eve"], size)
		piece := make([]byte, WritePiece)
		for {
			time.Sleep(writePatience / 2) // of the bubble's clock
			select {
			case took := <-written:
				is.Equal(took, answerPatience+20*time.Second)
				is.Equal(len(a.held), 0)
				return
			default:
				_, _ = client.Read(piece)
			}
		}
	})
}

func TestUnreadAnswersOfAnAccountAreBounded(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var a answers
	refused := func(holder string, n int) bool {
		_, err := a.hold(holder, n)
		var p Problem
		return errors.As(err, &p) && p.Status == http.StatusTooManyRequests && p.Retry > 0
	}
	release, err := a.hold("eve", maxHeld+1) // by itself
	is.NoErr(err)
	is.True(refused("eve", 1))
	is.True(!refused("ann", maxHeld-1))
	is.True(!refused("ann", 1))
	is.True(refused("ann", 1))
	release()
	is.True(!refused("eve", maxHeld))
}
