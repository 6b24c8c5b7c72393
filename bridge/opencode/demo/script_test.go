package demo

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
)

func TestTextAndReasoningComeInDeltas(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	a := open(t, &Model{}).send(t.Context(), user("ignored\n@@reason n=2 delay=1\n@@text n=3 delay=1\nignored\n@@say some words"))
	is.NoErr(a.err)
	is.Equal(a.deltas, []string{"r0 ", "r1 ", "t0 ", "t1 ", "t2 ", "some words"})
	is.Equal(a.reasoning, "r0 r1 ")
	is.Equal(a.text, "t0 t1 t2 some words")
	is.Equal(a.finish, "stop")
}

func TestDelayComesBetweenDeltas(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	a := open(t, &Model{}).stuck(t, user("@@text n=2 delay=3600000"))
	is.Equal(a.deltas, []string{"t0 "})
	is.True(errors.Is(a.err, context.DeadlineExceeded))
}

func TestWaitDelaysTheRestOfTheStep(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := open(t, &Model{})
	a := s.stuck(t, user("@@say a\n@@wait 3600000\n@@say b"))
	is.Equal(a.deltas, []string{"a"})
	is.True(errors.Is(a.err, context.DeadlineExceeded))
	is.Equal(s.send(t.Context(), user("@@say a\n@@wait 1\n@@say b")).text, "ab")
	is.True(errors.Is(s.stuck(t, user("@@wait 3600000\n@@status 500")).err, context.DeadlineExceeded)) // a slow error
}

func TestParallelCallsKeepTheirArgumentsByteForByte(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	one, two := `{"command":"echo  <a> && 'b'",  "n":1.0}`, `{"pattern":"é\n"}`
	a := open(t, &Model{}).send(t.Context(), user("@@say x\n@@call bash "+one+"\n@@call glob "+two+"\n@@next\n@@say y"))
	is.NoErr(a.err)
	is.Equal(len(a.calls), 2)
	is.Equal(a.calls[0].Function, function{"bash", one})
	is.Equal(a.calls[1].Function, function{"glob", two})
	is.Equal(a.pieces, 2)
}

func TestArgumentsComeInChunksOfCharacters(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	args := `{"a":"ééééé"}` // 13 characters
	a := open(t, &Model{}).send(t.Context(), user("@@argchunks 4\n@@call write "+args))
	is.NoErr(a.err)
	is.Equal(a.pieces, 4)
	is.Equal(a.calls[0].Function.Arguments, args)
}

func TestCallIDsAreNeverRepeated(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	seen := map[string]bool{}
	for range 3 { // restarts
		s := open(t, &Model{})
		for range 5 { // requests
			for _, call := range s.send(t.Context(), user("@@call a {}\n@@call a {}")).calls {
				is.True(!seen[call.ID])
				seen[call.ID] = true
			}
		}
	}
	is.Equal(len(seen), 30)
}

func TestStepFollowsTheAssistantMessages(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := open(t, &Model{})
	c := user("hello").add("assistant", "hi").add("user", "@@call bash {}\n@@next\n@@say second\n@@next\n@@say third")
	a := s.send(t.Context(), c)
	is.Equal(len(a.calls), 1)
	c = c.addAnswer(a, "ok")
	a = s.send(t.Context(), c)
	is.Equal(a.text, "second")
	c = c.addAnswer(a, "")
	a = s.send(t.Context(), c)
	is.Equal(a.text, "third")
	is.Equal(s.send(t.Context(), c.addAnswer(a, "")).text, "The script has no more steps.")
}

func TestInterruptedCallsOfAScriptAreMadeAgain(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := open(t, &Model{Continue: []string{resume}})
	c := user("@@call bash {\"command\":\"a\"}\n@@call bash {\"command\":\"b\"}\n@@call question {}\n@@next\n@@say done")
	first := s.send(t.Context(), c)
	is.Equal(len(first.calls), 3)
	c = c.addAnswer(first, "[Tool execution was interrupted]")
	c.Messages[len(c.Messages)-3]["content"] = "a ran"
	for range 2 { // it is interrupted twice
		c = c.add("user", resume)
		repeated := s.send(t.Context(), c)
		is.Equal(len(repeated.calls), 1)
		is.Equal(repeated.calls[0].Function, first.calls[1].Function) // byte for byte
		is.Equal(repeated.text, "")
		c = c.addAnswer(repeated, "Tool execution aborted")
	}
	c.Messages[len(c.Messages)-1]["content"] = "b ran"
	is.Equal(s.send(t.Context(), c).text, "done")
}

func TestStatusAndHeaders(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := open(t, &Model{})
	a := s.send(t.Context(), user("@@header Retry-After: 7\n@@status 429 slow down please"))
	is.Equal(a.status, 429)
	is.Equal(a.header.Get("Retry-After"), "7")
	expect.Contains(t, a.body, `"slow down please"`)
	expect.Contains(t, s.send(t.Context(), user("@@status 401")).body, http.StatusText(http.StatusUnauthorized))
	a = s.send(t.Context(), user("@@header X-Mark: a: b\n@@say fine"))
	is.Equal(a.header.Get("X-Mark"), "a: b")
	is.Equal(a.text, "fine")
}

