package export_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/web/export"
)

// longChat returns a log in which chats go on at the same time, each with a recording of OpenCode as often as given.
func longChat(t testing.TB, recording string, chats, times int) (l *log.Log, last uint64) {
	t.Helper()
	is := is.New(t)
	recorded, err := os.ReadFile("../../projections/testdata/" + recording + ".jsonl")
	is.NoErr(err)
	ids := regexp.MustCompile(`\b(msg|prt|per|que|evt|call)_`)
	l = eventstest.Log(t)
	var batch []events.Event
	add := func(e events.Event, err error) {
		is.NoErr(err)
		batch = append(batch, e)
	}
	for c := range chats {
		add(events.New(fmt.Sprint("chat", c), events.UserActor("ann"), events.ChatCreated{User: "ann", Engine: "oc1"}))
	}
	for i := range times {
		for lines := bufio.NewScanner(strings.NewReader(string(recorded))); lines.Scan(); {
			for c := range chats {
				var r struct {
					ID, Type   string
					Seq        int64
					Properties json.RawMessage
				}
				own := ids.ReplaceAllString(lines.Text(), fmt.Sprintf("${1}_%05d_%d_", i, c))
				is.NoErr(json.Unmarshal([]byte(strings.ReplaceAll(own, "ses_", fmt.Sprintf("ses_%d_", c))), &r))
				add(events.NewOpenCode(fmt.Sprint("chat", c), "oc1", r.ID, r.Seq,
					events.OpenCode{Type: r.Type, Properties: r.Properties}))
			}
		}
		last, err = l.AppendAll(t.Context(), batch)
		is.NoErr(err)
		batch = nil
	}
	return l, last
}

// measured is a writer that measures when its first bytes arrive.
type measured struct {
	began time.Time
	first time.Duration
	bytes int
}

func (m *measured) Write(b []byte) (int, error) {
	if m.bytes == 0 {
		m.first = time.Since(m.began)
	}
	m.bytes += len(b)
	return len(b), nil
}

// BenchmarkExport writes the page of a chat of 28,915 events in a log of ten such chats.
func BenchmarkExport(b *testing.B) {
	is := is.New(b)
	l, last := longChat(b, "9i-perm-task", 10, 366)
	w := &measured{}
	for b.Loop() {
		w = &measured{began: time.Now()}
		chat := export.Chat{Log: l, ID: "chat3", At: last, Email: func(string) string { return "" }}
		is.NoErr(chat.HTML(b.Context(), w))
	}
	b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms")
	b.ReportMetric(float64(w.first.Microseconds())/1000, "first-ms")
	b.ReportMetric(float64(w.bytes>>10), "KiB")
	b.ReportMetric(0, "ns/op")
}

// page collects a page.
type page struct {
	strings.Builder
	onEntry func() // is called when the first entry is written
}

func (p *page) Write(b []byte) (int, error) {
	if p.onEntry != nil && strings.Contains(string(b), "data-order=") {
		p.onEntry()
		p.onEntry = nil
	}
	return p.Builder.Write(b)
}

// A slow client of a long chat takes little memory: what it has not read is not rendered.
func TestAPageIsWrittenWhileTheChatIsRead(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	const times = 150
	const questions = 2 * times
	l, last := longChat(t, "14-question", 1, times)
	shown, early := 0, questions
	w := &page{onEntry: func() { early = shown }}
	chat := export.Chat{Log: l, ID: "chat0", At: last, Email: func(string) string { shown++; return "" }}
	is.NoErr(chat.HTML(t.Context(), w))
	is.Equal(shown, questions)
	is.True(early < questions)
	var orders []string
	for _, m := range regexp.MustCompile(`data-order="([^"]+)"`).FindAllStringSubmatch(w.String(), -1) {
		orders = append(orders, m[1])
	}
	is.True(len(orders) > questions+2*times)
	is.True(slices.IsSorted(orders))
	each := len(orders)
	is.Equal(len(slices.Compact(orders)), each) // once
}
