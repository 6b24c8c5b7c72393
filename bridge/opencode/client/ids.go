package client

import (
	"crypto/rand"
	"fmt"
	"sync"
	"time"
)

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

var lastID struct {
	sync.Mutex
	n uint64
}

// NewID returns an id of OpenCode's ascending form, such as msg_1fb48af13001DKM1Q7SXwk6KVf: prefix, 12 hex digits (the
// low 48 bits of t in Unix milliseconds × 0x1000 plus a counter) and 14 random letters and digits. Within this process
// every id sorts after the one before, whatever t says.
func NewID(prefix string, t time.Time) string {
	lastID.Lock()
	n := max(uint64(t.UnixMilli())<<12+1, lastID.n+1)
	lastID.n = n
	lastID.Unlock()
	tail := make([]byte, 14)
	rand.Read(tail) // never fails
	for i, b := range tail {
		tail[i] = base62[int(b)%len(base62)]
	}
	return fmt.Sprintf("%s_%012x%s", prefix, n&(1<<48-1), tail)
}
