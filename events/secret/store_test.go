package secret_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/events/eventstest"
	"pocketcoder/events/secret"
	"pocketcoder/ops/expect"
)

func openSecrets(t testing.TB, dir string) *secret.Store {
	t.Helper()
	s, err := secret.Open(t.Context(), eventstest.Conn(t, eventstest.Server(t, dir)), 1)
	is.New(t).NoErr(err)
	return s
}

func TestSecretIsWhatWasPutLast(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := openSecrets(t, t.TempDir())
	want := func(value string, there bool) {
		t.Helper()
		got, ok, err := s.Get(t.Context(), "a.b")
		is.NoErr(err)
		is.Equal(ok, there)
		is.Equal(string(got), value)
	}
	want("", false)
	is.NoErr(s.Put(t.Context(), "a.b", []byte("one")))
	is.NoErr(s.Put(t.Context(), "a.b", []byte("two")))
	want("two", true)
	is.True(errors.Is(s.Create(t.Context(), "a.b", []byte("three")), secret.ErrExists))
	swapped, err := s.Swap(t.Context(), "a.b", []byte("one"), []byte("four"))
	is.NoErr(err)
	is.True(!swapped) // it is two
	swapped, err = s.Swap(t.Context(), "a.b", []byte("two"), []byte("four"))
	is.NoErr(err)
	is.True(swapped)
	want("four", true)
	is.NoErr(s.Delete(t.Context(), "a.b"))
	want("", false)
	swapped, err = s.Swap(t.Context(), "a.b", []byte("four"), []byte("five"))
	is.NoErr(err)
	is.True(!swapped) // what was deleted stays so
	is.NoErr(s.Delete(t.Context(), "never.was"))
	is.NoErr(s.Create(t.Context(), "a.b", []byte("six")))
	want("six", true)
}

func TestOnlyOneCreatesASecret(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := openSecrets(t, t.TempDir())
	errs := make([]error, 8)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { errs[i] = s.Create(t.Context(), "key", fmt.Append(nil, i)) })
	}
	all.Wait()
	value, _, err := s.Get(t.Context(), "key")
	is.NoErr(err)
	for i, err := range errs {
		is.Equal(err == nil, string(value) == fmt.Sprint(i))
		is.True(err == nil || errors.Is(err, secret.ErrExists))
	}
}

func TestSwapHasOneWinner(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := openSecrets(t, t.TempDir())
	for range 20 { // they do not get in each other's way each time
		is.NoErr(s.Put(t.Context(), "key", []byte("old")))
		swapped, errs := make([]bool, 8), make([]error, 8)
		var all sync.WaitGroup
		for i := range swapped {
			all.Go(func() { swapped[i], errs[i] = s.Swap(t.Context(), "key", []byte("old"), fmt.Append(nil, i)) })
		}
		all.Wait()
		is.NoErr(errors.Join(errs...))
		value, _, err := s.Get(t.Context(), "key")
		is.NoErr(err)
		for i := range swapped {
			is.Equal(swapped[i], string(value) == fmt.Sprint(i))
		}
	}
}

func TestKeysAreThoseUnderThePrefix(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := openSecrets(t, t.TempDir())
	for _, key := range []string{"session.a.1", "session.a.2", "session.b.1", "sessions.a", "password.a"} {
		is.NoErr(s.Put(t.Context(), key, []byte(key)))
	}
	is.NoErr(s.Delete(t.Context(), "session.a.2"))
	for prefix, want := range map[string]string{
		"session.a": "session.a.1", "session": "session.a.1 session.b.1", "none": "",
		"": "password.a session.a.1 session.b.1 sessions.a",
	} {
		keys, err := s.Keys(t.Context(), prefix)
		is.NoErr(err)
		slices.Sort(keys)
		is.Equal(strings.Join(keys, " "), want)
	}
	_, err := s.Keys(t.Context(), "bad prefix")
	is.True(err != nil)
	is.True(s.Put(t.Context(), "bad key", nil) != nil)
}

