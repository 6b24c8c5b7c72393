package account

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"pocketcoder/events"
	"pocketcoder/events/log"
)

// After freeFailures within failureWindow, each further attempt on an account waits twice as long as the one before.
// After a day without a failure the count begins anew.
const (
	freeFailures  = 5
	failureWindow = 5 * time.Minute
	firstWait     = time.Second
	longestWait   = 15 * time.Minute
	forgetAfter   = 24 * time.Hour
)

// maxUnknownNames limits the memory for unknown names. They wait like accounts, so that the answer does not reveal
// which names exist.
const maxUnknownNames = 4096

// ErrBackoff is the answer to a login that came too soon after others that failed. The password was not looked at.
type ErrBackoff struct {
	RetryAfter time.Duration
}

func (e ErrBackoff) Error() string {
	return fmt.Sprintf("too many failed logins: try again in %s", (e.RetryAfter + time.Second - 1).Truncate(time.Second))
}

// attempts is the state of the login attempts on an account.
type attempts struct {
	taken  chan struct{} // holds one value while a login attempt runs
	folded *log.Position // nil until the first attempt on an account
	failures
}

// failures counts failed attempts.
type failures struct {
	recent []time.Time // the failures within the window, until the first wait
	waits  int
	until  time.Time
}

func (f *failures) add(at time.Time) {
	if f.waits > 0 && at.Sub(f.until) > forgetAfter {
		*f = failures{}
	}
	if f.waits == 0 {
		f.recent = slices.DeleteFunc(f.recent, func(t time.Time) bool { return at.Sub(t) > failureWindow })
		if f.recent = append(f.recent, at); len(f.recent) < freeFailures {
			return
		}
	}
	f.until = at.Add(min(firstWait<<min(f.waits, 20), longestWait))
	f.waits++
}

// updateAttempts updates the attempts of an account from the log, so that failures in other processes count. A login or
// a new password resets the count, so earlier events are not read.
func (a *Accounts) updateAttempts(ctx context.Context, turn *attempts, owner *account) error {
	if owner == nil {
		return nil
	}
	kind := func(d events.Data) string { return events.UserSubject(owner.ID, d.Kind()) }
	if turn.folded == nil {
		since, err := a.log.Newest(ctx, kind(events.SessionOpened{}), kind(events.PasswordChanged{}))
		if err != nil {
			return err
		}
		turn.folded = log.StartAfter(since, kind(events.LoginFailed{}), kind(events.SessionOpened{}),
			kind(events.PasswordChanged{}))
	}
	var news []events.Event
	err := a.log.Advance(ctx, turn.folded, func(e events.Event) error {
		news = append(news, e)
		return nil
	})
	if err != nil {
		turn.folded, turn.failures = nil, failures{} // the position may include uncounted events
		return err
	}
	slices.SortFunc(news, func(x, y events.Event) int { return cmp.Compare(x.Seq, y.Seq) })
	for _, e := range news {
		switch d, _ := events.Decode(e); d := d.(type) {
		case events.SessionOpened, events.PasswordChanged:
			turn.failures = failures{}
		case events.LoginFailed:
			if d.Reason != "backoff" {
				turn.add(e.Time)
			}
		}
	}
	return nil
}
