package ingest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode/bridgetest"
	"pocketcoder/bridge/opencode/client"
)

// burst returns n events of one session, in the mix of a long answer: of ten events, six text deltas, two updates of a
// growing tool output, a part and a message.
func burst(b *testing.B, n int) (events []client.Event) {
	is := is.New(b)
	seq, text := 0, strings.Repeat("word ", 60)
	add := func(durable bool, typ, properties string) {
		id := fmt.Sprintf("evt_%06d", len(events))
		frame := fmt.Sprintf(`{"payload":{"id":%q,"type":%q,"properties":%s}}`, id, typ, properties)
		if durable {
			frame = fmt.Sprintf(`{"payload":{"id":%q,"type":"sync","syncEvent":{"id":%q,"type":"%s.1","seq":%d,"aggregateID":"ses_1","data":%s}}}`, id, id, typ, seq, properties)
			seq++
		}
		e, ok, err := client.ParseEvent([]byte(frame))
		is.NoErr(err)
		is.True(ok)
		events = append(events, e)
	}
	add(true, "session.created", `{"sessionID":"ses_1","info":{"id":"ses_1","directory":"/workspace"}}`)
	for len(events) < n {
		m := len(events)
		for range 6 {
			add(false, "message.part.delta", fmt.Sprintf(`{"sessionID":"ses_1","messageID":"msg_%d","partID":"prt_%d","field":"text","delta":"a few words "}`, m, m))
		}
		for i, status := range []string{"running", "running", "completed"} {
			add(true, "message.part.updated", fmt.Sprintf(`{"sessionID":"ses_1","part":{"id":"prt_t%d","messageID":"msg_%d","type":"tool","callID":"c","tool":"bash","state":{"status":%q,"metadata":{"output":%q}}}}`, m, m, status, text[:100*(i+1)]))
		}
		add(true, "message.updated", fmt.Sprintf(`{"sessionID":"ses_1","info":{"id":"msg_%d","sessionID":"ses_1","role":"assistant","time":{"created":1}}}`, m))
	}
	return events
}

// BenchmarkIngest appends a burst of 5,000 events to a log that syncs every append.
func BenchmarkIngest(b *testing.B) {
	is := is.New(b)
	const n = 5000
	all := burst(b, n)
	for b.Loop() {
		b.StopTimer()
		s := bridgetest.NewSystem(b)
		bridge, _ := s.Outbox()
		in := bridge.Ingest
		b.StartTimer()
		for burst := range slices.Chunk(all, 256) {
			is.NoErr(in.Take(b.Context(), burst))
		}
	}
	b.ReportMetric(float64(len(all)*b.N)/b.Elapsed().Seconds(), "events/s")
}
