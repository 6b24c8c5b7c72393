package pages

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"pocketcoder/events"
	"pocketcoder/projections"
	"pocketcoder/web/pages/site"
)

// steps are the events of a chat in order.
type steps []projections.MomentEvent

// marks are the marks of events by their kinds. An event of another kind has none.
var marks = map[string]string{
	"opencode." + events.PermissionAsked: "request", events.PermissionRequested{}.Kind(): "request",
	"opencode." + events.QuestionAsked: "request", events.QuestionRequested{}.Kind(): "request",
	events.PermissionDecided{}.Kind(): "decision", events.PermissionExpired{}.Kind(): "decision",
	events.QuestionAnswered{}.Kind(): "decision",
	events.ExecRequested{}.Kind():    "execution", events.ExecRefused{}.Kind(): "execution",
	events.MCPCalled{}.Kind(): "execution",
}

// markOrder is the order in which marks are shown, from top to bottom.
var markOrder = []string{"request", "decision", "execution"}

// find returns the number of the event that a request asks for: by its number, or by a sequence at or after it.
// Without either it is the last one.
func (s steps) find(r *http.Request) (int, error) {
	if r.URL.Query().Get("event") != "" {
		n, err := site.PositionOf(r, "event")
		return int(min(max(n, 1), int64(len(s)))), err
	}
	if r.URL.Query().Get("seq") == "" {
		return len(s), nil
	}
	seq, err := site.PositionOf(r, "seq")
	return max(s.after(uint64(seq)), 1), err
}

// after returns how many events there are up to a sequence.
func (s steps) after(seq uint64) int {
	i, found := slices.BinarySearchFunc(s, seq, func(one projections.MomentEvent, seq uint64) int {
		return cmp.Compare(one.Seq, seq)
	})
	if found {
		i++
	}
	return i
}

// longestWait bounds the time that the chat stood still between two events.
const longestWait = time.Hour

// wait returns the time between an event and the one before it.
func (s steps) wait(number int) time.Duration {
	if number < 2 {
		return 0
	}
	return min(max(s[number-1].Time.Sub(s[number-2].Time), 0), longestWait) // the clocks of two writers may differ
}

// marked returns the number of the next event with a mark in a direction, 0 for none.
func (s steps) marked(number, direction int) int {
	for n := number + direction; n >= 1 && n <= len(s); n += direction {
		if marks[s[n-1].Kind] != "" {
			return n
		}
	}
	return 0
}

// cause returns the number of the event with an id, 0 for none.
func (s steps) cause(id string) int {
	return slices.IndexFunc(s, func(one projections.MomentEvent) bool { return id != "" && one.ID == id }) + 1
}

// markWidth is the width of the image of the marks, in units. Marks closer than one unit overlap.
const markWidth = 1000

// path returns the marks of one kind as an SVG path.
func (s steps) path(mark string) string {
	var b strings.Builder
	last := -1
	for i, one := range s {
		x := i * markWidth / max(len(s)-1, 1)
		if marks[one.Kind] == mark && x != last {
			fmt.Fprintf(&b, "M%d 0v1", x)
			last = x
		}
	}
	return b.String()
}

// count returns how many marks of a kind there are.
func (s steps) count(mark string) (n int) {
	for _, one := range s {
		if marks[one.Kind] == mark {
			n++
		}
	}
	return n
}