func TestWatchGivesWhatIsThereAndThenWhatChanges(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := openSecrets(t, t.TempDir())
	is.NoErr(s.Put(t.Context(), "a.1", []byte("one")))
	is.NoErr(s.Put(t.Context(), "a.2", nil))
	is.NoErr(s.Put(t.Context(), "b.1", []byte("other")))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	changes, done := make(chan string, 10), make(chan error, 1)
	go func() {
		done <- s.Watch(ctx, "a", func(key string, value []byte) error {
			changes <- fmt.Sprintf("%s %t %s", key, value != nil, value)
			return nil
		})
	}()
	is.Equal(<-changes, "a.1 true one")
	is.Equal(<-changes, "a.2 true ") // empty, and there
	is.Equal(<-changes, " false ")   // that was all
	is.NoErr(s.Put(t.Context(), "a.1", []byte("two")))
	is.Equal(<-changes, "a.1 true two")
	is.NoErr(s.Put(t.Context(), "b.1", []byte("not asked for")))
	is.NoErr(s.Delete(t.Context(), "a.1"))
	is.Equal(<-changes, "a.1 false ")
	cancel()
	is.True(errors.Is(<-done, context.Canceled))
}

func TestSecretsOutliveTheServer(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	dir := t.TempDir()
	server := eventstest.Server(t, dir)
	s, err := secret.Open(t.Context(), eventstest.Conn(t, server), 1)
	is.NoErr(err)
	is.NoErr(s.Put(t.Context(), "a", []byte("one")))
	is.NoErr(s.Put(t.Context(), "b", []byte("gone")))
	is.NoErr(s.Delete(t.Context(), "b"))
	server.Shutdown()
	server.WaitForShutdown()
	s = openSecrets(t, dir)
	value, _, err := s.Get(t.Context(), "a")
	is.NoErr(err)
	is.Equal(string(value), "one")
	keys, err := s.Keys(t.Context(), "")
	is.NoErr(err)
	is.Equal(keys, []string{"a"})
}

// Neither what was deleted nor what was replaced can be read back, by sequence or otherwise.
func TestDeletedSecretCannotBeReadBack(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	s, err := secret.Open(t.Context(), nc, 1)
	is.NoErr(err)
	for _, value := range []string{"canary-1", "canary-2"} {
		is.NoErr(s.Put(t.Context(), "a", []byte(value)))
	}
	is.NoErr(s.Delete(t.Context(), "a"))
	js, err := jetstream.New(nc)
	is.NoErr(err)
	stream, err := js.Stream(t.Context(), "KV_SECRETS")
	is.NoErr(err)
	is.Equal(stream.CachedInfo().State.Msgs, uint64(1)) // the mark of the deletion, which ends too
	for seq := range stream.CachedInfo().State.LastSeq {
		m, err := stream.GetMsg(t.Context(), seq+1)
		is.True(err != nil || (!bytes.Contains(m.Data, []byte("canary")) && m.Header.Get("Nats-TTL") == "720h0m0s"))
	}
}

// The server closes the connection of who sends it a longer line, and with it goes everything.
func TestKeyThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := openSecrets(t, t.TempDir())
	for _, key := range []string{"", "a b", "a..b", ".a", "a.", "a.*", "a.>", "a\r\nPUB x 0", "é",
		strings.Repeat("x", 257), strings.Repeat("x", 5000)} {
		_, _, get := s.Get(t.Context(), key)
		_, swap := s.Swap(t.Context(), key, nil, nil)
		_, keys := s.Keys(t.Context(), key)
		if key == "" {
			keys = get // the prefix of all
		}
		for _, err := range []error{get, swap, keys, s.Put(t.Context(), key, nil), s.Create(t.Context(), key, nil),
			s.Delete(t.Context(), key)} {
			is.True(err != nil && strings.Contains(err.Error(), "want a key"))
		}
	}
	is.NoErr(s.Put(t.Context(), strings.Repeat("x", 256), []byte("it still answers")))
}
