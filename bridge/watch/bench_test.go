package watch_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pocketcoder/bridge/opencode/bridgetest"
	"pocketcoder/handlers/delegate"
)

// BenchmarkReflex measures the time from the end of a delegate's turn in OpenCode to the request that asks the model of
// the idle parent about the result. OpenCode is a script, so the time is ours alone.
func BenchmarkReflex(b *testing.B) {
	s := newSystem(b)
	type asked struct {
		prompt
		at time.Time
	}
	prompts := make(chan asked, 1)
	s.RefuseWith(func(r bridgetest.Request) int {
		if !strings.HasSuffix(r.Path, "/prompt_async") {
			return 0
		}
		var p struct {
			MessageID string
			Parts     []struct{ Text string }
		}
		s.Must(json.Unmarshal([]byte(r.Body), &p))
		prompts <- asked{prompt{strings.Split(r.Path, "/")[2], p.MessageID, p.Parts[0].Text}, time.Now()}
		return 0
	})
	s.watch(0)
	s.answer(s.prompt("hello"), "done")
	var samples []time.Duration
	for n := 0; b.Loop(); n++ {
		_, err := s.delegates.Start(b.Context(), delegate.Start{Parent: delegate.Caller{Chat: s.parent},
			Message: fmt.Sprint("task ", n)})
		s.Must(err)
		task := <-prompts
		s.answer(task.prompt, "result")
		done := time.Now()
		report := <-prompts
		samples = append(samples, report.at.Sub(done))
		s.answer(report.prompt, "read")
	}
	slices.Sort(samples)
	for name, part := range map[string]float64{"p50-ms": 0.5, "p99-ms": 0.99} {
		at := samples[int(part*float64(len(samples)-1))]
		b.ReportMetric(float64(at.Microseconds())/1000, name)
	}
	b.ReportMetric(0, "ns/op")
}
