package outbox

import (
	"testing"

	"github.com/matryer/is"
)

// Chats without an owner have no share.
func TestAnAccountLeavesTurnsForOthers(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	d := &schedule{Outbox: &Outbox{MaxTurns: 8}, sending: map[string]string{"chat1": "bob", "chat2": "bob"}}
	is.True(d.mayRun("bob", map[string]int{"bob": 3}))
	is.True(!d.mayRun("bob", map[string]int{"bob": 4})) // six with those that begin
	is.True(d.mayRun("ann", map[string]int{"bob": 4}))
	is.True(d.mayRun("", map[string]int{"": 5}))
	is.True(!d.mayRun("ann", map[string]int{"bob": 4, "": 2})) // eight in all
	d.MaxTurns = 1
	d.sending = nil
	is.True(d.mayRun("bob", nil))
}
