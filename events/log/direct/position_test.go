package direct_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/events/log/direct"
	"pocketcoder/ops/expect"
)

// Some accounts have one event, some two, some many; what a position reads must not depend on that, nor on how far
// apart they are.
func TestAdvanceReadsEveryEventOnce(t *testing.T) {
	defer direct.SetFarApart(40)()
	l := eventstest.Log(t)
	filters := []string{events.UserSubject("*", "account.*"), events.UserSubject("*", "deleted"),
		events.ChatSubject("chat1", "updated")}
	random := rand.New(rand.NewPCG(1, 2))
	stored := map[string][]uint64{}
	store := func(filter string, e events.Event, err error) {
		is.New(t).NoErr(err)
		seq, err := l.Append(t.Context(), e)
		is.New(t).NoErr(err)
		stored[filter] = append(stored[filter], seq)
	}
	some := func(n int) {
		for range n {
			user, title := fmt.Sprint("user", random.IntN(20)), "title"
			switch random.IntN(10) {
			case 0:
				e, err := events.NewUser(user, events.ActorSystem, events.AccountUpdated{Name: &title})
				store(filters[0], e, err)
			case 1:
				e, err := events.NewUser(user, events.ActorSystem, events.AccountCreated{Name: user})
				store(filters[0], e, err)
			case 2:
				e, err := events.NewUser(user, events.ActorSystem, events.Deleted{})
				store(filters[1], e, err)
			case 3, 4:
				e, err := events.New("chat1", events.ActorSystem, events.ChatUpdated{Title: &title})
				store(filters[2], e, err)
			default:
				e, err := events.New("chat2", events.ActorSystem, events.ChatUpdated{Title: &title})
				store("other", e, err)
			}
		}
	}
	check := func(p *log.Position, got map[string][]uint64) {
		t.Helper()
		is := is.New(t)
		is.NoErr(l.Advance(t.Context(), p, func(e events.Event) error {
			i := slices.IndexFunc(filters, func(f string) bool {
				return events.MatchesFilter(strings.Split(f, "."), strings.Split(e.RawSubject, "."))
			})
			got[filters[i]] = append(got[filters[i]], e.Seq)
			return nil
		}))
		for _, f := range filters {
			is.Equal(got[f], stored[f])
			is.Equal(p.Last(f), append([]uint64{0}, stored[f]...)[len(stored[f])])
		}
	}
	early, read := log.Start(filters...), map[string][]uint64{}
	check(early, read) // of an empty log
	for range 12 {
		some(random.IntN(60))
		check(early, read)
		check(log.Start(filters...), map[string][]uint64{})
	}
	check(early, read)
}

func TestAdvanceGoesOnAfterAnError(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	l := eventstest.Log(t)
	for i := range 30 {
		title := fmt.Sprint(i)
		e, err := events.New("chat1", events.ActorSystem, events.ChatUpdated{Title: &title})
		is.NoErr(err)
		_, err = l.Append(t.Context(), e)
		is.NoErr(err)
	}
	p, stop := log.Start(events.ChatSubject("chat1", "*")), errors.New("stop")
	var got []uint64
	for _, most := range []int{0, 1, 7, 25, 100} {
		err := l.Advance(t.Context(), p, func(e events.Event) error {
			if len(got) == most {
				return stop
			}
			got = append(got, e.Seq)
			return nil
		})
		is.Equal(errors.Is(err, stop), most < 30)
	}
	is.Equal(len(got), 30)
	is.True(slices.IsSorted(got) && got[29] == 30) // each once
}

// The server lists the newest events of 1,024 subjects at most.
func TestAdvanceReadsTheEventsOfManyAccounts(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	l := eventstest.Log(t)
	p, n := log.Start(events.UserSubject("*", "deleted"), events.UserSubject("*", "account.*")), 0
	for _, more := range []int{1000, 100, 0, 1, 400} {
		var all []events.Event
		for i := range more {
			e, err := events.NewUser(fmt.Sprint("user", n+i), events.ActorSystem, events.AccountCreated{})
			is.NoErr(err)
			all = append(all, e)
			if i%2 == 0 {
				e, err = events.NewUser(fmt.Sprint("user", n+i), events.ActorSystem, events.Deleted{})
				is.NoErr(err)
				all = append(all, e)
			}
		}
		_, err := l.AppendAll(t.Context(), all)
		is.NoErr(err)
		got := 0
		is.NoErr(l.Advance(t.Context(), p, func(events.Event) error { got++; return nil }))
		is.Equal(got, more+(more+1)/2)
		n += more
	}
}

func TestAdvanceReadsTheEventsOfManyChats(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	l := eventstest.Log(t)
	filters := []string{events.ChatSubject("*", "updated"), events.ChatSubject("*", "deleted")}
	p, n := log.Start(filters...), 0
	for _, more := range []int{0, 3, 30, 0, 1, 400} {
		for i := range more {
			title := "title"
			e, err := events.New(fmt.Sprint("chat", i%50), events.ActorSystem, events.ChatUpdated{Title: &title})
			if i%3 == 0 {
				e, err = events.New(fmt.Sprint("chat", i%50), events.ActorSystem, events.Deleted{})
			}
			is.NoErr(err)
			_, err = l.Append(t.Context(), e)
			is.NoErr(err)
		}
		n += more
		got, fresh := 0, 0
		is.NoErr(l.Advance(t.Context(), p, func(events.Event) error { got++; return nil }))
		is.NoErr(l.Advance(t.Context(), log.Start(filters...), func(events.Event) error { fresh++; return nil }))
		is.Equal([]int{got, fresh}, []int{more, n})
	}
}

// A request for the event that follows makes the server look at everything up to the end of the log, when none does.
func TestAPositionAsksForNoEventThatIsNotThere(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	l := eventstest.Open(t, nc)
	account := func(user string) {
		e, err := events.NewUser(user, events.ActorSystem, events.AccountCreated{})
		is.NoErr(err)
		_, err = l.Append(t.Context(), e)
		is.NoErr(err)
	}
	account("ann")
	account("bob")
	requests, err := nc.SubscribeSync("$JS.API.DIRECT.GET.EVENTS")
	is.NoErr(err)
	asked := func() (newest, following int) {
		is.NoErr(nc.Flush())
		for {
			m, err := requests.NextMsg(0)
			if errors.Is(err, nats.ErrTimeout) {
				return newest, following
			}
			is.NoErr(err)
			var r struct {
				Newest []string `json:"multi_last"`
				Next   string   `json:"next_by_subj"`
			}
			is.NoErr(json.Unmarshal(m.Data, &r))
			if len(r.Newest) > 0 {
				newest++
			} else {
				following++
			}
		}
	}
	p := log.Start(events.UserSubject("*", "account.*"), events.UserSubject("*", "deleted"))
	advance := func() (n int) {
		is.NoErr(l.Advance(t.Context(), p, func(events.Event) error { n++; return nil }))
		return n
	}
	is.Equal(advance(), 2)
	asked()
	for range 3 {
		is.Equal(advance(), 0)
	}
	newest, following := asked()
	is.Equal([]int{newest, following}, []int{3, 0})
	account("cid")
	is.Equal(advance(), 1)
	newest, following = asked()
	is.Equal([]int{newest, following}, []int{1, 0}) // nothing else was appended
	chat, err := events.New("chat", events.ActorSystem, events.ChatCreated{})
	is.NoErr(err)
	_, err = l.Append(t.Context(), chat)
	is.NoErr(err)
	account("dan")
	is.Equal(advance(), 1)
	newest, following = asked()
	is.Equal([]int{newest, following}, []int{1, 1})
}
