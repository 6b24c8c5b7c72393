package turnstate

import (
	"testing"

	"github.com/matryer/is"
)

func TestEndingOfATurn(t *testing.T) {
	t.Parallel()
	said := Step{Outcome: Completed, Finish: "stop", HasText: true, IsWhole: true}
	with := func(change func(*Step)) Step { s := said; change(&s); return s }
	for name, c := range map[string]struct {
		last Step
		turn string // state
		step Ending // of the step alone
		want Ending // of the turn
	}{
		"an answer":                   {said, Completed, EndComplete, EndComplete},
		"while it runs":               {with(func(s *Step) { s.Outcome = "" }), Running, "", ""},
		"before it begins":            {Step{}, "", "", ""},
		"the limit of output":         {with(func(s *Step) { s.Finish = "length" }), Completed, EndCut, EndCut},
		"cut, without a text":         {with(func(s *Step) { s.Finish, s.HasText = "length", false }), Completed, EndCut, EndCut},
		"the limit, as an error":      {Step{Outcome: Failed, Error: "MessageOutputLengthError"}, Failed, EndCut, EndCut},
		"nothing":                     {with(func(s *Step) { s.HasText = false }), Completed, EndEmpty, EndEmpty},
		"the text is not stored yet":  {with(func(s *Step) { s.HasText, s.IsWhole = false, false }), Completed, EndComplete, EndComplete},
		"a filter":                    {Step{Outcome: Failed, Finish: "content-filter", Error: "ContentFilterError"}, Failed, EndFiltered, EndFiltered},
		"a filter, without an error":  {with(func(s *Step) { s.Finish = "content-filter" }), Completed, EndFiltered, EndFiltered},
		"the stream broke off":        {with(func(s *Step) { s.Finish = "unknown" }), Completed, "", EndLost},
		"the stream had no end":       {with(func(s *Step) { s.Finish = "" }), Completed, "", EndLost},
		"the provider failed":         {with(func(s *Step) { s.Finish = "error" }), Completed, EndLost, EndLost},
		"between two steps":           {Step{Outcome: Completed, Finish: "tool-calls", HasCall: true}, Running, "", ""},
		"after a call":                {Step{Outcome: Completed, Finish: "tool-calls", HasCall: true}, Completed, "", EndLost},
		"stopped after a call":        {Step{Outcome: Completed, Finish: "tool-calls", IsStopped: true}, Completed, "", EndStopped},
		"a denial":                    {Step{Outcome: Completed, Finish: "tool-calls", IsDenied: true}, Completed, EndDenied, EndDenied},
		"rejected in OpenCode":        {Step{Outcome: Completed, Finish: "tool-calls", HasCall: true, IsRejected: true}, Completed, "", EndDenied},
		"stopped":                     {Step{Outcome: Aborted}, Aborted, EndStopped, EndStopped},
		"an error":                    {Step{Outcome: Failed, Error: "APIError"}, Failed, EndFailed, EndFailed},
		"OpenCode went away":          {Step{Outcome: Failed, Infrastructure: true, Error: "TurnLost"}, Lost, EndLost, EndLost},
		"an error without an answer":  {Step{}, Failed, "", EndFailed},
		"a compaction":                {with(func(s *Step) { s.Agent = "compaction" }), Completed, "", EndComplete},
		"a command without the model": {Step{Outcome: Completed, HasCall: true}, Completed, "", EndComplete},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			is.Equal(c.last.Ending(), c.step)
			is.Equal(endingOf(c.turn, c.last), c.want)
		})
	}
}
