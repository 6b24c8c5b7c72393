package projections_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"
	"github.com/pocketbase/dbx"
	"pgregory.net/rapid"

	"pocketcoder/events"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

// asksQuestions asks the two questions of questions, under an id and by a call of their own.
func (s *eventBuilder) asksQuestions(id, call string) events.Event {
	e := s.questions()
	e.Data = []byte(strings.NewReplacer("que_1", id, "call_1", call).Replace(string(e.Data)))
	return e
}

func (s *eventBuilder) answers(id string, index int, answer string) events.Event {
	return s.own(events.QuestionAnswered{Question: id, Index: index, Answers: []string{answer}})
}

func (s *eventBuilder) interrupts(id string) events.Event {
	return s.own(events.QuestionInterrupted{Question: id})
}

// questionFate is what became of questions asked together, and whether a reply to them is due.
func questionFate(t testing.TB, m *projections.Model, id string) string {
	t.Helper()
	group, err := m.QuestionsOf(t.Context(), id)
	if err != nil || len(group) == 0 {
		t.Fatal("no questions", id, err)
	}
	due, err := m.AnsweredQuestions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, q := range group {
		all = append(all, fmt.Sprintf("%s %s interrupted=%t %s", q.Status, q.Reply, q.Interrupted, q.Reason))
	}
	n := 0
	for _, q := range due {
		if q.EngineQuestion == id {
			n++
		}
	}
	return fmt.Sprintf("%s; due=%d", strings.Join(all, "; "), n)
}

func TestInterruptedQuestionsAreAnsweredByAPrompt(t *testing.T) {
	t.Parallel()
	s := &eventBuilder{t: t}
	resumed := s.own(events.MessageSubmitted{Message: "m9", Resumes: "que_1",
		Parts: []events.Part{{Type: "text", Text: "here"}}})
	red, so, interrupted := s.answers("que_1", 0, "Red"), s.answers("que_1", 1, "so"), s.interrupts("que_1")
	rejected := s.own(events.QuestionAnswered{Question: "que_1", Index: 1, Rejected: true})
	expired := s.own(events.QuestionExpired{Question: "que_1", Reason: "asked again as que_2"})
	engineRejected := s.opencode(false, "question.rejected", fmt.Sprintf(`{"sessionID":%q,"requestID":"que_1"}`, ses))
	for name, test := range map[string]struct {
		events []events.Event
		want   string
	}{
		"asked":                     {nil, "asked [] interrupted=false ; asked [] interrupted=false ; due=0"},
		"interrupted":               {[]events.Event{interrupted}, "asked [] interrupted=true ; asked [] interrupted=true ; due=0"},
		"half answered":             {[]events.Event{red, interrupted}, `replied ["Red"] interrupted=true ; asked [] interrupted=true ; due=0`},
		"answered before and after": {[]events.Event{red, interrupted, so}, `replied ["Red"] interrupted=true ; replied ["so"] interrupted=true ; due=2`},
		"answered, then forgotten":  {[]events.Event{red, so, interrupted}, `replied ["Red"] interrupted=true ; replied ["so"] interrupted=true ; due=2`},
		"twice":                     {[]events.Event{interrupted, red, interrupted, so}, `replied ["Red"] interrupted=true ; replied ["so"] interrupted=true ; due=2`},
		"resumed":                   {[]events.Event{interrupted, red, so, resumed}, `replied ["Red"] interrupted=true ; replied ["so"] interrupted=true ; due=0`},
		"late to expire":            {[]events.Event{interrupted, red, so, resumed, expired}, `replied ["Red"] interrupted=true ; replied ["so"] interrupted=true ; due=0`},
		"rejected after":            {[]events.Event{interrupted, red, rejected}, `replied ["Red"] interrupted=true ; rejected [] interrupted=true ; due=0`},
		"rejected before":           {[]events.Event{red, rejected, interrupted}, `replied ["Red"] interrupted=true ; rejected [] interrupted=true ; due=0`},
		"expired":                   {[]events.Event{interrupted, red, expired}, `expired ["Red"] interrupted=true asked again as que_2; expired [] interrupted=true asked again as que_2; due=0`},
		"OpenCode is told":          {[]events.Event{expired, engineRejected}, "expired [] interrupted=false asked again as que_2; expired [] interrupted=false asked again as que_2; due=0"},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			m := still(t)
			feed(t, m, s.created(), s.questions())
			feed(t, m, test.events...)
			is.Equal(questionFate(t, m, "que_1"), test.want)
		})
	}
}

