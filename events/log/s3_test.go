package log_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/events/log/blob"
	"pocketcoder/events/log/place"
	"pocketcoder/expect"
)

// An object that the store has lost is lost. An object that it cannot return now is readable again once the store is
// available.
func TestEventWithAnUnreadableObjectIsMalformed(t *testing.T) {
	is := is.New(t)
	s := eventstest.NewStore(t)
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	l := eventstest.Open(t, nc)
	e := eventOfSize(t, "evt_large", log.MaxInline+1)
	_, err := l.Append(t.Context(), e)
	is.NoErr(err)
	_, err = l.Append(t.Context(), eventOfSize(t, "evt_next", 100))
	is.NoErr(err)
	name := blob.HashName(e.Data)
	_, err = l.Blobs.Offload(t.Context(), name, s.URL)
	is.NoErr(err)
	check := func(what string, want error) {
		t.Helper()
		var all []error
		_, err := l.Fold(t.Context(), events.ChatFilter("chat1"), 0, func(e events.Event) error {
			all = append(all, e.Malformed)
			return nil
		})
		is.NoErr(err)
		t.Log(what, all)
		is.Equal(len(all), 2)
		is.True(errors.Is(all[0], want))
		expect.Lacks(t, fmt.Sprint(all[0]), "endpoint=")
		expect.Lacks(t, fmt.Sprint(all[0]), "127.0.0.1")
		is.Equal(errors.Is(all[0], blob.ErrNotFound), want == blob.ErrNotFound)
		is.NoErr(all[1])
	}
	check("whole", nil)
	s.Down.Store(true)
	check("silent", place.ErrUnavailable)
	check("silent, and not asked again", place.ErrUnavailable)
	s.Down.Store(false)
	place.Forget()
	check("back", nil)
	s.Replace(t, name, string(e.Data[:len(e.Data)-1])+"x")
	check("damaged", blob.ErrDamaged)
	is.NoErr(place.At(strings.Replace(s.URL, "?", "/"+name+"?", 1)).Remove(t.Context()))
	check("removed", blob.ErrNotFound)
}
