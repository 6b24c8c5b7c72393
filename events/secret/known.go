package secret

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
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

// Source says where secrets come from. Each source has a budget of its own, so that the secrets of one source never
// leave those of another in texts.
type Source string

// The sources of secrets. System are the random credentials that this process makes for itself. A secret of another
// source passes Check when a person sets it. Secrets that are stored since an earlier version may not: see redacts.
const (
	System       Source = "credentials of this process"
	Environment  Source = "secrets of the environment"
	MCP          Source = "values of MCP servers"
	ProviderKeys Source = "keys of providers"
	Channels     Source = "tokens of channels"
	Targets      Source = "tokens of webhook targets"
	Webhooks     Source = "tokens of webhooks"
)

// budgets are the numbers of secrets that Conceal accepts, by source.
var budgets = map[Source]int{System: 600, Environment: 10, MCP: 400, ProviderKeys: 400, Channels: 100, Targets: 100,
	Webhooks: 400}

// Budget returns the number of secrets that Conceal accepts from a source, in all groups together.
func (s Source) Budget() int { return budgets[s] }

// redacts reports whether Conceal replaces a secret, although it may be stored since a time before Check.
func (s Source) redacts(secret string) bool {
	// Any account could choose the token of its webhook, and must not hide its words in the chats of all others for ever.
	// Ordinary settings, such as a region, are stored beside the key of a provider.
	if s == Webhooks || s == ProviderKeys {
		return Check(secret) == nil
	}
	return len(secret) >= minSecret // an administrator chose it, and the log must not show it after an upgrade either
}

// replacements say how a person replaces a secret that is too weak to be redacted. Other sources have no such secrets.
var replacements = map[Source]string{
	Environment: "choose a longer secret and start again",
	MCP:         "store a longer value with \"pocketcoder mcp secret\", or write an ordinary setting into the command",
	Channels:    "save the channel with a longer token or password",
	Targets:     "make a new token with \"pocketcoder webhook token\"",
	Webhooks:    "make a new token with \"pocketcoder webhook token\"",
}

type secretGroup struct {
	source  Source
	secrets int
	left    int      // secrets that did not fit into the budget
	weak    int      // secrets that are not redacted, and that a person must replace
	forms   [][]byte // encodings of the secrets
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

// Conceal replaces the secrets of a group. They are redacted from now on; without secrets, the group is deleted. Keys
// of JSON objects are not redacted, because people choose some of these secrets. Conceal does not redact weak secrets;
// Full names them. Conceal returns the number of secrets that exceed the budget of the source: the last ones, which it
// does not redact.
func (k *Known) Conceal(source Source, group string, secrets ...string) (left int) {
	weak := 0
	secrets = slices.DeleteFunc(slices.Clone(secrets), func(s string) bool {
		if s == "" || source.redacts(s) {
			return s == ""
		}
		weak++
		return true
	})
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.groups, group)
	taken := secrets[:min(len(secrets), max(0, source.Budget()-k.count(source)))]
	left = len(secrets) - len(taken)
	if len(secrets)+weak > 0 {
		k.groups[group] = secretGroup{source, len(taken), left, weak, formsOf(taken)}
	}
	k.redactor.Store(nil)
	return left
}

// maxNamed is the number of groups that Full names.
const maxNamed = 5

// count returns the number of redacted secrets of a source. k.mu must be held.
func (k *Known) count(source Source) (n int) {
	for _, g := range k.groups {
		if g.source == source {
			n += g.secrets
		}
	}
	return n
}

// Full says which sources have used up their budget, or have secrets that did not fit or are too weak, and how to
// replace these. It is empty if none has.
func (k *Known) Full() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	left, weak := map[Source]int{}, map[Source][]string{}
	for name, g := range k.groups {
		left[g.source] += g.left
		if g.weak > 0 {
			weak[g.source] = append(weak[g.source], name)
		}
	}
	var full []string
	for _, source := range slices.Sorted(maps.Keys(budgets)) {
		if groups, how := weak[source], replacements[source]; len(groups) > 0 && how != "" {
			slices.Sort(groups)
			full = append(full, fmt.Sprintf("%s that are too short or too easy to guess are not redacted (%s): %s", source,
				strings.Join(groups[:min(len(groups), maxNamed)], ", "), how))
		}
		if left[source] > 0 {
			full = append(full, fmt.Sprintf("%d of the %s are not redacted, because at most %d can be", left[source], source,
				source.Budget()))
		} else if k.count(source) >= source.Budget() {
			full = append(full, fmt.Sprintf("no further %s are accepted, because at most %d can be redacted", source,
				source.Budget()))
		}
	}
	return strings.Join(full, "; ")
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
