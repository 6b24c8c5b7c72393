// Package schedule carries out the commands on schedules: it submits the message of a schedule that is due, or that a
// person starts.
//
// Promises: each due time starts one run or is skipped once, however many processes decide about it and however often
// they restart: the decision, the chat and the message are one atomic batch, on the condition that no other decision
// came before. A downtime of any length leads to one run at most. A schedule starts nothing for an account that is
// disabled, and nothing in a chat that its account does not own.
//
// It must not know how long a turn runs, or how a process waits for a due time.
package schedule

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/model"
	"pocketcoder/handlers/project"
	"pocketcoder/handlers/record"
)

// Schedules carries out the commands on schedules. Log, Chats and Accounts must be set. It is safe for concurrent use.
type Schedules struct {
	Log      *log.Log
	Chats    *chat.Chats
	Accounts *account.Accounts
	Now      func() time.Time // nil for the clock of the machine

	states handlers.Folds[*state] // one
}

// now returns the time of the wall clock. Differences to it include the time in which the machine slept.
func (h *Schedules) now() time.Time {
	if h.Now != nil {
		return h.Now()
	}
	return time.Now().Round(0)
}

// state holds the schedules, and up to when each is decided.
type state struct {
	schedules map[string]*schedule
	started   map[string]Started // in the last day by a person, by the command
}

type schedule struct {
	Schedule
	spec    parsedTiming
	invalid bool      // it is never due
	decided time.Time // due times up to here have started a run or were skipped
	created time.Time // anchor of an interval: when its due times changed last
	next    time.Time // zero for never
}

func (s *state) Apply(e events.Event) {
	d, err := events.Decode(e)
	if err != nil {
		return
	}
	k := s.schedules[e.Subject.ID]
	switch d := d.(type) {
	case events.Saved:
		if k == nil {
			k = &schedule{}
			s.schedules[e.Subject.ID] = k
		}
		k.save(d, e.Time)
	case events.Deleted:
		delete(s.schedules, e.Subject.ID)
	case events.ScheduleFired:
		if d.Manual {
			maps.DeleteFunc(s.started, func(_ string, r Started) bool { return e.Time.Sub(r.at) > repeatable })
			s.started[e.Cause] = Started{Chat: d.Chat, Message: d.Message, Seq: e.Seq, at: e.Time}
			d.Due = d.Decided
		}
		if k != nil && !d.Due.IsZero() {
			k.decide(d.Due)
		}
	case events.ScheduleSkipped:
		if k != nil {
			k.decide(d.Due)
		}
	}
}

// save applies the fields of a record. It ignores due times before the schedule was enabled, or before its times were
// changed last.
func (k *schedule) save(d events.Saved, at time.Time) {
	before := k.Schedule
	k.Schedule = Schedule{}
	k.invalid = json.Unmarshal(d.Fields, &k.Schedule) != nil
	isNew := k.created.IsZero()
	if isNew || before.Cron != k.Cron || before.Every != k.Every || before.At != k.At || before.Starts != k.Starts ||
		before.TimeZone != k.TimeZone {
		k.created, k.decided = at, at
	}
	if !before.Enabled && k.Enabled {
		k.decided = at
	}
	times, err := k.due()
	if err == nil {
		k.spec, err = times.parse(k.created, time.Local)
	}
	k.invalid = k.invalid || err != nil
	k.decide(k.decided)
}

// decide marks the due times up to a time as decided.
func (k *schedule) decide(until time.Time) {
	if k.decided, k.next = until, (time.Time{}); !k.invalid {
		k.next = k.spec.next(k.decided)
	}
}

// isDue reports whether the schedule has an undecided due time.
func (k *schedule) isDue(now time.Time) bool {
	return k.Enabled && !k.next.IsZero() && !k.next.After(now)
}

func (h *Schedules) state(ctx context.Context) *handlers.Fold[*state] {
	return h.states.Get(ctx, "", func() *handlers.Fold[*state] {
		return handlers.NewFoldFrom(newState(), h.begin, events.ConfigSubject(Collection, "*", "*"))
	})
}

