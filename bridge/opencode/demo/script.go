package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"pocketcoder/events/log/sleep"
)

// step is one answer of the model.
type step struct {
	acts []action

	status    int // an HTTP error instead of the acts, or 0
	message   string
	failFirst int // requests that fail with the two below before the acts are played
	failWith  int
	failText  string
	key       string // identifies the requests of this step, for failFirst

	header   http.Header
	callID   string // of this step's calls; empty gives each its own
	argChunk int    // characters of tool arguments per delta, or 0 for all at once
	in, out  int    // tokens to report; estimated if both are 0
	reason   string // for which the answer ends; empty for the usual one
}

// action is one thing a step does; exactly one of its kinds is set.
type action struct {
	deltas    []string
	reasoning bool          // deltas are reasoning, not text
	delay     time.Duration // between deltas

	tool, args string
	id         string // of the call; empty for a random one
	wait       time.Duration
	hang, cut  bool
}

// Limits of a script, far above any use, so that a typing error cannot occupy the machine.
const (
	maxDeltas = 1_000_000
	maxMillis = 3_600_000
	maxNumber = 1_000_000_000
)

func isScript(text string) bool {
	return strings.HasPrefix(text, "@@") || strings.Contains(text, "\n@@")
}

func say(text string) step { return step{acts: []action{{deltas: []string{text}}}} }

// parse reads a script. Its error has one line for each line that breaks the grammar.
func parse(text string) ([]step, error) {
	steps := []step{{}}
	var errs []error
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimRight(line, " \t\r")
		if !strings.HasPrefix(line, "@@") {
			continue
		}
		if line == "@@next" {
			steps = append(steps, step{})
			continue
		}
		name, rest, _ := strings.Cut(line, " ")
		read, ok := directives[name]
		if !ok {
			errs = append(errs, fmt.Errorf("line %d: %s: unknown directive", i+1, line))
			continue
		}
		if err := read(&steps[len(steps)-1], strings.TrimSpace(rest)); err != nil {
			errs = append(errs, fmt.Errorf("line %d: %s: %w", i+1, line, err))
		}
	}
	return steps, errors.Join(errs...)
}

// directives reads each directive but @@next into the step it stands in.
var directives = map[string]func(s *step, rest string) error{
	"@@text":      func(s *step, rest string) error { return s.readDeltas(rest, "t", false) },
	"@@reason":    func(s *step, rest string) error { return s.readDeltas(rest, "r", true) },
	"@@say":       (*step).readSay,
	"@@call":      (*step).readCall,
	"@@header":    (*step).readHeader,
	"@@failfirst": (*step).readFailFirst,
	"@@status": func(s *step, rest string) (err error) {
		s.status, s.message, err = readStatus(rest)
		return err
	},
	"@@callid": func(s *step, rest string) error {
		if s.callID = rest; rest == "" {
			return errors.New("want an id")
		}
		return nil
	},
	"@@finish": func(s *step, rest string) error {
		if s.reason = rest; rest == "" {
			return errors.New("want a finish reason")
		}
		return nil
	},
	"@@argchunks": func(s *step, rest string) (err error) {
		s.argChunk, err = number(rest, 1, maxNumber)
		return err
	},
	"@@wait": func(s *step, rest string) error {
		ms, err := number(rest, 0, maxMillis)
		s.acts = append(s.acts, action{wait: millis(ms)})
		return err
	},
	"@@usage": func(s *step, rest string) error {
		return pairs(rest, map[string]func(string) error{
			"in":  func(v string) (err error) { s.in, err = number(v, 0, maxNumber); return err },
			"out": func(v string) (err error) { s.out, err = number(v, 0, maxNumber); return err },
		})
	},
	"@@hang": func(s *step, rest string) error {
		s.acts = append(s.acts, action{hang: true})
		return noArguments(rest)
	},
	"@@cut":  func(s *step, rest string) error { s.acts = append(s.acts, action{cut: true}); return noArguments(rest) },
	"@@next": func(_ *step, rest string) error { return noArguments(rest) },
}

func (s *step) readDeltas(rest, prefix string, reasoning bool) error {
	n, delay := 1, 0
	err := pairs(rest, map[string]func(string) error{
		"n":     func(v string) (err error) { n, err = number(v, 1, maxDeltas); return err },
		"delay": func(v string) (err error) { delay, err = number(v, 0, maxMillis); return err },
	})
	a := action{reasoning: reasoning, delay: millis(delay)}
	for i := range n {
		a.deltas = append(a.deltas, prefix+strconv.Itoa(i)+" ")
	}
	s.acts = append(s.acts, a)
	return err
}

