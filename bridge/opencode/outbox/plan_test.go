package outbox

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pocketcoder/events"
	"pocketcoder/projections"
)

// now is the time of the plans of this file.
var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// of changes an effect of a case.
type of func(*effect)

// do returns an effect, such as "revert a" in the chat a. "message a u" is a message of the account u that may begin a
// turn. "fork b a" copies the chat a to the chat b. The position of an effect is that in the list of its case.
func do(text string, change ...of) effect {
	words := strings.Fields(text)
	e := effect{Key: text, Target: words[1]}
	switch words[0] {
	case "message":
		e.Of.message = &projections.PendingMessage{Free: true, ChatUser: words[2]}
		e.Of.message.ID = text
	case "revert":
		e.Of.kind = commandKind
	case "fork":
		e.Of.kind, e.Of.from = commandKind, words[2]
	case "abort":
		e.Of.kind = abortKind
	case "reply":
		e.Of.kind = replyKind
	}
	for _, f := range change {
		f(&e)
	}
	return e
}

func inTurn(e *effect)    { e.Of.message.Free = false } // a turn of the chat runs
func steered(e *effect)   { e.Of.message.Delivery = events.DeliverySteer }
func sent(e *effect)      { e.Of.message.EngineMessage = "msg_1" } // it is tried again
func moved(e *effect)     { e.Of.message.First = 100 }             // up in its queue
func waiting(e *effect)   { e.After = now.Add(time.Second) }       // for its next try, or for a budget
func deferred(e *effect)  { e.Deferred = true }
func succeeded(e *effect) { e.Succeeded = true }

func TestPlan(t *testing.T) {
	t.Parallel()
	type list = []effect
	for name, c := range map[string]struct {
		open, running list
		turns         map[string]int
		max           int
		due           string // the keys
	}{
		"nothing is open":                {},
		"one effect of a chat at a time": {open: list{do("revert a"), do("reply a"), do("reply b")}, due: "revert a, reply b"},
		"a reply comes last":             {open: list{do("reply a"), do("abort a")}, due: "abort a"},
		"a busy chat waits":              {open: list{do("abort a"), do("abort b")}, running: list{do("reply a")}, due: "abort b"},
		"a failed effect waits, and its chat does not": {open: list{do("abort a", waiting), do("reply a")},
			due: "reply a"},
		"what succeeded is not repeated": {open: list{do("reply a", succeeded)}},

		"an abort overtakes a revert that waits": {open: list{do("revert a", waiting), do("abort a")}, due: "abort a"},
		"a revert waits for an earlier abort":    {open: list{do("abort a", waiting), do("revert a")}},
		"a revert waits for an earlier revert":   {open: list{do("revert a", waiting), do("revert a")}},
		"a fork waits for the copied chat":       {open: list{do("revert a", waiting), do("fork b a")}},
		"the copied chat does not wait while it is copied": {open: list{do("abort a")}, running: list{do("fork b a")},
			due: "abort a"},
		"a message waits for an earlier revert":         {open: list{do("revert a", waiting), do("message a u")}},
		"a later revert does not delay a message":       {open: list{do("message a u"), do("revert a", waiting)}, due: "message a u"},
		"a moved message waits for a revert before it":  {open: list{do("message a u", moved), do("revert a", waiting)}},
		"a new message waits for an abort":              {open: list{do("message a u"), do("abort a", waiting)}},
		"a message that was sent does not wait for one": {open: list{do("message a u", sent), do("abort a", waiting)}, due: "message a u"},

		"a message waits for the running turn":     {open: list{do("message a u", inTurn)}},
		"a message waits for an earlier one":       {open: list{do("message a u", waiting), do("message a u 2")}},
		"a steered message joins the running turn": {open: list{do("message a u", inTurn, steered)}, due: "message a u"},
		"a steered message waits for one on its way": {open: list{do("message a u", inTurn, sent, waiting),
			do("message a u 2", inTurn, steered)}},
		"a steered message needs no free turn": {open: list{do("message a u", inTurn, steered)}, turns: map[string]int{"v": 1},
			max: 1, due: "message a u"},

		"no turn is free":                   {open: list{do("message a u")}, turns: map[string]int{"v": 2}, max: 2},
		"a message on its way takes a turn": {open: list{do("message a u")}, running: list{do("message b v")}, max: 1},
		"an account leaves a quarter to others": {open: list{do("message a u"), do("message b v")},
			turns: map[string]int{"u": 6}, max: 8, due: "message b v"},
		"chats without an owner have no share": {open: list{do("message a u")}, turns: map[string]int{"u": 3},
			running: list{do("message b v"), do("message c v")}, max: 8, due: "message a u"},
		"accounts take turns": {open: list{do("message a u"), do("message b u"), do("message c v")}, max: 2,
			due: "message a u, message c v"},

		"a reply does not wait for a message": {open: list{do("message a u"), do("reply a")},
			running: list{do("message a u")}, due: "reply a"},
		"nor for one that begins":      {open: list{do("message a u"), do("reply a")}, due: "message a u, reply a"},
		"an abort waits for a message": {open: list{do("abort a")}, running: list{do("message a u")}},
		"a message waits for a reply":  {open: list{do("message a u")}, running: list{do("reply a")}},
		"a message that is held back takes no turn": {open: list{do("message a u", waiting), do("message b v")}, max: 1,
			due: "message b v"},
		"a message whose budgets are checked again comes last": {open: list{do("message a u", deferred), do("message b u")},
			max: 1, due: "message b u"},
		"not even of its account": {open: list{do("message a u", waiting), do("message b u")}, max: 1,
			due: "message b u"},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range c.open {
				c.open[i].Of.seq = int64(i + 1)
			}
			var due []string
			for _, e := range plan(c.open, c.running, c.turns, c.max, now) {
				due = append(due, e.Key)
			}
			slices.Sort(due)
			want := strings.Split(c.due, ", ")
			slices.Sort(want)
			if got := strings.Join(due, ", "); got != strings.Join(want, ", ") {
				t.Errorf("%q is due, want %q", got, c.due)
			}
		})
	}
}
