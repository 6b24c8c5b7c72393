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

// After freeFailures within failureWindow an account makes those who guess wait, each time twice as long as the last.
// After a day without a failure it begins anew.
const (
	freeFailures  = 5
	failureWindow = 5 * time.Minute
	firstWait     = time.Second
	longestWait   = 15 * time.Minute
	forgetAfter   = 24 * time.Hour
)

// maxStrangers bounds the memory of names that nobody has. They are made to wait as accounts are, or an answer would
// tell which is which.
const maxStrangers = 4096

// ErrBackoff is the answer to a login that came too soon after others that failed. The password was not looked at.
type ErrBackoff struct {
	RetryAfter time.Duration
}

func (e ErrBackoff) Error() string {
	return fmt.Sprintf("too many failed logins: try again in %s", (e.RetryAfter + time.Second - 1).Truncate(time.Second))
}

// attempts is what went before on an account.
type attempts struct {
	taken  chan struct{} // holds one value while a login attempt runs
	folded *log.Position // nil until the first attempt on an account
	failures
}

// failures counts what failed.
type failures struct {
	recent []time.Time // until the first wait: those within the window
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

// recall brings what went before up to date with the log. An account's failures count wherever they happened. A login,
// and a new password, begin the count anew, so nothing before them is read.
func (a *Accounts) recall(ctx context.Context, turn *attempts, owner *account) error {
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
		turn.folded, turn.failures = nil, failures{} // the position includes what was not counted
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
