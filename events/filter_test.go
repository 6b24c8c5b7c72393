package events

import (
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"pgregory.net/rapid"

	"pocketcoder/ops/expect"
)

func TestFilterFromOutside(t *testing.T) {
	for filter, good := range map[string]bool{
		"evt.>": true, "evt.chat.*.opencode.permission.>": true, "evt.*": true, "evt.chat.c_1-X.created": true,
		"": false, "evt": false, ">": false, "*.chat.>": false, "delta.>": false, "evt.>.x": false, "evt..x": false, "evt.chat.": false,
		"evt.a b": false, "evt.cha*": false, "evt.chat.>>": false, "evt.\x00": false, "evt.chat\r\n": false, " evt.>": false, "$JS.API.>": false,
		"evt" + strings.Repeat(".x", 31): true, "evt" + strings.Repeat(".x", 32): false,
		"evt." + strings.Repeat("x", 65): false,
	} {
		if got, err := ParseFilter(filter); (err == nil) != good || good && got != filter {
			t.Errorf("%q: %v", filter, err)
		}
	}
}

func TestFilterMeansWhatTheServerMeans(t *testing.T) {
	for _, c := range []struct {
		filter, subject string
		want            bool
	}{
		{"evt.>", "evt.chat.a.created", true},
		{"evt.>", "evt", false},
		{"evt.chat.a.>", "evt.chat.a", false},
		{"evt.chat.a.>", "evt.chat.a.b.c", true},
		{"evt.chat.a.>", "evt.chat.ab.c", false},
		{"evt.*.a.created", "evt.chat.a.created", true},
		{"evt.*.a", "evt.chat.a.created", false},
		{"evt.chat.a.created", "evt.chat.a.created", true},
		{"evt.chat.a.created", "evt.chat.a", false},
		{"evt.chat.a", "evt.chat.a.created", false},
		{"evt.chat.*.*", "evt.chat.a.b", true},
	} {
		if got := MatchesFilter(strings.Split(c.filter, "."), strings.Split(c.subject, ".")); got != c.want {
			t.Errorf("%s %s: %v", c.filter, c.subject, got)
		}
	}
	word := rapid.SampledFrom([]string{"evt", "chat", "a", "b"})
	wild := rapid.SampledFrom([]string{"evt", "chat", "a", "*", "*"})
	expect.Property(t, func(t *rapid.T) {
		subject := rapid.SliceOfN(word, 1, 6).Draw(t, "subject")
		filter := rapid.SliceOfN(wild, 1, 6).Draw(t, "filter")
		if rapid.Bool().Draw(t, "rest") {
			filter = append(filter, ">")
		}
		want := server.SubjectMatchesFilter(strings.Join(subject, "."), strings.Join(filter, "."))
		if MatchesFilter(filter, subject) != want {
			t.Fatalf("want %v", want)
		}
	})
}
