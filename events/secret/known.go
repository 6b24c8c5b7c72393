package secret

import (
	"bytes"
	"io"
	"sync"
	"sync/atomic"
)

// Known are the secrets of this installation that are known now, by group. It is safe for concurrent use.
type Known struct {
	redactor atomic.Pointer[Redactor] // nil when the groups have changed
	mu       sync.Mutex               // guards what follows
	own      Redactor                 // of the secrets that NewKnownSecrets received
	groups   map[string]concealed
}

// concealed are the secrets of a group.
type concealed struct {
	secrets int
	forms   [][]byte // as they may stand in a text
}

// NewKnown returns a set with the secrets of own, which Conceal never changes.
func NewKnown(own Redactor) *Known {
	return &Known{own: own, groups: map[string]concealed{}}
}

// Redactor knows the secrets of this installation that are known now.
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

// MaxConcealed is how many secrets Conceal takes in all.
const MaxConcealed = 2000

// Conceal makes these the secrets of a group that are replaced in whatever is stored from now on, in place of those it had:
// with none, the group is forgotten. The keys of JSON objects stay as they are, because people choose some of these secrets.
// It gives how many are left out, the last ones, because there are MaxConcealed already: those pass.
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
		k.groups[group] = concealed{len(taken), formsOf(taken)}
	}
	k.redactor.Store(nil)
	return len(secrets) - len(taken)
}

// Writer redacts a stream, of the secrets that are known when each piece of it is written: it holds back an end that may be
// the beginning of a secret, so one that is split over two writes is still found, and nothing else. Close writes the rest; it
// does not close w.
func (k *Known) Writer(w io.Writer) io.WriteCloser { return &redactWriter{known: k, w: w} }

type redactWriter struct {
	known *Known
	w     io.Writer
	rest  []byte
}

func (w *redactWriter) Write(p []byte) (int, error) {
	r := w.known.Redactor()
	clean := r.Bytes(append(w.rest, p...))
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
	rest := w.known.Redactor().Bytes(w.rest) // a secret it was not when it was held back
	w.rest = nil
	return w.pass(rest)
}
