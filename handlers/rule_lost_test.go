package handlers_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers/rule"
)

// The newest version of a rule may have denied, asked or been paused.
func TestARuleThatIsLostAllowsNothingAndAsks(t *testing.T) {
	is := is.New(t)
	b := rule.NewBook()
	e, err := events.NewConfig(rule.ToolPermissions, "r1", events.ActorSystem,
		events.Saved{Fields: json.RawMessage(`{"tool":"bash","pattern":"make*","action":"allow","active":true}`)})
	is.NoErr(err)
	e.Seq = 1
	b.Apply(e)
	is.Equal(len(b.InForce(rule.Scope{At: time.Now()})), 1)
	e.Seq = 2
	b.Apply(e.WithoutBody(nil, errors.New("no such blob")))
	rules := b.InForce(rule.Scope{At: time.Now()})
	is.Equal(len(rules), 1)
	is.Equal(rules[0].String(), "ask *: *")
}
