package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
)

// answer is the answer to one request, as a client receives it.
type answer struct {
	status int
	header http.Header
	err    error // error of reading

	deltas    []string // text and reasoning, in order
	text      string
	reasoning string
	calls     []toolCall
	pieces    int // deltas that carried tool arguments
	finish    string
	in, out   int
	body      string // of an error
}

// chat is a request being written.
type chat struct {
	Messages []map[string]any `json:"messages"`
	Tools    []map[string]any `json:"tools,omitempty"`
	Stream   bool             `json:"stream"`
	session  string
}

func (c chat) add(role string, content any) chat {
	c.Messages = append(c.Messages[:len(c.Messages):len(c.Messages)], map[string]any{"role": role, "content": content})
	return c
}

func (c chat) with(tools ...string) chat {
	for _, name := range tools {
		c.Tools = append(c.Tools, map[string]any{"type": "function", "function": map[string]any{"name": name}})
	}
	return c
}

// addAnswer adds an answer and, for each of its calls, the result.
func (c chat) addAnswer(a answer, result string) chat {
	c = c.add("assistant", a.text)
	c.Messages[len(c.Messages)-1]["tool_calls"] = a.calls
	for _, call := range a.calls {
		c = c.add("tool", result)
		c.Messages[len(c.Messages)-1]["tool_call_id"] = call.ID
	}
	return c
}

func user(text any) chat { return chat{Stream: true}.add("user", text) }

func open(t *testing.T, m *Model) *Server {
	t.Helper()
	s, err := Open("127.0.0.1:0", m)
	is.New(t).NoErr(err)
	t.Cleanup(func() { s.Close() })
	return s
}

func (s *Server) send(ctx context.Context, c chat) answer {
	body, _ := json.Marshal(c)
	req, _ := http.NewRequestWithContext(ctx, "POST", s.URL()+"/chat/completions", bytes.NewReader(body))
	req.Header.Set("X-Session-Id", c.session)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer res.Body.Close()
	a := answer{status: res.StatusCode, header: res.Header}
	if res.StatusCode != http.StatusOK {
		data, err := io.ReadAll(res.Body)
		a.body, a.err = string(data), err
		return a
	}
	a.err = a.read(res.Body)
	return a
}

// read reads a stream to its [DONE].
func (a *answer) read(r io.Reader) error {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if data == "[DONE]" {
			return nil
		}
		if ok {
			if err := a.chunk([]byte(data)); err != nil {
				return err
			}
		}
	}
	if lines.Err() != nil {
		return lines.Err()
	}
	return errors.New("stream without an end")
}

func (a *answer) chunk(data []byte) error {
	var c struct {
		Choices []struct {
			Delta  delta  `json:"delta"`
			Finish string `json:"finish_reason"`
		} `json:"choices"`
		Usage struct {
			In  int `json:"prompt_tokens"`
			Out int `json:"completion_tokens"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return err
	}
	a.in, a.out = c.Usage.In, c.Usage.Out
	for _, choice := range c.Choices {
		d := choice.Delta
		a.text, a.reasoning, a.finish = a.text+d.Content, a.reasoning+d.Reasoning, choice.Finish
		if d.Content+d.Reasoning != "" {
			a.deltas = append(a.deltas, d.Content+d.Reasoning)
		}
		for _, call := range d.Calls {
			if call.ID != "" {
				a.calls = append(a.calls, toolCall{ID: call.ID, Type: call.Type, Function: function{Name: call.Function.Name}})
			}
			if call.Function.Arguments != "" {
				a.pieces++
				a.calls[call.Index].Function.Arguments += call.Function.Arguments
			}
		}
	}
	return nil
}

// stuck sends a request and cancels it after a short time. It returns the answer so far.
func (s *Server) stuck(t *testing.T, c chat) answer {
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	return s.send(ctx, c)
}

func TestModelIsListed(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	res, err := http.Get(open(t, &Model{}).URL() + "/models")
	is.NoErr(err)
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	is.NoErr(err)
	expect.Contains(t, string(data), `"id":"demo"`)
}

func TestOnlyLoopbackIsServed(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	for _, addr := range []string{":0", "0.0.0.0:0", "nonsense"} {
		_, err := Open(addr, &Model{})
		is.True(err != nil) // refused
	}
}

func TestUsedPortIsReported(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := open(t, &Model{})
	_, err := Open(s.addr.String(), &Model{})
	is.True(err != nil)
	expect.Contains(t, err.Error(), s.addr.String())
}

func TestUnreadableRequestIsRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	res, err := http.Post(open(t, &Model{}).URL()+"/chat/completions", "application/json",
		strings.NewReader(`{"messages":3}`))
	is.NoErr(err)
	defer res.Body.Close()
	is.Equal(res.StatusCode, http.StatusBadRequest)
}

func TestEmptyConversationIsAnswered(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	a := open(t, &Model{}).send(t.Context(), chat{Stream: true})
	is.NoErr(a.err)
	is.True(a.text != "")
}

func TestCloseEndsARunningAnswer(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := open(t, &Model{})
	body, err := json.Marshal(user("@@say a\n@@hang"))
	is.NoErr(err)
	res, err := http.Post(s.URL()+"/chat/completions", "application/json", bytes.NewReader(body))
	is.NoErr(err) // the answer has begun
	defer res.Body.Close()
	is.NoErr(s.Close())
	_, err = io.ReadAll(res.Body)
	is.True(err != nil)
}
