package web_test

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/permission"
	"pocketcoder/web/webtest"
)

// The log of BenchmarkBacklog holds 560,000 events. The events of each chat are spread over all of it.
var (
	backlogChats = flag.Int("backlog.chats", 500, "number of chats in the log of BenchmarkBacklog")
	backlogTurns = flag.Int("backlog.turns", 70, "number of turns of each of these chats, with 16 events each")
	backlogTime  = flag.Duration("backlog.time", 20*time.Second, "how long BenchmarkBacklog measures each of its cases")
)

// BenchmarkBacklog measures a login with the list of chats that follows. It compares an empty log with a long one,
// first while consumers begin whose progress is lost, and then while a consumer reads one chat after the other.
func BenchmarkBacklog(b *testing.B) {
	empty := largeLog{System: webtest.NewSystem(b), user: "ann"}
	empty.NewAccount(b, empty.user, account.User)
	var l largeLog
	l.System = webtest.NewSystem(b, func(s *webtest.System) {
		l.System, l.user = s, "user0"
		l.fill(b, *backlogChats, *backlogTurns, 0)
		b.Logf("%d events", l.last)
	})
	for b.Loop() {
		alone := empty.enter(b)
		webtest.Check(b, l.Model.Wait(b.Context(), l.last))
		l.serve(b)
		l.Run(b, l.Web.Chats.Gate.Run)
		b.ReportMetric(alone[0], "empty-ms")
		report := func(name string) {
			took := l.enter(b)
			b.ReportMetric(took[0]/alone[0], name)
			b.ReportMetric(took[1], name+"-max-ms")
		}
		report("begin")
		l.Run(b, l.readChats)
		report("read")
	}
	b.ReportMetric(0, "ns/op")
}

// enter logs in and reads the list of chats, again and again. It returns the median and the maximum in milliseconds.
func (l *largeLog) enter(b *testing.B) (times [2]float64) {
	var took []time.Duration
	for end := time.Now().Add(*backlogTime); time.Now().Before(end); {
		began := time.Now()
		l.get(b, l.Login(b, l.user), webtest.RecordsPath("chats")+"?sort=-last_active&skipTotal=1")
		took = append(took, time.Since(began))
	}
	b.Logf("%d logins", len(took))
	return [2]float64{medians([][]time.Duration{took})[0], float64(slices.Max(took).Microseconds()) / 1000}
}

// readChats is a consumer that computes the state of each chat from all of its events, as after a restart.
func (l *largeLog) readChats(ctx context.Context) error {
	read := 0
	return l.Log.Consume(ctx, "reader", events.ChatSubject("*", events.ChatCreated{}.Kind()),
		func(ctx context.Context, e events.Event) error {
			p := permission.Permissions{Log: l.Log}
			err := p.Chat(ctx, e.Subject.ID).Read(ctx, l.Log, func(*permission.State) error { return nil })
			if read++; read == *backlogChats {
				fmt.Println("the consumer has read all chats")
			}
			return err
		}, func(events.Event, error) {})
}
