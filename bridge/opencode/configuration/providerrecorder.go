package configuration

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/bridge/opencode/outbox"
	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/model"
	"pocketcoder/handlers/record"
	"pocketcoder/projections"
	"pocketcoder/projections/store"
)

const (
	recordPause = 5 * time.Second // before OpenCode is asked again after a failure

	// recordDelay is the time from a start of OpenCode until it is asked for the providers that it cannot use yet. The
	// answer (6 MB) takes OpenCode about 2 s, in which it answers nothing else; the first prompt must not wait for it.
	recordDelay = 30 * time.Second
)

// ProviderRecorder records which model providers OpenCode knows, and whether OpenCode can use them, as records of
// llm_providers. A record is saved only when it has changed. A failure is retried.
type ProviderRecorder struct {
	Outbox  *outbox.Outbox
	Model   *projections.Model
	Records *record.Records
	Next    func() <-chan struct{} // closed when OpenCode is started again
	Logger  *slog.Logger
}

// Run records the providers after each start of OpenCode until ctx ends. OpenCode reads keys only when it starts.
func (r *ProviderRecorder) Run(ctx context.Context) error {
	for failures := 0; ; {
		begun := r.Next()
		var retry <-chan time.Time
		if err := r.record(ctx, begun); err == nil || ctx.Err() != nil {
			failures = 0
		} else {
			level := slog.LevelInfo // the first failure may be OpenCode's end, which is reported by itself
			if failures++; failures > 1 {
				level = slog.LevelWarn
			}
			r.Logger.Log(ctx, level, "record providers", "err", err)
			retry = time.After(recordPause)
		}
		select {
		case <-begun:
		case <-retry:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// record records the providers that OpenCode can use at once, and all others after recordDelay, unless begun is closed
// meanwhile, which means that OpenCode was started again.
func (r *ProviderRecorder) record(ctx context.Context, begun <-chan struct{}) error {
	usable, err := r.Outbox.UsableProviders(ctx)
	if err != nil {
		return err
	}
	disconnect := func(id string) error {
		return r.save(ctx, id, false, record.Fields(map[string]any{"is_connected": false}))
	}
	if err := r.saveAll(ctx, usable, disconnect); err != nil {
		return err
	}
	select {
	case <-time.After(recordDelay):
	case <-begun:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
	all, err := r.Outbox.Providers(ctx)
	if err != nil {
		return err
	}
	return r.saveAll(ctx, all, func(id string) error {
		by := handlers.Command{Actor: events.ActorSystem}
		_, err := r.Records.Delete(ctx, record.Delete{Command: by, Collection: model.Providers, Record: id})
		return err
	})
}

// saveAll saves what has changed since the last time, and calls missing for each record of a provider that is not
// listed.
func (r *ProviderRecorder) saveAll(ctx context.Context, list []client.ModelProvider,
	missing func(id string) error) error {
	stored, err := r.Model.Config(ctx, model.Providers)
	if err != nil {
		return err
	}
	unlisted := map[string]bool{}
	for _, known := range stored {
		unlisted[known.RecordID] = true
	}
	for _, p := range list {
		id := store.RecordID("provider/" + p.ID)
		if err := r.save(ctx, id, !unlisted[id], providerFields(p)); err != nil {
			return fmt.Errorf("record provider %s: %w", p.ID, err)
		}
		delete(unlisted, id)
	}
	for id := range unlisted {
		if err := missing(id); err != nil {
			return err
		}
	}
	return nil
}

func (r *ProviderRecorder) save(ctx context.Context, id string, isNew bool, set map[string]json.RawMessage) error {
	save := record.Save{Command: handlers.Command{Actor: events.ActorSystem}, Collection: model.Providers,
		Record: id, New: isNew, Set: set}
	_, _, err := r.Records.Save(ctx, save)
	return err
}

func providerFields(p client.ModelProvider) map[string]json.RawMessage {
	return record.Fields(map[string]any{
		"provider_id": p.ID, "name": p.Name, "env_vars": append([]string{}, p.Env...), "models": p.Models,
		"reads": p.Reads, "is_connected": p.Connected,
	})
}
