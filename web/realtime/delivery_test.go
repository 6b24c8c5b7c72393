package realtime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/web/api"
)

func TestIdleConnectionGetsPingsAndEnds(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ended := make(chan error, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &client{api: new(api.Server), wake: make(chan struct{}, 1)}
		ended <- new(Realtime).stream(r.Context(), api.NewDeadlineWriter(w), c,
			timeouts{ping: 10 * time.Millisecond, idle: 200 * time.Millisecond, guest: time.Minute})
	}))
	defer server.Close()
	resp, err := http.Get(server.URL)
	is.NoErr(err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	is.NoErr(err)
	is.True(strings.HasPrefix(string(text), ": ping\n\n: ping\n\n"))
	is.True(errors.Is(<-ended, errIdle))
}

func TestConnectionEndsWhenTheTokenExpires(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	c := &client{api: new(api.Server), wake: make(chan struct{}, 1), expires: time.Now()}
	err := new(Realtime).stream(t.Context(), api.NewDeadlineWriter(httptest.NewRecorder()), c,
		timeouts{ping: time.Millisecond, idle: time.Minute, guest: time.Minute})
	is.True(errors.Is(err, errSessionOver))
}

func TestSnapshotReplacesAQueuedSnapshot(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	c := &client{api: new(api.Server), wake: make(chan struct{}, 1)}
	sub := &subscription{client: c, source: &source{}}
	for i := range 3 * maxQueued {
		c.enqueue(sub, &message{data: []byte(fmt.Sprint(i)), replaces: "msg_1"})
	}
	queue, err := c.dequeue()
	is.NoErr(err)
	is.Equal(len(queue), 1)
	is.Equal(string(queue[0].data), fmt.Sprint(3*maxQueued-1))
}

func TestGuestConnectionEndsAfterATimeout(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := timeouts{ping: time.Minute, idle: time.Minute, guest: time.Millisecond}
	c := &client{api: new(api.Server), wake: make(chan struct{}, 1)}
	is.True(errors.Is(new(Realtime).stream(t.Context(), api.NewDeadlineWriter(httptest.NewRecorder()), c, p), errIdle))
	c.ended = make(chan struct{}) // a session's
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	is.True(!errors.Is(new(Realtime).stream(ctx, api.NewDeadlineWriter(httptest.NewRecorder()), c, p), errIdle))
}
