package projections_test

import (
	"fmt"
	"testing"

	"github.com/matryer/is"
	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/projections"
	"pocketcoder/projections/timeline"
	"pocketcoder/projections/turnstate"
)

// partIn is a part of an assistant message: more is further JSON of it.
func (s *eventBuilder) partIn(session, message, id, typ, more string) events.Event {
	return s.opencode(true, "message.part.updated", fmt.Sprintf(
		`{"sessionID":%q,"part":{"id":%q,"messageID":%q,"type":%q%s}}`, session, id, message, typ, more))
}

// step is an assistant message that ends for a reason with a text, empty for none.
func (s *eventBuilder) step(message, parent, finish, text string) []events.Event {
	return s.stepIn(ses, message, parent, finish, text)
}

func (s *eventBuilder) stepIn(session, message, parent, finish, text string) []events.Event {
	all := []events.Event{s.assistant(session, message, parent, `,"time":{"created":1}`)}
	if text != "" {
		all = append(all, s.partIn(session, message, "prt_"+message+"_1", "text", fmt.Sprintf(`,"text":%q`, text)))
	}
	return append(all, s.partIn(session, message, "prt_"+message+"_2", "step-finish", ""),
		s.assistant(session, message, parent, fmt.Sprintf(`,"time":{"created":1,"completed":2},"finish":%q`, finish)))
}

// endings are how a last step can end, with the ending of the step and of the turn.
var endings = map[string]struct {
	finish, text string
	step, turn   turnstate.Ending
}{
	"complete":    {"stop", "all of it", turnstate.EndComplete, turnstate.EndComplete},
	"cut":         {"length", "half of", turnstate.EndCut, turnstate.EndCut},
	"empty":       {"stop", "", turnstate.EndEmpty, turnstate.EndEmpty},
	"blank":       {"stop", " \n\t", turnstate.EndEmpty, turnstate.EndEmpty},
	"broken off":  {"unknown", "", "", turnstate.EndLost},
	"with a call": {"tool-calls", "I look", "", turnstate.EndLost},
}

func TestMessagesAndTurnsSayHowTheyEnded(t *testing.T) {
	t.Parallel()
	for name, c := range endings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			m, s := still(t), &eventBuilder{t: t}
			feed(t, m, s.begun()...)
			feed(t, m, s.status(ses, "busy"))
			feed(t, m, s.step("msg_a", msg1, "tool-calls", "an earlier text")...)
			feed(t, m, s.step("msg_b", msg1, c.finish, c.text)...)
			turn, _, err := m.LastTurn(t.Context(), chatID)
			is.NoErr(err)
			is.Equal(turn.Ending, turnstate.Ending(""))
			feed(t, m, s.status(ses, "idle"))
			all := shown(t, m)
			is.Equal([]turnstate.Ending{all[0].Ending, all[1].Ending, all[2].Ending}, []turnstate.Ending{"", "", c.step})
			turn, _, err = m.LastTurn(t.Context(), chatID)
			is.NoErr(err)
			is.Equal(turn.Ending, c.turn)
			is.Equal(turn.Answer, c.text)
		})
	}
}

func TestATurnWithoutAnAnswerHasNoneOfAnEarlierTurn(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	feed(t, m, s.begun()...)
	feed(t, m, s.step("msg_0011", msg1, "length", "the first answer")...)
	feed(t, m, s.submitted("m2"), s.sending("m2", msg2), s.delivered("m2", msg2), s.failed(ses, "UnknownError"))
	turn, _, err := m.LastTurn(t.Context(), chatID)
	is.NoErr(err)
	is.Equal([]string{string(turn.Ending), turn.Answer}, []string{"failed", ""})
}

func TestDelegatesEndAsTheirLastStep(t *testing.T) {
	t.Parallel()
	for name, c := range endings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			m, s := still(t), &eventBuilder{t: t}
			feed(t, m, s.delegated()...)
			feed(t, m, s.status(ses, "busy"))
			feed(t, m, s.step("msg_b", msg1, c.finish, c.text)...)
			feed(t, m, s.status(ses, "idle"))
			all, err := m.EndedDelegateTurns(t.Context())
			is.NoErr(err)
			is.Equal(all[0].Ending, c.turn)
		})
	}
}

