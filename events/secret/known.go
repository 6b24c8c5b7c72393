package secret

import (
	"bytes"
	"io"
	"sync"
	"sync/atomic"
)

// Known holds the secrets of this installation, by group. It is safe for concurrent use.
type Known struct {
	redactor atomic.Pointer[Redactor] // nil when the groups have changed
	mu       sync.Mutex               // guards what follows
	own      Redactor                 // of the secrets that NewKnown received
	groups   map[string]secretGroup
}

// secretGroup are the secrets of a group.
type secretGroup struct {
	secrets int
	forms   [][]byte // their encodings
}

// NewKnown returns a set with the secrets of own, which Conceal never changes.
func NewKnown(own Redactor) *Known {
	return &Known{own: own, groups: map[string]secretGroup{}}
}

// Redactor returns a redactor for the present secrets.
func (k *Known) Redactor() Redactor {
	if r := k.redactor.Load(); r != nil {
		return *r
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	var forms [][]byte
	for _, group := range k.groups {
		forms = append(forms, group.forms...)
	}
	r := k.own.with(forms)
	k.redactor.Store(&r)
	return r
}

// MaxConcealed is the number of secrets that Conceal accepts in all groups together.
const MaxConcealed = 2000

// Conceal replaces the secrets of a group. They are redacted from now on; without secrets, the group is deleted. Keys
// of JSON objects are not redacted, because people choose some of these secrets. Conceal returns the number of
// secrets, the last ones, that it does not accept because of MaxConcealed; they are not redacted.
func (k *Known) Conceal(group string, secrets ...string) (left int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.groups, group)
	room := MaxConcealed
	for _, other := range k.groups {
		room -= other.secrets
	}
	taken := secrets[:min(len(secrets), room)]
	if len(taken) > 0 {
		k.groups[group] = secretGroup{len(taken), formsOf(taken)}
	}
	k.redactor.Store(nil)
	return len(secrets) - len(taken)
}

// Writer returns a writer that redacts a stream with the secrets that are known at each write. It holds back an end
// that may be the start of a secret, so that it finds a secret that is split over two writes. Close writes the rest;
// it does not close w.
func (k *Known) Writer(w io.Writer) io.WriteCloser { return &redactWriter{known: k, w: w} }

type redactWriter struct {
	known *Known
	w     io.Writer
	rest  []byte
}

func (w *redactWriter) Write(p []byte) (int, error) {
	r, whole := w.known.Redactor(), p
	if len(w.rest) > 0 {
		whole = append(w.rest, p...)
	}
	clean := r.Bytes(whole)
	ready := len(clean) - r.values.begun(clean)
	w.rest = bytes.Clone(clean[ready:])
	return len(p), w.pass(clean[:ready])
}

func (w *redactWriter) pass(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	_, err := w.w.Write(p)
	return err
}

func (w *redactWriter) Close() error {
	rest := w.known.Redactor().Bytes(w.rest) // it may have become a secret meanwhile
	w.rest = nil
	return w.pass(rest)
}
