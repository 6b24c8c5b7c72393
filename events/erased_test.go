package events

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
)

func TestAnErasedEventSaysWhatWasErased(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	e, err := New("c1", ActorSystem, MessageSubmitted{Message: "m1"})
	is.NoErr(err)
	m := Message(e, e.Data)
	read := FromMessage(m.Subject, m.Header, Erase(m.Data), 812, time.Now())
	is.True(read.IsErased())
	body, err := json.Marshal(read)
	is.NoErr(err)
	expect.Contains(t, string(body), `"erased":"erased by an operator, SHA-256 `)
	expect.Lacks(t, string(body), "malformed")
	is.Equal(read.ID, e.ID) // the envelope is as it was
	_, err = Decode(read)
	is.True(err != nil) // readers skip it
	is.Equal(string(Erase(Erase(m.Data))), string(Erase(m.Data)))
	is.Equal(WithoutMark(Erase(m.Data)), nil)

	for _, body := range []string{`{"erased":true}`, `{"erased":{"sha256":"ab","size":1}}`, string(m.Data), "",
		strings.Replace(string(Erase(m.Data)), "}}", `},"text":"x"}`, 1)} {
		_, ok := ReadErased([]byte(body))
		is.True(!ok) // a body that only looks like a mark
		is.Equal(string(WithoutMark([]byte(body))), body)
	}
}