func TestFirstRequestsOfAStepFailThenItPlays(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := open(t, &Model{})
	c := user("@@say a\n@@next\n@@failfirst 2 503 not yet\n@@say b")
	is.Equal(s.send(t.Context(), c).text, "a") // step 0 has no failures
	c = c.add("assistant", "a")
	var got []int
	for range 4 {
		got = append(got, s.send(t.Context(), c).status)
	}
	is.Equal(got, []int{503, 503, 200, 200})
	c.session = "another"
	a := s.send(t.Context(), c)
	is.Equal(a.status, 503) // each session counts for itself
	expect.Contains(t, a.body, "not yet")
}

func TestHangSendsNothingMore(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := open(t, &Model{})
	a := s.stuck(t, user("@@say a\n@@hang\n@@say b"))
	is.Equal(a.deltas, []string{"a"})
	is.True(errors.Is(a.err, context.DeadlineExceeded))
	is.Equal(s.stuck(t, user("@@hang")).status, 0) // not even a header
}

func TestCutEndsTheConnectionMidStream(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := open(t, &Model{})
	a := s.send(t.Context(), user("@@text n=2\n@@cut"))
	is.Equal(a.deltas, []string{"t0 ", "t1 "})
	is.True(errors.Is(a.err, io.ErrUnexpectedEOF))
	is.True(s.send(t.Context(), user("@@cut")).err != nil)
}

func TestUsageIsReported(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := open(t, &Model{})
	a := s.send(t.Context(), user("@@usage in=100 out=20\n@@say x"))
	is.Equal([]int{a.in, a.out}, []int{100, 20})
	a = s.send(t.Context(), user("@@say four"))
	is.True(a.in > 0)
	is.Equal(a.out, 1)
}

func TestInvalidLineIsReportedInTheAnswer(t *testing.T) {
	t.Parallel()
	s := open(t, &Model{})
	for line, want := range map[string]string{
		"@@sing":                     "unknown directive",
		"@@":                         "unknown directive",
		"@@next now":                 `"now" is too much`,
		"@@text n=many":              `n: "many" is not a number from 1 to 1000000`,
		"@@text count=3":             `"count=3" is not known here`,
		"@@reason delay=-1":          "delay:",
		"@@say":                      "words are missing",
		"@@call bash":                "want a tool",
		"@@call bash [1]":            "not a JSON object",
		`@@call bash {"a":`:          "not a JSON object",
		"@@call bash null":           "not a JSON object",
		"@@callid":                   "want an id",
		"@@argchunks 0":              "not a number",
		"@@wait":                     "not a number",
		"@@wait 99999999":            "not a number",
		"@@status 200 fine":          "from 400 to 599",
		"@@failfirst x 500":          "not a number",
		"@@failfirst 2":              "from 400 to 599",
		"@@header no colon":          "Name: value",
		"@@header Bad Name: x":       "Name: value",
		"@@hang 5":                   "too much",
		"@@cut 5":                    "too much",
		"@@usage total=5":            "not known here",
		"@@usage in=1 out=a lot":     "out:",
		"@@say ok\n@@saying nothing": "unknown directive",
	} {
		t.Run(line, func(t *testing.T) {
			is := is.New(t)
			a := s.send(t.Context(), user("an ignored line\n"+line))
			is.NoErr(a.err)
			is.Equal(a.status, 200)
			broken := line[strings.LastIndex(line, "\n")+1:]
			expect.Contains(t, a.text, broken) // the line itself
			expect.Contains(t, a.text, want)   // and what is wrong
			is.True(strings.Contains(a.text, "line 2:") || strings.Contains(a.text, "line 3:"))
		})
	}
}

func TestWholeAnswerHasTheSameContent(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := open(t, &Model{})
	body := `{"model":"m","messages":[{"role":"user","content":"@@reason n=1\n@@say hello\n@@call bash {\"a\":1}\n@@usage in=3 out=4"}]}`
	res, err := http.Post(s.URL()+"/chat/completions", "application/json", strings.NewReader(body))
	is.NoErr(err)
	defer res.Body.Close()
	var got struct {
		Model   string `json:"model"`
		Choices []struct {
			Message delta  `json:"message"`
			Finish  string `json:"finish_reason"`
		} `json:"choices"`
		Usage map[string]int `json:"usage"`
	}
	is.NoErr(json.NewDecoder(res.Body).Decode(&got))
	is.Equal(got.Model, "m")
	m := got.Choices[0].Message
	is.Equal([]string{m.Role, m.Content, m.Reasoning, m.Calls[0].Function.Arguments},
		[]string{"assistant", "hello", "r0 ", `{"a":1}`})
	is.Equal(got.Choices[0].Finish, "tool_calls")
	is.Equal(got.Usage["total_tokens"], 7)
}

func TestSubagentHasItsOwnScript(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := open(t, &Model{})
	child := "@@call bash {}\n@@next\n@@say child done"
	args, err := json.Marshal(map[string]string{"description": "d", "prompt": child, "subagent_type": "general"})
	is.NoErr(err)
	a := s.send(t.Context(), user("@@call task "+string(args)+"\n@@next\n@@say parent done"))
	var got map[string]string
	is.NoErr(json.Unmarshal([]byte(a.calls[0].Function.Arguments), &got))
	is.Equal(got["prompt"], child)
	c := user(got["prompt"])
	a = s.send(t.Context(), c)
	is.Equal(a.calls[0].Function.Name, "bash")
	is.Equal(s.send(t.Context(), c.addAnswer(a, "ok")).text, "child done")
}

func TestGrammarIsDocumented(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	source, err := os.ReadFile("demo.go")
	is.NoErr(err)
	for name := range directives {
		expect.Contains(t, string(source), "//	"+name) // in the package comment
	}
}
