package mcp

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strconv"
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

	mu     sync.Mutex
	taken  map[int]string // the newest signatures: "SESSION CALL" by number
	latest int            // the highest number
}

// maxTaken is how many signatures are remembered. Older ones are refused by their numbers.
const maxTaken = 1000

// take checks a signature, and returns the caller that it names. It refuses a signature that it took before. A
// signature is BODY.MAC in base64url without padding. The body is the JSON list of tool, session, call, a random text
// and a number, which counts up. The MAC is the HMAC-SHA256 of the encoded body.
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
	var list [5]string
	raw, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil || json.Unmarshal(raw, &list) != nil || list[1] == "" || list[2] == "" {
		return refused("PocketCoder cannot read the signature of this call.")
	}
	if list[0] != tool {
		return refused("This call is signed for another tool.")
	}
	number, err := strconv.Atoi(list[4])
	if err != nil {
		return refused("PocketCoder cannot read the number of this call.")
	}
	from := caller{Session: list[1], Call: list[2], ID: list[2]}
	again, fresh := c.note(number, from.Session+" "+from.Call)
	if !fresh {
		return refused("This call was made already.")
	}
	if again {
		from.ID += "-" + list[3]
	}
	return from, nil
}

// note remembers a signature. fresh is false if it was taken before. again reports whether another signature is of the
// same call.
func (c *callers) note(number int, call string) (again, fresh bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, taken := c.taken[number]; taken || number <= c.latest-maxTaken {
		return false, false
	}
	if c.taken == nil {
		c.taken = map[int]string{}
	}
	for _, other := range c.taken {
		again = again || other == call
	}
	c.taken[number] = call
	for ; c.latest < number; c.latest++ {
		delete(c.taken, c.latest+1-maxTaken)
	}
	return again, true
}
