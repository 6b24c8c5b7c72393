package main

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/matryer/is"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"pocketcoder/ops/expect"
)

func metricsSayHowTheSystemIs(t *testing.T, p *process) {
	is := is.New(t)
	address := regexp.MustCompile(`metrics +(http://\S+/metrics)`).FindStringSubmatch(p.output.String())
	is.Equal(len(address), 2)
	scrape := func() string {
		answer, err := http.Get(address[1])
		is.NoErr(err)
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		is.NoErr(err)
		is.Equal(answer.StatusCode, http.StatusOK)
		return string(body)
	}

	chat := p.chat(t, bash("echo counted"))
	var body string
	expect.Eventually(t, "a request waits", func() bool {
		body = scrape()
		return strings.Contains(body, `pocketcoder_requests_pending{kind="permission"} 1`) &&
			strings.Contains(body, `pocketcoder_chats{turn="waiting"} 1`)
	})
	for _, line := range []string{
		`pocketcoder_part_state{part="opencode",state="ready"} 1`,
		`pocketcoder_part_state{part="opencode",state="offline"} 0`,
		`pocketcoder_dead_letters 0`, `pocketcoder_executions_running 0`,
		`pocketcoder_unreadable{kind="log"} 0`, `pocketcoder_unreadable{kind="read_model"} 0`,
		`process_resident_memory_bytes `,
		`pocketcoder_stream_bytes{stream="EVENTS"} `, `pocketcoder_stream_last_sequence{stream="EVENTS"} `,
		`pocketcoder_read_model_sequence `,
	} {
		expect.Contains(t, body, "\n"+line)
	}
	expect.Lacks(t, body, chat) // no series for each chat

	p.approve(t, chat, 0)
	p.turnEnds(t, chat)
	body = scrape()
	expect.Contains(t, body, `pocketcoder_requests_pending{kind="permission"} 0`)
	expect.Contains(t, body, `pocketcoder_chats{turn="completed"} 1`)
	expect.Contains(t, body, `pocketcoder_tokens_total{kind="output",model="demo",provider="demo"} `)

	for _, file := range []string{"../../ops/grafana.json", "../../docs/metrics.md"} {
		names := regexp.MustCompile(`pocketcoder_\w+`).FindAllString(expect.ReadFile(t, file), -1)
		is.True(len(names) > 5)
		for _, name := range names {
			expect.Contains(t, body, "\n# TYPE "+name+" ")
		}
	}
	problems, err := promlint.New(strings.NewReader(body)).Lint()
	is.NoErr(err)
	for _, problem := range problems {
		if strings.HasPrefix(problem.Metric, "pocketcoder_") {
			t.Errorf("%s: %s", problem.Metric, problem.Text)
		}
	}
}
