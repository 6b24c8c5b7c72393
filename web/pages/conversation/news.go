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
	"pocketcoder/web/pages/texts"
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
	say(n.Ended, texts.TurnEnded, texts.TurnsEnded, "")
	say(n.Failed, texts.TurnFailed, texts.TurnsFailed, "")
	say(n.Stopped, texts.TurnStopped, texts.TurnsStopped, "")
	for _, d := range n.Decisions {
		by := requests.Decider(d.Decider, d.By)
		if d.By == events.ActorPolicy {
			by = texts.Rules
		}
		verb := map[string]string{"authorized": texts.Approved, "denied": texts.Denied}[d.Status]
		say(d.N, texts.OneRequest, texts.SomeRequests, fmt.Sprintf(verb, by))
	}
	say(n.Commands, texts.CommandRan, texts.CommandsRan, "")
	say(n.CommandsFailed, texts.CommandFailed, texts.CommandsFailed, "")
	say(n.Files, texts.FileChanged, texts.FilesChanged, "")
	say(n.Answers, texts.OneAnswer, texts.SomeAnswers, "")
	return strings.Join(parts, " · ")
}
