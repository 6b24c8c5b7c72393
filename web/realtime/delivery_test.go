package realtime

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/matryer/is"

	"pocketcoder/web/api"
)

func TestIdleConnectionGetsPingsAndEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		c := &client{api: new(api.Server), wake: make(chan struct{}, 1)}
		answer := httptest.NewRecorder()
		err := new(Realtime).stream(t.Context(), api.NewDeadlineWriter(answer), c,
			timeouts{ping: 10 * time.Second, idle: 25 * time.Second, guest: time.Minute})
		is.True(errors.Is(err, errIdle))
		is.Equal(answer.Body.String(), ": ping\n\n: ping\n\n")
	})
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
