package gateway

import (
	"io"
	"sync"
)

// queue bounds what a server sends while a person answers its question. The client keeps all messages of that time in
// memory, because it handles one after the other.
type queue struct {
	mu        sync.Mutex
	questions int
	left      int // bytes until no question is open
}

func (q *queue) begin() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.questions++; q.questions == 1 {
		q.left = maxAnswer
	}
}

func (q *queue) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.questions--
}

// take reports whether the queue has room for n bytes more.
func (q *queue) take(n int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.questions == 0 {
		return true
	}
	q.left -= n
	return q.left >= 0
}

// queuedReader fails once a server has sent too much during a question.
type queuedReader struct {
	io.ReadCloser
	queue *queue
}

func (r queuedReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if !r.queue.take(n) {
		return 0, errTooLarge
	}
	return n, err
}
