package turnstate

import "pocketcoder/events/opencode"

// Ending is how a turn ended, or a step of it that ends the turn. It is empty while the turn goes on.
type Ending string

const (
	EndComplete Ending = "complete"
	EndCut      Ending = "cut"      // the model reached its limit of output
	EndEmpty    Ending = "empty"    // the last step has neither text nor a call
	EndFiltered Ending = "filtered" // the provider blocked the answer
	EndLost     Ending = "lost"     // the stream of the provider, or OpenCode, ended before the answer did
	EndStopped  Ending = "stopped"
	EndDenied   Ending = "denied" // a request was denied without a reason, or a question was dismissed
	EndFailed   Ending = "failed"
)

// Step is an assistant message, as far as the end of a turn depends on it. The zero Step is no message.
type Step struct {
	Outcome        string // completed, failed, aborted; empty while it is written
	Infrastructure bool   // the error is not the provider's
	Error          string // its name; empty for none
	Finish         string // OpenCode's finish reason; empty if the stream had none
	Agent          string // OpenCode's
	HasText        bool   // other than blanks
	HasCall        bool
	IsWhole        bool // its last part is stored; the end of a message can be reported before its text
	IsDenied       bool // a request of one of its calls was denied
	IsRejected     bool // such a request was rejected, maybe with a reason: then another step follows
	IsStopped      bool // a stop was requested after it began
}

// End returns the state and the ending of a turn by its last step, and by the state in which OpenCode left it. The
// ending is "" if the turn is not over. A turn is completed only with a complete answer: one whose stream broke off has
// failed.
func End(left string, last Step) (state string, ending Ending) {
	switch ending = endingOf(left, last); ending {
	case "":
		return left, ""
	case EndComplete:
		return Completed, ending
	case EndStopped:
		return Aborted, ending
	case EndLost:
		if left == Lost {
			return Lost, ending
		}
	}
	return Failed, ending
}

// endingOf returns how a turn ended by its state and its last step. It returns "" if the turn is not over.
func endingOf(state string, last Step) Ending {
	ending := last.Ending()
	switch {
	case state != Completed && state != Failed && state != Aborted && state != Lost:
		return ""
	case state == Aborted:
		return EndStopped
	case state == Lost:
		return EndLost
	case state == Failed && ending != EndFiltered && ending != EndCut:
		return EndFailed
	case ending != "":
		return ending
	case last.IsStopped:
		return EndStopped
	case last.Outcome == "", last.Agent == opencode.AgentCompaction,
		last.Finish == "" && last.HasCall: // a command that a person ran in OpenCode
		return EndComplete
	case last.IsRejected:
		return EndDenied
	}
	return EndLost
}

// Ending returns how the turn ends with this step. It returns "" if the step is not over, or if OpenCode begins another
// step after it.
func (s Step) Ending() Ending {
	switch {
	case s.Outcome == "":
		return ""
	case s.Outcome == Aborted:
		return EndStopped
	case s.Finish == "content-filter", s.Error == "ContentFilterError":
		return EndFiltered
	case s.Error == "MessageOutputLengthError":
		return EndCut
	case s.Outcome == Failed && !s.Infrastructure:
		return EndFailed
	case s.IsDenied:
		return EndDenied
	case s.Outcome == Failed, s.Finish == "error":
		return EndLost
	case s.Agent == opencode.AgentCompaction, s.HasCall, s.Finish == "", s.Finish == "tool-calls", s.Finish == "unknown":
		return ""
	case s.Finish == "length":
		return EndCut
	case s.IsWhole && !s.HasText:
		return EndEmpty
	}
	return EndComplete
}

// CanContinue reports whether the model can go on from where the answer ended.
func (e Ending) CanContinue() bool { return e == EndCut || e == EndEmpty || e == EndLost }

// Sentence says what happened. It is empty for a complete answer.
func (e Ending) Sentence() string {
	return map[Ending]string{
		EndCut:      "The answer was cut: the model reached its limit of output.",
		EndEmpty:    "The model ended its turn without an answer.",
		EndFiltered: "The provider's content filter blocked the answer.",
		EndLost:     "The turn was lost: OpenCode or the answer of the model ended in the middle of it.",
		EndStopped:  "The turn was stopped.",
		EndDenied:   "The turn stopped because a request was denied or a question was dismissed.",
		EndFailed:   "The turn ended with an error.",
	}[e]
}