func newState() *state { return &state{map[string]*schedule{}, map[string]Started{}} }

// begin returns the events that the state follows from: every change of a schedule, the newest decision about each, and
// the runs of the last day, because the command of one may be sent again.
func (h *Schedules) begin(ctx context.Context, l *log.Log) ([]events.Event, uint64, error) {
	since, err := l.At(ctx, h.now().Add(-repeatable))
	if err != nil {
		return nil, 0, err
	}
	all, through, err := handlers.Collect(ctx, l, log.Start(subject("*", events.Saved{}), subject("*", events.Deleted{})),
		log.StartAfter(since, subject("*", events.ScheduleFired{})))
	if err != nil {
		return nil, 0, err
	}
	slices.SortFunc(all, func(a, b events.Event) int { return cmp.Compare(a.Seq, b.Seq) })
	known := newState()
	for _, e := range all {
		known.Apply(e)
	}
	var hidden []*log.Position
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(known.schedules)), maxListed) {
		var filters []string
		for _, id := range ids {
			filters = append(filters, events.ConfigSubject(Collection, id, "*"))
		}
		upTo, err := l.NewestEach(ctx, func(e events.Event) error {
			all = append(all, e)
			if hidesDecision(e) {
				hidden = append(hidden, log.Start(e.RawSubject))
			}
			return nil
		}, filters...)
		if err != nil {
			return nil, 0, err
		}
		through = min(through, upTo)
	}
	earlier, upTo, err := handlers.Collect(ctx, l, hidden...)
	return append(all, earlier...), min(through, upTo), err
}

// maxListed is how many schedules one request lists: each has a subject for each of four kinds of events.
const maxListed = 1024 / 4

func subject(id string, d events.Data) string {
	return events.ConfigSubject(Collection, id, d.Kind())
}

// hidesDecision reports whether an event is a manual run of an earlier version: the decision before it is needed, too.
func hidesDecision(e events.Event) bool {
	d, _ := events.Decode(e)
	fired, ok := d.(events.ScheduleFired)
	return ok && fired.Manual && fired.Decided.IsZero()
}

// Due returns the schedules that are due now, and the time at which the next one is due. It is zero for none.
func (h *Schedules) Due(ctx context.Context) (ids []string, next time.Time, err error) {
	now := h.now()
	err = h.state(ctx).Read(ctx, h.Log, func(s *state) error {
		for id, k := range s.schedules {
			switch {
			case k.isDue(now):
				ids = append(ids, id)
			case k.Enabled && !k.next.IsZero() && (next.IsZero() || k.next.Before(next)):
				next = k.next
			}
		}
		return nil
	})
	slices.Sort(ids)
	return ids, next, err
}

// Next returns the next due times of a schedule, at most n, in its time zone. It returns none if it is not enabled.
func (h *Schedules) Next(ctx context.Context, id string, n int) (all []time.Time, err error) {
	now := h.now()
	err = h.state(ctx).Read(ctx, h.Log, func(s *state) error {
		if k := s.schedules[id]; k != nil && k.Enabled && !k.invalid {
			from := k.decided
			if now.After(from) {
				from = now
			}
			all = k.spec.nextRuns(from, n)
		}
		return nil
	})
	return all, err
}

// Run starts a run of a schedule: because it is due, or because a person or an agent wants it now (Manual).
type Run struct {
	handlers.Command
	Schedule string `json:"schedule"`
	Manual   bool   `json:"-"`
	Busy     bool   `json:"-"` // its last run is not over
	// events are lost that may say that it ran when it was due
	Uncertain bool `json:"-"`

	refusal string // why its chat or its message was refused
}

// Started is a run that was started. It is empty if there was nothing to start.
type Started struct {
	Chat    string
	Message string
	Seq     uint64
	at      time.Time
}

