package web_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

// printedLine is a line of a recording behind its header.
type printedLine struct {
	at   float64
	text string
}

func recorded(t *testing.T, recording []byte) (all []printedLine) {
	t.Helper()
	for i, line := range strings.Split(strings.TrimSpace(string(recording)), "\n") {
		if i > 0 {
			var p printedLine
			webtest.Check(t, json.Unmarshal([]byte(line), &[]any{&p.at, new(string), &p.text}))
			all = append(all, p)
		}
	}
	return all
}

func TestARecordingHasTheTimesAtWhichOutputCame(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	chat := s.Chat(t, token, "commands")
	s.Append(t, chat, events.ExecRequested{Exec: "exec1", Session: "ses_1", Command: "make", Cwd: "/"})
	deltas := 0
	for _, d := range []log.Delta{{Stream: "stdout", Offset: 0, Data: []byte("one\n")},
		{Stream: "stderr", Offset: 0, Data: []byte("warning\n")}, {Stream: "stdout", Offset: 4, Data: []byte("two\n")}} {
		d.Subject, d.Type = events.ExecDeltaSubject(chat, "exec1"), log.ExecOutput
		is.NoErr(s.Log.PublishDelta(d))
	}
	expect.Eventually(t, "the fragments are stored", func() bool {
		deltas = 0
		_, err := s.Log.FoldDeltas(t.Context(), events.ExecDeltaSubject(chat, "exec1"), 0, func(log.Delta) error {
			deltas++
			return nil
		})
		return err == nil && deltas == 3
	})
	status, _ := s.Call(t, token, "GET", "/api/executions/exec1/cast", nil)
	is.Equal(status, http.StatusConflict) // it runs
	s.Append(t, chat, events.ExecFinished{Exec: "exec1", DurationMS: 3_600_000,
		Stdout: events.Output{Bytes: 13, Text: "one\ntwo\nlate\n"}, Stderr: events.Output{Bytes: 8, Text: "warning\n"},
		Left: &events.LeftProcesses{Processes: 1, Programs: []string{"node"}}})
	sentence := (&events.LeftProcesses{Processes: 1, Programs: []string{"node"}}).Sentence()
	status, answer := s.Raw(t, token, "GET", "/api/collections/executions/records/exec1?fields=left_behind", nil)
	is.Equal(status, http.StatusOK)
	is.Equal(string(answer), `{"left_behind":"`+sentence+`"}`)
	status, answer = s.Raw(t, token, "GET", "/api/executions/exec1/cast", nil)
	is.Equal(status, http.StatusOK)
	all := recorded(t, answer)
	var texts []string
	for _, p := range all {
		texts = append(texts, p.text)
	}
	is.Equal(texts, []string{"\x1b[1m$ make\x1b[0m\r\n", "one\r\n", "warning\r\n", "two\r\n", "late\r\n",
		"\x1b[0m[" + sentence + "]\r\n"})
	is.True(all[3].at < 3600 && all[4].at == 3600) // output without a fragment is at the end
	for i := range all[1:] {
		is.True(all[i].at <= all[i+1].at)
	}
}

func TestALargeOutputIsRecordedWhole(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	chat := s.Chat(t, token, "commands")
	text := strings.Repeat("日本語 line of text\n", 20_000)
	blob, err := s.Log.Blobs.Put(t.Context(), "output1", strings.NewReader(text))
	is.NoErr(err)
	s.AppendExecution(t, chat, "exec1", &events.ExecFinished{Stdout: events.Output{Bytes: int64(len(text)), Blob: &blob}})
	s.AppendExecution(t, chat, "exec2", &events.ExecFinished{ExitCode: 2})
	s.AppendExecution(t, chat, "exec3", nil)
	status, answer := s.Raw(t, token, "GET", "/api/chats/"+chat+"/export/cast", nil)
	is.Equal(status, http.StatusOK)
	var got strings.Builder
	for _, p := range recorded(t, answer) {
		got.WriteString(p.text)
	}
	is.True(got.String() == "\x1b[1m$ make\x1b[0m\r\n"+strings.ReplaceAll(text, "\n", "\r\n")+
		"\x1b[1m$ make\x1b[0m\r\n\x1b[0m[exit 2]\r\n")
}

func TestAnExportOfAMomentThatIsNone(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	first := s.Model.Seq()
	chat := s.Chat(t, token, "second")
	for at, want := range map[string]int{"0": http.StatusBadRequest, "x": http.StatusBadRequest,
		"99999": http.StatusBadRequest, "1": http.StatusNotFound} {
		for _, format := range []string{"html", "cast"} {
			status, _ := s.Call(t, token, "GET", "/api/chats/"+chat+"/export/"+format+"?at="+at, nil)
			is.Equal(status, want)
		}
	}
	is.True(first > 0)
}

// stalled is a client that takes nothing until it goes on.
type stalled struct {
	*httptest.ResponseRecorder
	waits chan<- bool
	goOn  <-chan bool
}

func (c stalled) Write(b []byte) (int, error) {
	select {
	case c.waits <- true:
		<-c.goOn
	case <-c.goOn:
	}
	return c.ResponseRecorder.Write(b)
}

func TestAnAccountDownloadsFewExportsAtOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ada := s.User(t, "ada", "user")
	_, admin := s.User(t, "eve", "admin")
	chat := s.Chat(t, ada, "exported")
	export := func(form string) string { return "/api/chats/" + chat + "/export/" + form }
	waits, goOn, ended := make(chan bool), make(chan bool), make(chan bool)
	for _, form := range []string{"jsonl", "html"} {
		go func() {
			r := webtest.Request("GET", export(form), "")
			r.Header.Set("Authorization", ada)
			s.Config.Handler.ServeHTTP(stalled{httptest.NewRecorder(), waits, goOn}, r)
			ended <- true
		}()
		<-waits
	}
	resp, text := s.Get(t, ada, export("cast"))
	is.Equal(resp.StatusCode, http.StatusTooManyRequests)
	is.Equal(resp.Header.Get("Retry-After"), "10")
	expect.Contains(t, text, "Two exports of this account are being downloaded. Wait for one to end.")
	resp, _ = s.Get(t, admin, export("cast"))
	is.Equal(resp.StatusCode, http.StatusOK)
	close(goOn)
	<-ended
	resp, _ = s.Get(t, ada, export("cast"))
	is.Equal(resp.StatusCode, http.StatusOK)
	<-ended
}
