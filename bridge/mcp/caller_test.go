package mcp

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/matryer/is"
)

func TestOldSignaturesAreForgottenAndStillRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	c := callers{key: []byte("key")}
	take := func(call string, number int) (caller, error) {
		body, err := json.Marshal([]string{"handoff", "ses_1", call, "random", strconv.Itoa(number)})
		is.NoErr(err)
		encoded := base64.RawURLEncoding.EncodeToString(body)
		sum := hmac.New(sha256.New, c.key)
		sum.Write([]byte(encoded))
		return c.take("handoff", encoded+"."+base64.RawURLEncoding.EncodeToString(sum.Sum(nil)))
	}
	for number := range 3 * maxTaken {
		from, err := take("call_"+strconv.Itoa(number), number)
		is.NoErr(err)
		is.Equal(from.ID, from.Call)
	}
	is.Equal(len(c.taken), maxTaken)
	for _, number := range []int{0, 2*maxTaken - 1, 2 * maxTaken, 3*maxTaken - 1} {
		_, err := take("call_"+strconv.Itoa(number), number)
		is.True(err != nil)
	}
	from, err := take("call_2999", 3*maxTaken+5) // the model gave two calls one id
	is.NoErr(err)
	is.Equal(from.ID, "call_2999-random")
	_, err = take("late", 3*maxTaken+2) // it was signed before, and arrives after
	is.NoErr(err)
}

func TestTheCallsOfAllChatsThatWaitAreLimited(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := &Server{}
	var ends []func()
	for i := range maxCalls {
		end, err := s.begin("chat" + strconv.Itoa(i/maxChatCalls))
		is.NoErr(err)
		ends = append(ends, end)
	}
	_, err := s.begin("chat0")
	is.True(strings.Contains(err.Error(), "32 calls of this chat"))
	_, err = s.begin("another")
	is.True(strings.Contains(err.Error(), "512 calls of all chats"))
	ends[0]()
	end, err := s.begin("another")
	is.NoErr(err)
	end()
	for _, end := range ends[1:] {
		end()
	}
	is.Equal(s.running, map[string]int{"": 0})
}