func TestRunsOfSchedulesEndAsTheirLastStep(t *testing.T) {
	t.Parallel()
	for name, c := range endings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			m, s := still(t), &eventBuilder{t: t}
			fired, err := events.NewConfig(projections.ScheduleCollection, "s1", events.ActorSystem,
				events.ScheduleFired{Chat: chatID, Message: "m1"})
			is.NoErr(err)
			feed(t, m, s.created(), fired, s.own(events.MessageSubmitted{Message: "m1", Schedule: "s1"}),
				s.own(events.SessionBound{Session: ses, Directory: directed}), s.sending("m1", msg1), s.delivered("m1", msg1),
				s.status(ses, "busy"))
			feed(t, m, s.step("msg_b", msg1, c.finish, c.text)...)
			feed(t, m, s.status(ses, "idle"))
			runs, err := m.ScheduleRuns(t.Context(), "s1", 10)
			is.NoErr(err)
			want := turnstate.Failed
			if c.turn == turnstate.EndComplete {
				want = turnstate.Completed
			}
			is.Equal([]string{runs[0].State, runs[0].Reason}, []string{want, c.turn.Sentence()})
			feed(t, m, s.submitted("m2"), s.sending("m2", msg2), s.status(ses, "busy"))
			feed(t, m, s.step("msg_c", msg2, "stop", "another turn")...)
			runs, err = m.ScheduleRuns(t.Context(), "s1", 10)
			is.NoErr(err)
			is.Equal(runs[0].State, want)
		})
	}
}

func TestSubagentsEndAsTheirLastStep(t *testing.T) {
	t.Parallel()
	for name, c := range endings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			m, s := still(t), &eventBuilder{t: t}
			feed(t, m, s.created(), s.child(), s.status(child, "busy"))
			feed(t, m, s.stepIn(child, "msg_a", "msg_p", "tool-calls", "an earlier text")...)
			feed(t, m, s.stepIn(child, "msg_b", "msg_p", c.finish, c.text)...)
			feed(t, m, s.status(child, "idle"))
			want := "failed"
			if c.turn == turnstate.EndComplete {
				want = "completed"
			}
			all, err := m.Subagents(t.Context(), chatID)
			is.NoErr(err)
			is.Equal(all[0].Status, want)
			is.NoErr(m.View(t.Context(), func(db dbx.Builder, _ uint64) error {
				tree, err := timeline.Subagents(t.Context(), db, chatID)
				is.NoErr(err)
				is.Equal(tree[0].Status, want)
				return nil
			}))
		})
	}
}

func TestNewsCountTurnsAsTheirLastStep(t *testing.T) {
	t.Parallel()
	for name, c := range endings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			m, s := still(t), &eventBuilder{t: t}
			counts := func() (counts [3]int64) { // turns that ended, failed and were stopped
				is.NoErr(m.View(t.Context(), func(db dbx.Builder, _ uint64) error {
					n, err := timeline.NewsOf(t.Context(), db, []string{chatID}, 0)
					counts = [3]int64{n.Ended, n.Failed, n.Stopped}
					return err
				}))
				return counts
			}
			feed(t, m, s.begun()...)
			feed(t, m, s.status(ses, "busy"))
			feed(t, m, s.step("msg_a", msg1, "tool-calls", "an earlier text")...)
			is.Equal(counts(), [3]int64{})
			feed(t, m, s.step("msg_b", msg1, c.finish, c.text)...)
			feed(t, m, s.status(ses, "idle"))
			want := [3]int64{0, 1, 0}
			if c.turn == turnstate.EndComplete {
				want = [3]int64{1, 0, 0}
			}
			is.Equal(counts(), want)
		})
	}
}