func (s *step) readSay(words string) error {
	if words == "" {
		return errors.New("words are missing")
	}
	s.acts = append(s.acts, action{deltas: []string{words}})
	return nil
}

func (s *step) readCall(rest string) error {
	tool, args, _ := strings.Cut(rest, " ")
	args = strings.TrimSpace(args)
	var object map[string]any
	if tool == "" || args == "" {
		return errors.New("want a tool and its arguments as a JSON object")
	}
	if err := json.Unmarshal([]byte(args), &object); err != nil || object == nil {
		return errors.Join(errors.New("the arguments are not a JSON object"), err)
	}
	s.acts = append(s.acts, action{tool: tool, args: args, id: s.callID})
	return nil
}

var headerName = regexp.MustCompile(`^[A-Za-z0-9-]+$`)

func (s *step) readHeader(rest string) error {
	name, value, ok := strings.Cut(rest, ":")
	if !ok || !headerName.MatchString(name) {
		return errors.New("want a header as Name: value")
	}
	if s.header == nil {
		s.header = http.Header{}
	}
	s.header.Add(name, strings.TrimSpace(value))
	return nil
}

func (s *step) readFailFirst(rest string) (err error) {
	count, rest, _ := strings.Cut(rest, " ")
	if s.failFirst, err = number(count, 1, maxNumber); err != nil {
		return err
	}
	s.failWith, s.failText, err = readStatus(strings.TrimSpace(rest))
	return err
}

func readStatus(rest string) (int, string, error) {
	code, message, _ := strings.Cut(rest, " ")
	status, err := number(code, 400, 599)
	if message = strings.TrimSpace(message); message == "" {
		message = http.StatusText(status)
	}
	return status, message, err
}

// pairs reads words of the form key=value.
func pairs(rest string, read map[string]func(string) error) error {
	for _, word := range strings.Fields(rest) {
		key, value, _ := strings.Cut(word, "=")
		if read[key] == nil {
			return fmt.Errorf("%q is not known here", word)
		}
		if err := read[key](value); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return nil
}

func number(s string, least, most int) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < least || n > most {
		return least, fmt.Errorf("%q is not a number from %d to %d", s, least, most)
	}
	return n, nil
}

func noArguments(rest string) error {
	if rest != "" {
		return fmt.Errorf("%q is too much", rest)
	}
	return nil
}

func millis(n int) time.Duration { return time.Duration(n) * time.Millisecond }

var errCut = errors.New("connection cut by script")

// failures counts the requests of @@failfirst steps.
type failures struct {
	mu    sync.Mutex
	tries map[string]int
}

// try counts one request of the step with this key and returns how many there have been.
func (f *failures) try(key string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tries == nil {
		f.tries = map[string]int{}
	}
	f.tries[key]++
	return f.tries[key]
}

// play answers with s. It returns errCut when the script cuts the connection, and ctx's error when the client
// disconnects.
func (m *Model) play(ctx context.Context, r *reply, s step) error {
	r.setHeader(s.header)
	if s.failFirst > 0 && m.failures.try(s.key) <= s.failFirst {
		return r.fail(s.failWith, s.failText)
	}
	for _, a := range s.acts {
		if s.status != 0 && a.wait == 0 {
			continue // an error sends nothing else, but may be slow
		}
		if err := a.play(ctx, r, s.argChunk); err != nil {
			return err
		}
	}
	if s.status != 0 {
		return r.fail(s.status, s.message)
	}
	return r.finish(s.reason, s.in, s.out)
}

func (a action) play(ctx context.Context, r *reply, argChunk int) error {
	switch {
	case a.cut:
		return errCut
	case a.hang:
		<-ctx.Done()
		return ctx.Err()
	case a.tool != "":
		return r.call(a, argChunk)
	case a.wait > 0:
		return sleep.For(ctx, a.wait)
	}
	for i, delta := range a.deltas {
		if i > 0 {
			if err := sleep.For(ctx, a.delay); err != nil {
				return err
			}
		}
		if err := r.text(delta, a.reasoning); err != nil {
			return err
		}
	}
	return nil
}