func TestQuestionsThatNeedNoAnswerAnyMoreAreFound(t *testing.T) {
	t.Parallel()
	s := &eventBuilder{t: t}
	tool := func(state string) events.Event {
		return s.opencode(true, "message.part.updated", fmt.Sprintf(
			`{"sessionID":%q,"part":{"id":"prt_q","messageID":"msg_a","sessionID":%q,"type":"tool","tool":"question","callID":"call_1","state":%s}}`, ses, ses, state))
	}
	aborted := `{"status":"error","error":"Tool execution aborted","metadata":{"interrupted":true}}`
	other := s.asksQuestions("que_2", "call_2")
	other.Data = []byte(strings.Replace(string(other.Data), "cold", "colder", 1))
	for name, test := range map[string]struct {
		events []events.Event
		want   string
	}{
		"waits":                   {[]events.Event{tool(`{"status":"running","input":{}}`)}, ""},
		"asked twice":             {[]events.Event{s.asksQuestions("que_2", "call_2")}, ""},
		"asked again":             {[]events.Event{s.interrupts("que_1"), s.asksQuestions("que_2", "call_2")}, "que_1: asked again as que_2"},
		"asked again, twice":      {[]events.Event{s.interrupts("que_1"), s.asksQuestions("que_2", "call_2"), s.interrupts("que_2"), s.asksQuestions("que_3", "call_3")}, "que_1: asked again as que_3|que_2: asked again as que_3"},
		"both forgotten":          {[]events.Event{s.asksQuestions("que_2", "call_2"), s.interrupts("que_1"), s.interrupts("que_2")}, ""},
		"another asked":           {[]events.Event{s.interrupts("que_1"), other}, ""},
		"answered before":         {[]events.Event{s.interrupts("que_1"), s.answers("que_1", 0, "a"), s.answers("que_1", 1, "b"), s.asksQuestions("que_2", "call_2")}, ""},
		"aborted":                 {[]events.Event{tool(aborted)}, "que_1: the turn was aborted"},
		"another call is over":    {[]events.Event{s.asksQuestions("que_2", "call_2"), tool(aborted)}, "que_1: the turn was aborted"},
		"stopped with OpenCode":   {[]events.Event{s.interrupts("que_1"), tool(aborted)}, ""},
		"the chat was deleted":    {[]events.Event{s.interrupts("que_1"), s.own(events.Deleted{})}, "que_1: the chat was deleted"},
		"the session was deleted": {[]events.Event{s.interrupts("que_1"), s.opencode(true, "session.deleted", fmt.Sprintf(`{"sessionID":%q}`, ses))}, "que_1: its session was deleted"},
		"expired":                 {[]events.Event{tool(aborted), s.own(events.QuestionExpired{Question: "que_1", Reason: "so"})}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			m := still(t)
			feed(t, m, (&eventBuilder{t: t}).begun()...)
			feed(t, m, (&eventBuilder{t: t, seq: 1}).assistant(ses, "msg_a", msg1, ""), s.questions())
			feed(t, m, test.events...)
			dead, err := m.ObsoleteQuestions(t.Context())
			is.NoErr(err)
			var found []string
			for _, d := range dead {
				is.Equal(d.Directory, directed)
				found = append(found, d.EngineQuestion+": "+d.Why)
			}
			is.Equal(strings.Join(slices.Compact(found), "|"), test.want) // one for each of those asked together
		})
	}
}

// A restart of OpenCode may interrupt a recording at any moment, and may be reported more than once.
func TestQuestionsOfARecordingEndTheSameWithRestartsAndDuplicates(t *testing.T) {
	t.Parallel()
	const name = "14-question"
	talk := conversation(t, name)
	asked := slices.IndexFunc(talk, func(e events.Event) bool { return e.Subject.Kind == "opencode.question.asked" })
	id := payload(talk[asked]).(events.QuestionRequest).ID
	s, log := &eventBuilder{t: t}, longEnough(t)
	expect.Property(t, func(r *rapid.T) {
		all := slices.Clone(talk)
		for _, e := range rapid.SliceOfN(rapid.SampledFrom([]events.Event{s.interrupts(id), talk[asked]}), 0, 5).Draw(r,
			"again") {
			all = slices.Insert(all, rapid.IntRange(asked+1, len(all)).Draw(r, "at"), e)
		}
		for i := range all {
			all[i].Seq = uint64(i + 1)
		}
		dir, err := os.MkdirTemp(expect.MemoryDir(t), "")
		if err != nil {
			r.Fatal(err)
		}
		m := opened(r, dir, log)
		defer m.Close()
		if err := m.Apply(all); err != nil {
			r.Fatal(err)
		}
		var rows []string
		err = m.View(t.Context(), func(db dbx.Builder, _ uint64) error {
			return db.NewQuery("SELECT json_array(question,status,reply,replied_by,engine_replied,custom,multiple) FROM questions ORDER BY idx").Column(&rows)
		})
		if err != nil {
			r.Fatal(err)
		}
		want := []string{
			`["Which colour?","replied","[\"Red\"]","engine:oc1",1,1,0]`,
			`["Letters?","replied","[\"A\",\"custom text\"]","engine:oc1",1,1,1]`,
		}
		if !slices.Equal(rows, want) {
			r.Fatalf("questions are %q", rows)
		}
	})
}
