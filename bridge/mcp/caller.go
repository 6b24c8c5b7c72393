package mcp

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"
	"sync"

	"pocketcoder/handlers"
)

// caller identifies a call of one of PocketCoder's tools. Some models give several calls of a session the same id,
// which is Call. ID is Call for the first of them, and Call with a suffix for each further one.
type caller struct{ Session, Call, ID string }

// callers verifies the callers of one start of OpenCode.
type callers struct {
	key []byte

	mu   sync.Mutex
	used map[string]bool // bodies of signatures, and "SESSION CALL"
}

// take checks a signature, and returns the caller that it names. It refuses a signature that it took before. A
// signature is BODY.MAC in base64url without padding. The body is the JSON list of tool, session, call and a random
// text. The MAC is the HMAC-SHA256 of the encoded body.
func (c *callers) take(tool, signature string) (caller, error) {
	refused := func(text string) (caller, error) {
		return caller{}, handlers.Refuse(handlers.Invalid, "%s Call the tool again, without the argument caller.", text)
	}
	body, mac, _ := strings.Cut(signature, ".")
	sum := hmac.New(sha256.New, c.key)
	sum.Write([]byte(body))
	got, err := base64.RawURLEncoding.DecodeString(mac)
	if err != nil || !hmac.Equal(got, sum.Sum(nil)) {
		return refused("PocketCoder did not sign this call.")
	}
	var list [4]string
	raw, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil || json.Unmarshal(raw, &list) != nil || list[1] == "" || list[2] == "" {
		return refused("PocketCoder cannot read the signature of this call.")
	}
	if list[0] != tool {
		return refused("This call is signed for another tool.")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.used[body] {
		return refused("This call was made already.")
	}
	if c.used == nil {
		c.used = map[string]bool{}
	}
	from := caller{Session: list[1], Call: list[2], ID: list[2]}
	if key := from.Session + " " + from.Call; c.used[key] {
		from.ID += "-" + list[3]
	} else {
		c.used[key] = true
	}
	c.used[body] = true
	return from, nil
}