// repeatable is how long a command of a person can be sent again without a further effect.
const repeatable = 24 * time.Hour

// missedAfter is the delay after which a run counts as missed.
const missedAfter = time.Minute

// Run starts nothing if the schedule is not due, because another process was first. Seq is the sequence of the last
// event, also if the run was skipped.
func (h *Schedules) Run(ctx context.Context, c Run) (r Started, err error) {
	if _, err := events.ParseID(c.Schedule); err != nil {
		return r, handlers.RefuseField(handlers.Invalid, "schedule", "schedule: %v", err)
	}
	if c.Actor == "" {
		c.Actor = events.ScheduleActor(c.Schedule)
	}
	decide := func(ctx context.Context) (err error) {
		r, err = h.decide(ctx, c)
		return err
	}
	seq, err := handlers.Transaction(ctx, h.Log, decide)
	if refused := (handlers.Refused{}); errors.As(err, &refused) && refused.Code == handlers.Conflict && !c.Manual {
		c.refusal = refused.Text // without it, the same run would be tried again for ever
		seq, err = handlers.Transaction(ctx, h.Log, decide)
	}
	r.Seq = max(r.Seq, seq)
	return r, err
}

// decide starts or skips a run, in a transaction.
func (h *Schedules) decide(ctx context.Context, c Run) (r Started, err error) {
	var begun *run
	_, err = h.state(ctx).Execute(ctx, h.Log, c.Command, func(s *state) ([]events.Event, uint64, error) {
		begun = nil
		if earlier, ok := s.started[c.ID]; ok && c.ID != "" {
			r = earlier
			return nil, earlier.Seq, nil
		}
		k := s.schedules[c.Schedule]
		if k == nil {
			return nil, 0, handlers.Refuse(handlers.NotFound, "there is no schedule %s", c.Schedule)
		}
		problem, err := h.problemOf(ctx, k)
		if err != nil {
			return nil, 0, err
		}
		problem = cmp.Or(problem, c.refusal)
		d := k.onTime(c, h.now(), problem)
		if c.Manual {
			if problem != "" {
				return nil, 0, handlers.Refuse(handlers.Conflict, "%s", problem)
			}
			d = k.start(c, events.ScheduleFired{Due: h.now(), Manual: true, Decided: k.decided.UTC()})
		}
		if d == nil {
			return nil, 0, nil
		}
		e, err := events.NewConfig(Collection, c.Schedule, c.Actor, d)
		all := []events.Event{e}
		if fired, ok := d.(events.ScheduleFired); ok && err == nil {
			begun = &run{c, k.Schedule, fired}
			if fired.New && k.Model != "" {
				e, err = begun.selection()
				all = append(all, e)
			}
		}
		return all, 0, err
	})
	if err != nil || begun == nil {
		return r, err
	}
	return Started{Chat: begun.fired.Chat, Message: begun.fired.Message}, begun.submit(ctx, h)
}

// onTime returns the event of a schedule that is due: that it has fired, or why it is skipped. It returns nil if the
// schedule is not due.
func (k *schedule) onTime(c Run, now time.Time, problem string) events.Data {
	if !k.isDue(now) {
		return nil
	}
	latest, first := k.spec.latest(k.decided, now)
	if latest.IsZero() {
		return nil
	}
	if first.Equal(latest) {
		first = time.Time{}
	}
	reason := ""
	switch {
	case c.Uncertain:
		reason = "Events of the log were lost. This run may have been done already."
	case now.Sub(latest) > missedAfter && !k.runsMissed():
		reason = "PocketCoder did not run at that time."
	case problem != "":
		reason = problem
	case c.Busy && k.Overlap != Queue:
		reason = "The last run was not over."
	default:
		return k.start(c, events.ScheduleFired{Due: latest, First: first})
	}
	return events.ScheduleSkipped{Due: latest, First: first, Reason: reason}
}

