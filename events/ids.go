package events

import (
	"crypto/rand"
	"fmt"
	"strings"
)

// MaxID is the longest id a subject token may hold.
const MaxID = 64

// ParseID accepts an id from outside: one subject token of 1 to 64 letters, digits, _ or -. It keeps `*`, `>` and dots
// out of subjects and filters, because the server would store them.
func ParseID(s string) (string, error) {
	if s == "" || len(s) > MaxID || strings.ContainsFunc(s, isOutsideID) {
		shown := s
		if len(shown) > MaxID {
			shown = shown[:MaxID] + "…"
		}
		return "", fmt.Errorf("parse id %q: want 1 to %d letters, digits, _ or -", shown, MaxID)
	}
	return s, nil
}

func isOutsideID(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-'
}

// idAlphabet and idLength are those of PocketBase record ids, so that our ids pass its clients' validation.
const (
	idAlphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
	idLength   = 15
)

// NewID returns a random id: 15 characters of [a-z0-9], 77 bits.
func NewID() string {
	id := make([]byte, 0, idLength)
	var b [32]byte
	for len(id) < idLength {
		rand.Read(b[:])
		for _, c := range b {
			if int(c) < 256-256%len(idAlphabet) && len(id) < idLength { // drop the bytes that would favour some letters
				id = append(id, idAlphabet[int(c)%len(idAlphabet)])
			}
		}
	}
	return string(id)
}
