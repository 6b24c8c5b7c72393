package log

import (
	"testing"

	"pgregory.net/rapid"

	"pocketcoder/events"
	"pocketcoder/ops/expect"
)

func TestAFollowerIsFoundUnderTheIndexOfItsEvents(t *testing.T) {
	word := rapid.SampledFrom([]string{"evt", "chat", "a", "b"})
	wild := rapid.SampledFrom([]string{"evt", "chat", "a", "*", "*"})
	expect.Property(t, func(t *rapid.T) {
		subject := rapid.SliceOfN(word, 1, 6).Draw(t, "subject")
		filter := rapid.SliceOfN(wild, 1, 6).Draw(t, "filter")
		if rapid.Bool().Draw(t, "rest") {
			filter = append(filter, ">")
		}
		if i := index(filter); events.MatchesFilter(filter, subject) && i != anything && i != index(subject) {
			t.Fatalf("the follower is found under %q only", i)
		}
	})
}
