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

// A client that reads every piece in time, but slowly, is dropped too. Its answer is counted until then.
func TestSlowReaderOfLargeAnswerIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		const size = 20 * answerRate
		var a unsentBytes
		client, server := net.Pipe()
		defer client.Close()
		w := NewDeadlineWriter(pipeWriter{server})
		w.reserve = func(n int) (func(), error) { return a.reserve("eve", n) }
		written := make(chan time.Duration, 1)
		go func() {
			begun := time.Now()
			_ = Write(w, http.StatusOK, "application/json", make([]byte, size))
			written <- time.Since(begun)
			server.Close() // ends a read that has just begun
		}()
		synctest.Wait()
		is.Equal(a.byKey["eve"], size)
		piece := make([]byte, WritePiece)
		for {
			time.Sleep(writeTimeout / 2) // of the bubble's clock
			select {
			case took := <-written:
				is.Equal(took, answerTimeout+20*time.Second)
				is.Equal(len(a.byKey), 0)
				return
			default:
				_, _ = client.Read(piece)
			}
		}
	})
}

func TestUnsentAnswersPerAccountAreLimited(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var a unsentBytes
	refused := func(key string, n int) bool {
		_, err := a.reserve(key, n)
		var p Problem
		return errors.As(err, &p) && p.Status == http.StatusTooManyRequests && p.Retry > 0
	}
	release, err := a.reserve("eve", maxUnsent+1) // a single answer above the limit
	is.NoErr(err)
	is.True(refused("eve", 1))
	is.True(!refused("ann", maxUnsent-1))
	is.True(!refused("ann", 1))
	is.True(refused("ann", 1))
	release()
	is.True(!refused("eve", maxUnsent))
}
