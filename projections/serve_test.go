package projections

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/expect"
)

func TestWhateverACommandPrintedFitsIntoTheAnswer(t *testing.T) {
	t.Parallel()
	m, s := still(t), &story{t: t}
	feed(t, m, s.created())
	nc := eventstest.Conn(t, eventstest.Server(t, t.TempDir()))
	go m.Serve(t.Context(), nc)
	expect.Eventually(t, "queries are taken", func() bool { return nc.NumSubscriptions() > len(m.queries()) })
	is.New(t).NoErr(nc.Flush())
	for name, c := range map[string]struct {
		out    events.Output
		isText bool
	}{
		"plain":     {events.Output{Text: strings.Repeat("many\nlines\n", 20_000)}, true},
		"controls":  {events.Output{Text: strings.Repeat("\x00", log.MaxInline)}, false},
		"markup":    {events.Output{Text: strings.Repeat("<", log.MaxInline)}, false},
		"not UTF-8": {events.Output{Base64: []byte(strings.Repeat("\xff", log.MaxInline))}, false},
		"nothing":   {events.Output{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			id := strings.Fields(name)[0]
			feed(t, m, s.own(events.ExecRequested{Exec: id, Command: "make"}), own(t, "sandbox", events.ExecFinished{Exec: id, Stdout: c.out, Stderr: c.out}))
			answer, err := nc.Request("query.execution", []byte(`{"execution":"`+id+`"}`), queryTimeout)
			is.NoErr(err)
			is.Equal(answer.Header.Get(errorHeader), "")
			var run Run
			is.NoErr(json.Unmarshal(answer.Data, &run))
			var got outputs
			is.NoErr(json.Unmarshal([]byte(run.Outputs), &got))
			for _, out := range []events.Output{got.Stdout, got.Stderr} {
				is.True(out.Text+string(out.Base64) == c.out.Text+string(c.out.Base64))
				is.Equal(out.Base64 == nil, c.isText)
			}
		})
	}
}