// start completes the event that a schedule has fired.
func (k *schedule) start(c Run, fired events.ScheduleFired) events.ScheduleFired {
	id := ""
	if fired.Manual {
		id = events.NewID()
	}
	fired.Due = fired.Due.UTC()
	if !fired.First.IsZero() {
		fired.First = fired.First.UTC()
	}
	fired.Message = events.ScheduledMessage(c.Schedule, fired.Due, id)
	fired.Chat, fired.MaxCost, fired.New = k.Chat, k.MaxCost, k.Mode == New
	if fired.New {
		fired.Chat = events.ScheduledChat(fired.Message)
	}
	return fired
}

// run is a run of a schedule that was decided.
type run struct {
	Run
	schedule Schedule
	fired    events.ScheduleFired
}

// submit creates the chat of the run, if it is new, and submits the message.
func (r run) submit(ctx context.Context, h *Schedules) error {
	k := r.schedule
	if r.fired.New {
		_, _, err := h.Chats.Create(ctx, chat.Create{Command: r.Command, Chat: r.fired.Chat, User: k.User, Agent: k.Agent,
			Project: k.Project, Title: strings.ToValidUTF8(k.Name[:min(len(k.Name), chat.MaxTitle)], ""), Ceiling: k.Ceiling})
		if refused := (handlers.Refused{}); errors.As(err, &refused) && refused.Code == handlers.Invalid {
			return handlers.Refuse(handlers.Conflict, "%s", refused.Text) // another time it may be a different answer
		}
		if err != nil {
			return err
		}
	}
	_, _, err := h.Chats.SubmitMessage(ctx, chat.SubmitMessage{Command: r.Command, Chat: r.fired.Chat,
		Message: r.fired.Message, Schedule: r.Run.Schedule, Parts: []events.Part{{Type: "text", Text: k.Prompt}}})
	return err
}

// selection returns the event that selects the model of a new chat.
func (r run) selection() (events.Event, error) {
	fields := record.Fields(map[string]any{"model": r.schedule.Model, "user": r.schedule.User, "chat": r.fired.Chat})
	body, err := json.Marshal(fields)
	if err != nil {
		return events.Event{}, err
	}
	return events.NewConfig(model.Selections, events.NewID(), r.Actor, events.Saved{Fields: body})
}

// problemOf returns why a schedule may not start anything now, as a sentence, or "".
func (h *Schedules) problemOf(ctx context.Context, k *schedule) (string, error) {
	if k.invalid {
		return "The schedule cannot be read. Save it again.", nil
	}
	if k.User != "" {
		all, err := h.Accounts.List(ctx)
		if err != nil {
			return "", err
		}
		i := slices.IndexFunc(all, func(a account.Account) bool { return a.ID == k.User && !a.Disabled })
		if i < 0 {
			return "The account of the schedule is disabled or deleted.", nil
		}
	}
	projects := h.Chats.Projects
	if k.Mode == New {
		if projects == nil {
			return "", nil
		}
		may, err := projects.MayWork(ctx, k.User)
		if err == nil && len(may) == 0 {
			return "The account of the schedule may not work in any project.", nil
		}
		isOf := func(p project.Project) bool { return p.ID == k.Project }
		if err == nil && k.Project != "" && !slices.ContainsFunc(may, isOf) {
			return "The account of the schedule may not work in its project.", nil
		}
		return "", err
	}
	var s handlers.ChatState
	err := handlers.NewFold(&s, handlers.ChatFilter(k.Chat)).Read(ctx, h.Log,
		func(s *handlers.ChatState) error { return s.Missing(k.Chat) })
	switch {
	case handlers.CodeOf(err) == handlers.NotFound:
		return "The chat of the schedule was deleted.", nil
	case err != nil:
		return "", err
	case projects == nil:
		return "", nil
	}
	if may, err := projects.MayAct(ctx, k.User, s); may || err != nil {
		return "", err
	}
	if s.Owner == k.User {
		return "The account of the schedule may not work in the project of its chat.", nil
	}
	return "The chat of the schedule belongs to another account.", nil
}
