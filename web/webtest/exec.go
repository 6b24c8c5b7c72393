package webtest

import (
	"math/rand/v2"
	"testing"

	"pocketcoder/events"
)

func OutputOf(exec string) string { return "/api/executions/" + exec + "/output" }

// AppendExecution appends an execution of a chat, and its end when there is one.
func (s *System) AppendExecution(t testing.TB, chat, exec string, end *events.ExecFinished) {
	t.Helper()
	s.Append(t, chat, events.ExecRequested{Exec: exec, Session: "ses_1", Call: exec, Command: "make", Cwd: "/"})
	if end != nil {
		end.Exec = exec
		s.Append(t, chat, *end)
	}
}

// Noise returns n bytes of different values.
func Noise(n int) []byte {
	b, random := make([]byte, n), rand.New(rand.NewPCG(7, 7))
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return b
}
