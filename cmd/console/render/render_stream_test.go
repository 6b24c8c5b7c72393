package render

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"pocketcoder/cmd/cmdtest"
	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/ops/expect"
)

// streamed shows a trace live: the deltas that keep says are put in at the places at says, in order.
func streamed(all []events.Event, deltas []log.Delta, at []int) string {
	var out bytes.Buffer
	r := New(&Screen{Out: &out})
	r.Live = true
	for i, e := range all {
		for j, d := range deltas {
			if at[j] == i {
				r.Fragment(d)
			}
		}
		r.Event(e)
	}
	r.EndLine()
	return out.String()
}

func TestStreamedTextIsCompleteForAnyOrderOfFragments(t *testing.T) {
	all, deltas := cmdtest.Trace(t, "reasoning")
	want := streamed(all, nil, nil)
	expect.Property(t, func(t *rapid.T) {
		at := rapid.SliceOfN(rapid.IntRange(0, len(all)), len(deltas), len(deltas)).Draw(t, "at")
		slices.Sort(at) // fragments come in order, and the last ones never
		if got := sortedWords(streamed(all, deltas, at)); got != sortedWords(want) {
			t.Fatalf("got\n%s\nwant\n%s", got, want)
		}
	})
}

// sortedWords forgets where lines were broken because two wrote at once.
func sortedWords(s string) string {
	l := strings.Split(strings.ReplaceAll(s, "\n", ""), " ")
	slices.Sort(l)
	return strings.Join(l, " ")
}

func TestMissedFragmentLosesNoText(t *testing.T) {
	all, deltas := cmdtest.Trace(t, "reasoning")
	opened := slices.IndexFunc(all, func(e events.Event) bool {
		return bytes.Contains(e.Data, []byte(`"type":"reasoning"`))
	})
	at := make([]int, len(deltas))
	for i := range at {
		at[i] = opened + 1
	}
	at[1] = -1 // the second is missed
	got := streamed(all, deltas, at)
	expect.Contains(t, got, "(some of the text above was missed; this is all of it)\nr0 r1 r2")
}
