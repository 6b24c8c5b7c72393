// Package secret keeps secrets: in the bucket SECRETS, and out of everything else that is stored.
//
// Store is the bucket for password hashes, sessions and keys of providers, which must never be in an event. Redactor
// replaces known secrets and their common encodings in a text. Known is the set of secrets that are known now.
package secret

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/events"
	"pocketcoder/events/log/sleep"
)

// ErrExists is the error of a key that has a value already.
var ErrExists = errors.New("it exists already")

// secretsTimeout bounds one request to the server.
const secretsTimeout = 15 * time.Second

// secretsBucket is the name of the bucket. Its stream is KV_SECRETS.
const secretsBucket = "SECRETS"

// deletedFor is the time for which the server stores that a secret was deleted. A watcher that was disconnected for
// longer would not learn of it. No session lasts as long.
const deletedFor = 30 * 24 * time.Hour

// maxSecretKey is the longest key, in bytes. A key becomes part of a subject, and the server closes a connection that
// sends a line of more than 4 KiB.
const maxSecretKey = 256

var secretKeyPattern = regexp.MustCompile(`^[A-Za-z0-9_=-]+(\.[A-Za-z0-9_=-]+)*$`)

func checkSecretKey(key string) error {
	if len(key) > maxSecretKey {
		return fmt.Errorf("want a key of at most %d bytes, got %d", maxSecretKey, len(key))
	}
	if !secretKeyPattern.MatchString(key) {
		return errors.New("want a key of letters, digits, _, = and -, with single dots between them")
	}
	return nil
}

// Store is the bucket of what must never be in an event: password hashes, sessions, keys of providers. A key is made
// of tokens of letters, digits, _, = and -, with dots between them, `session.<account>.<hash>`, and has at most 256
// bytes; a prefix is the first tokens of keys, "" that of all. Other keys are refused.
type Store struct {
	kv jetstream.KeyValue
}

// Open creates or updates the bucket, which has so many replicas, and returns it.
func Open(ctx context.Context, nc *nats.Conn, replicas int) (*Store, error) {
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(secretsTimeout))
	if err != nil {
		return nil, fmt.Errorf("open jetstream: %w", err)
	}
	kv, err := js.CreateOrUpdateKeyValue(ctx, Config(replicas))
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", secretsBucket, err)
	}
	return &Store{kv}, nil
}

// Config returns the configuration of the bucket. It stores no earlier values.
func Config(replicas int) jetstream.KeyValueConfig {
	return jetstream.KeyValueConfig{
		Bucket:         secretsBucket,
		Description:    "password hashes, sessions, keys of providers",
		History:        1,
		Storage:        jetstream.FileStorage,
		Replicas:       replicas,
		LimitMarkerTTL: deletedFor, // permits the marks of deleted values to end
		Metadata:       map[string]string{"config": "1"},
	}
}

// Get returns the value of a key and whether there is one.
func (s *Store) Get(ctx context.Context, key string) ([]byte, bool, error) {
	e, err := s.get(ctx, key)
	if e == nil {
		return nil, false, err
	}
	return e.Value(), true, nil
}

// get returns nil for a key without a value.
func (s *Store) get(ctx context.Context, key string) (jetstream.KeyValueEntry, error) {
	if err := checkSecretKey(key); err != nil {
		return nil, secretError("get", key, err)
	}
	e, err := s.kv.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, nil
	}
	return e, secretError("get", key, err)
}

// Put stores a value. It replaces an earlier one.
func (s *Store) Put(ctx context.Context, key string, value []byte) error {
	err := checkSecretKey(key)
	if err == nil {
		_, err = s.kv.Put(ctx, key, value)
	}
	return secretError("put", key, err)
}

// Create stores a value if there is none. Of several callers one succeeds; the others get ErrExists.
func (s *Store) Create(ctx context.Context, key string, value []byte) error {
	err := checkSecretKey(key)
	if err == nil {
		_, err = s.kv.Create(ctx, key, value)
	}
	if errors.Is(err, jetstream.ErrKeyExists) {
		err = ErrExists
	}
	return secretError("create", key, err)
}

// Swap replaces the value old and reports whether it did. It does not if the key has another value or none.
func (s *Store) Swap(ctx context.Context, key string, old, value []byte) (bool, error) {
	e, err := s.get(ctx, key)
	if e == nil || !bytes.Equal(e.Value(), old) {
		return false, err
	}
	_, err = s.kv.Update(ctx, key, value, e.Revision())
	if errors.Is(err, jetstream.ErrKeyRevisionMismatch) || errors.Is(err, jetstream.ErrKeyExists) {
		return false, nil
	}
	return err == nil, secretError("swap", key, err)
}

// Delete deletes a value. It does nothing if there is none.
func (s *Store) Delete(ctx context.Context, key string) error {
	err := checkSecretKey(key)
	if err == nil {
		err = s.kv.Purge(ctx, key, jetstream.PurgeTTL(deletedFor))
	}
	return secretError("delete", key, err)
}

// Keys returns the keys under a prefix that have a value, in no order.
func (s *Store) Keys(ctx context.Context, prefix string) ([]string, error) {
	found := map[string]bool{}
	err := s.Watch(ctx, prefix, func(key string, value []byte) error {
		if key == "" {
			return events.ErrStop
		}
		found[key] = value != nil
		return nil
	})
	maps.DeleteFunc(found, func(_ string, has bool) bool { return !has })
	return slices.Collect(maps.Keys(found)), err
}

// How often, and how long after a failure, a watch is begun again.
const (
	watchTries = 10
	watchPause = time.Second
)

// Watch calls fn with every key under a prefix that has a value, then once with an empty key, then with each change,
// until ctx ends or fn returns an error. events.ErrStop ends it without an error. A nil value means that the key was
// deleted, perhaps long ago. A caller that changes a secret receives its own change later.
func (s *Store) Watch(ctx context.Context, prefix string, fn func(key string, value []byte) error) error {
	if prefix != "" {
		if err := checkSecretKey(prefix); err != nil {
			return secretError("watch", prefix, err)
		}
	}
	w, err := s.kv.Watch(ctx, strings.TrimPrefix(prefix+".>", "."))
	for try := 1; err != nil && try < watchTries && ctx.Err() == nil; try++ {
		_ = sleep.For(ctx, watchPause) // a cluster that has just got its majority back does not answer yet
		w, err = s.kv.Watch(ctx, strings.TrimPrefix(prefix+".>", "."))
	}
	if err != nil {
		return secretError("watch", prefix, err)
	}
	defer stopWatch(w)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e, ok := <-w.Updates():
			if !ok && ctx.Err() == nil {
				return secretError("watch", prefix, errors.New("the subscription ended"))
			}
			if !ok {
				return ctx.Err()
			}
			err := hand(e, fn)
			if errors.Is(err, events.ErrStop) {
				return nil
			}
			if err != nil {
				return err
			}
		}
	}
}

// hand calls fn with one update. The library sends nil after the stored values.
func hand(e jetstream.KeyValueEntry, fn func(string, []byte) error) error {
	switch {
	case e == nil:
		return fn("", nil)
	case e.Operation() != jetstream.KeyValuePut:
		return fn(e.Key(), nil)
	}
	return fn(e.Key(), append([]byte{}, e.Value()...))
}

// stopWatch also receives the remaining updates, because the library's callback would block for ever.
func stopWatch(w jetstream.KeyWatcher) {
	_ = w.Stop() // it fails when the connection is closed, and then it is stopped
	go func() {
		for range w.Updates() {
		}
	}()
}

func secretError(verb, key string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s secret %q: %w", verb, key[:min(len(key), maxSecretKey)], err)
}
