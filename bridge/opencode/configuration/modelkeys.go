package configuration

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"pocketcoder/bridge/opencode"
	"pocketcoder/bridge/opencode/provider"
	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/model"
	"pocketcoder/handlers/network"
	"pocketcoder/handlers/record"
)

// ModelKeys applies the stored keys of model providers, and reports keys that a provider refuses. A refused key is
// reported once. Its refusal ends when the key is replaced, or when it works and was not refused for the time Calm.
// After that, it can be reported again. All fields must be set. Load must be called before OpenCode starts.
type ModelKeys struct {
	Base    provider.Provider // what the operator has set up
	Fixed   bool              // the stored keys are not used
	Stored  *model.ProviderKeys
	Records *record.Records
	Engine  *network.Engine
	Server  *opencode.Supervisor
	Restart func() // asks for a restart of OpenCode if it needs one
	Logger  *slog.Logger
	Changed func() // called when Errors may have changed; must not block
	Calm    time.Duration

	refusals    map[string]*refusal  // by the name of the key
	credentials []network.Credential // in use
	answers     chan answer
	errors      atomic.Pointer[[]string]
}

// answer is the status with which a provider answered a request with a key.
type answer struct {
	network.Credential
	status int
}

// refusal is the time in which a provider refuses a key, also if it accepts the key at times.
type refusal struct {
	last  time.Time
	ended *time.Timer // reports once more that the key works; nil after a refused request
}

// DefaultCalm is the usual value of Calm.
const DefaultCalm = 10 * time.Minute

// maxAnswers is the number of answers that wait to be reported. Further ones are dropped, because the next request has
// an answer too.
const maxAnswers = 100

// Load applies the stored keys for the first time.
func (k *ModelKeys) Load(ctx context.Context) error {
	k.answers, k.refusals = make(chan answer, maxAnswers), map[string]*refusal{}
	k.Engine.Answered = k.answered
	_, err := k.apply(ctx)
	return err
}

// answered takes an answer of a provider. It does not block.
func (k *ModelKeys) answered(c network.Credential, status int) {
	select {
	case k.answers <- answer{c, status}:
	default:
	}
}

// Run applies changes of the stored keys, and reports the providers' answers about them, until ctx ends.
func (k *ModelKeys) Run(ctx context.Context) error {
	if err := k.refresh(ctx); err != nil {
		return err
	}
	changed := make(chan struct{}, 1)
	return handlers.RunAll(ctx,
		func(ctx context.Context) error { return k.Stored.Watch(ctx, func() { signal(changed) }) },
		func(ctx context.Context) error {
			for {
				var err error
				select {
				case <-changed:
					err = k.change(ctx)
				case a := <-k.answers:
					err = k.report(ctx, a)
				case <-ctx.Done():
					return ctx.Err()
				}
				if err != nil && ctx.Err() == nil {
					k.Logger.Error("apply keys of providers", "err", err)
				}
			}
		})
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// change applies the stored keys. It clears the error of a key whose value has changed.
func (k *ModelKeys) change(ctx context.Context) error {
	before, err := k.apply(ctx)
	if err != nil {
		return err
	}
	for _, c := range before {
		same := slices.ContainsFunc(k.credentials, func(now network.Credential) bool {
			return now.Placeholder == c.Placeholder && now.Value == c.Value
		})
		if !same {
			delete(k.refusals, c.Key)
			if err := k.report(ctx, answer{c, http.StatusOK}); err != nil {
				return err
			}
		}
	}
	k.Restart()
	return nil
}

// apply passes the keys to the proxy and to the next start of OpenCode. It returns the credentials used before.
func (k *ModelKeys) apply(ctx context.Context) (before []network.Credential, err error) {
	p := k.Base
	if !k.Fixed {
		values, err := k.Stored.Values(ctx)
		if err != nil {
			return nil, fmt.Errorf("read stored keys of providers: %w", err)
		}
		p = p.With(values)
	}
	_, credentials := p.Withhold()
	k.Server.Replace(p)
	k.Engine.SetCredentials(credentials)
	before, k.credentials = k.credentials, credentials
	return before, nil
}

// modelProvider is a record of llm_providers.
type modelProvider struct {
	ID        string `json:"provider_id"`
	Connected bool   `json:"is_connected"`
	KeyError  string `json:"key_error"`
}

// report stores in a provider's record that the provider refuses a key. If the key works, it clears that. It ignores
// other failures, which say nothing about the key.
func (k *ModelKeys) report(ctx context.Context, a answer) error {
	refused := a.status == http.StatusUnauthorized || a.status == http.StatusForbidden
	if !refused && a.status/100 != 2 {
		return nil
	}
	if k.continues(a, refused) {
		return nil
	}
	all, err := record.All[modelProvider](ctx, k.Records, model.Providers)
	if err != nil {
		return err
	}
	for _, p := range all {
		text := ""
		if refused {
			text = fmt.Sprintf("%s refuses the key %s (status %d). Store another key under Settings, Provider keys.",
				p.Value.ID, a.Key, a.status)
		}
		if !p.Value.Connected || !slices.Contains(a.Providers, p.Value.ID) || p.Value.KeyError == text {
			continue
		}
		if refused {
			k.Logger.Warn("a provider refuses its key", "provider", p.Value.ID, "key", a.Key, "status", a.status)
		}
		_, _, err := k.Records.Save(ctx, record.Save{Command: handlers.Command{Actor: events.ActorSystem},
			Collection: model.Providers, Record: p.ID, Set: record.Fields(map[string]any{"key_error": text})})
		if err != nil {
			return fmt.Errorf("record the key of provider %s: %w", p.Value.ID, err)
		}
		if err := k.refresh(ctx); err != nil {
			return err
		}
	}
	return nil
}

// continues reports whether a refusal goes on although the key has worked. If so, the answer is reported again after
// Calm.
func (k *ModelKeys) continues(a answer, refused bool) bool {
	r := k.refusals[a.Key]
	if refused {
		if r != nil && r.ended != nil {
			r.ended.Stop()
		}
		k.refusals[a.Key] = &refusal{last: time.Now()}
		return false
	}
	if r == nil {
		return false
	}
	left := k.Calm - time.Since(r.last)
	if left <= 0 {
		delete(k.refusals, a.Key)
		return false
	}
	if r.ended == nil {
		r.ended = time.AfterFunc(left, func() { k.answered(a.Credential, a.status) })
	}
	return true
}

// Errors returns a sentence for each key that its provider refuses.
func (k *ModelKeys) Errors() []string {
	if list := k.errors.Load(); list != nil {
		return *list
	}
	return nil
}

// refresh reads the sentences that Errors returns.
func (k *ModelKeys) refresh(ctx context.Context) error {
	all, err := record.All[modelProvider](ctx, k.Records, model.Providers)
	if err != nil {
		return err
	}
	var list []string
	for _, p := range all {
		if p.Value.Connected && p.Value.KeyError != "" {
			list = append(list, p.Value.KeyError)
		}
	}
	k.errors.Store(&list)
	k.Changed()
	return nil
}
