package conversation

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/projections/timeline"
	"pocketcoder/web/api"
	"pocketcoder/web/pages/requests"
	"pocketcoder/web/pages/site"
)

// awayAfter is how long an account has seen nothing when the list says what happened meanwhile.
const awayAfter = 10 * time.Minute

// absenceSummary says what happened in the chats of the list since the account saw the last event. It is computed when
// the page is served, and when its stream begins.
type absenceSummary struct {
	news  timeline.News
	since string // time; "" for nothing to say
}

func (c Conversation) away(ctx context.Context, caller api.Caller,
	chats []timeline.Chat) (a absenceSummary, err error) {
	err = c.API.SlowView(ctx, caller.Key(), func(db dbx.Builder, _ uint64) (err error) {
		a, err = awayIn(ctx, db, caller.Account, chats, time.Now())
		return err
	})
	return a, err
}

func awayIn(ctx context.Context, db dbx.Builder, user string, chats []timeline.Chat,
	now time.Time) (a absenceSummary, err error) {
	last, err := timeline.LastSeenBy(ctx, db, user)
	at, unknown := time.Parse(events.TimeFormat, last.At)
	if err != nil || unknown != nil || now.Sub(at) < awayAfter {
		return a, err
	}
	ids := make([]string, len(chats))
	for i, c := range chats {
		ids[i] = c.ID
	}
	if a.news, err = timeline.NewsOf(ctx, db, ids, last.Seq); err == nil && summary(a.news) != "" {
		a.since = last.At
	}
	return a, err
}

// summary says what happened in one line, "" for nothing.
func summary(n timeline.News) string {
	var parts []string
	say := func(n int64, one, more, rest string) {
		if n == 1 {
			parts = append(parts, one+rest)
		} else if n > 1 {
			parts = append(parts, fmt.Sprintf(more, n)+rest)
		}
	}
	say(n.Ended, "1 turn ended", "%d turns ended", "")
	say(n.Failed, "1 turn failed", "%d turns failed", "")
	say(n.Stopped, "1 turn stopped", "%d turns stopped", "")
	for _, d := range n.Decisions {
		by := requests.Decider(d.Decider, d.By)
		if d.By == events.ActorPolicy {
			by = "rules"
		}
		verb := map[string]string{events.Authorized: site.ApprovedBy, events.Denied: site.DeniedBy}[d.Status]
		say(d.N, "1 request ", "%d requests ", fmt.Sprintf(verb, by))
	}
	say(n.Commands, "1 command ran", "%d commands ran", "")
	say(n.CommandsFailed, "1 command failed", "%d commands failed", "")
	say(n.Files, "1 file changed", "%d files changed", "")
	say(n.Answers, "1 new message", "%d new messages", "")
	return strings.Join(parts, " · ")
}
