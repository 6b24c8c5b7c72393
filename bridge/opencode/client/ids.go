package client

import (
	"crypto/rand"
	"crypto/sha256"
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
	random := make([]byte, tailLength)
	rand.Read(random) // never fails
	return newID(prefix, t, tail(random))
}

// NewIDOf is NewID with TailOf(name) at the end, by which the id is found again.
func NewIDOf(prefix, name string, t time.Time) string { return newID(prefix, t, TailOf(name)) }

// TailOf returns 14 letters and digits that follow from a name.
func TailOf(name string) string {
	sum := sha256.Sum256([]byte(name))
	return tail(sum[:tailLength])
}

const tailLength = 14

func tail(random []byte) string {
	letters := make([]byte, len(random))
	for i, b := range random {
		letters[i] = base62[int(b)%len(base62)]
	}
	return string(letters)
}

func newID(prefix string, t time.Time, tail string) string {
	lastID.Lock()
	n := max(uint64(t.UnixMilli())<<12+1, lastID.n+1)
	lastID.n = n
	lastID.Unlock()
	return fmt.Sprintf("%s_%012x%s", prefix, n&(1<<48-1), tail)
}
