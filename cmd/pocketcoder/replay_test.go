package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/ops/expect"
	"pocketcoder/projections/store"
)

func TestReplayExportsAChat(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := startAPI(t)
	chat := p.create(t, "Exported")
	p.begin(t, chat, "count")
	request := p.ask(t, chat, "per_1", "echo one; echo two")
	p.admin(t).must(t, "PATCH", recordPath("permissions", store.RecordID(request.ID)), record{"status": "authorized"}, nil)
	p.api.AppendExecution(t, chat, "x1", &events.ExecFinished{Stdout: events.Output{Text: "one\ntwo\n", Bytes: 8}})
	page, _, code := p.cli(t, "", "replay", chat, "--html")
	is.Equal(code, 0)
	expect.Contains(t, page, "approved by "+adminEmail)
	recording, _, code := p.cli(t, "", "replay", chat, "--cast")
	is.Equal(code, 0)
	lines := strings.Split(strings.TrimSpace(recording), "\n")
	var times []float64
	var output strings.Builder
	for _, line := range lines[1:] {
		var at float64
		var kind, text string
		is.NoErr(json.Unmarshal([]byte(line), &[]any{&at, &kind, &text}))
		is.Equal(kind, "o")
		times = append(times, at)
		output.WriteString(text)
	}
	expect.Contains(t, output.String(), "one\r\ntwo\r\n")
	is.True(times[len(times)-1] >= times[1]) // in order
	_, stderr, code := p.cli(t, "", "replay", "nochat", "--html")
	is.Equal(code, 1)
	expect.Contains(t, stderr, "there is no chat nochat in the log")
	_, _, code = p.cli(t, "", "replay", chat, "--html", "--cast")
	is.Equal(code, 2)
}
