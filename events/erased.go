package events

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// ChatErased closes the history of a chat whose text an operator erased. It is the only readable event of the chat.
type ChatErased struct {
	User    string `json:"user,omitempty"`    // owner
	Project string `json:"project,omitempty"` // empty for DefaultEngine
	Deleted bool   `json:"deleted,omitempty"`
	Events  uint64 `json:"events"` // number of events whose bodies were erased
}

func (ChatErased) Kind() string { return "erased" }

// Erased stands for a body that an operator erased. It is the value of Event.Malformed of such an event, so readers
// skip the event.
type Erased struct {
	SHA256 string `json:"sha256"` // of the body
	Size   int64  `json:"size"`   // of the body, in bytes
}

func (e Erased) Error() string { return "erased by an operator, SHA-256 " + e.SHA256 }

// Erase returns the mark that replaces a body. The mark of a mark is the same mark.
func Erase(body []byte) []byte {
	if _, ok := ReadErased(body); ok {
		return body
	}
	sum := sha256.Sum256(body)
	return Erased{hex.EncodeToString(sum[:]), int64(len(body))}.Mark()
}

// Mark returns the stored form.
func (e Erased) Mark() []byte {
	mark, err := json.Marshal(map[string]Erased{erasedKey: e})
	if err != nil {
		panic(err) // it is text and a number
	}
	return mark
}

const erasedKey = "erased"

// ReadErased returns what a mark stands for. ok is false for any other body.
func ReadErased(body []byte) (e Erased, ok bool) {
	var mark map[string]Erased
	if !bytes.HasPrefix(body, []byte(`{"`+erasedKey+`":{"sha256":"`)) || json.Unmarshal(body, &mark) != nil {
		return e, false
	}
	e = mark[erasedKey]
	return e, len(e.SHA256) == hex.EncodedLen(sha256.Size) && bytes.Equal(e.Mark(), body)
}

// WithoutMark returns a body, nil for a mark.
func WithoutMark(body []byte) []byte {
	if _, ok := ReadErased(body); ok {
		return nil
	}
	return body
}
