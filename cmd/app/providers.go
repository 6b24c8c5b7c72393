package app

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/record"
	"pocketcoder/projections/store"
)

const (
	providersPause = 5 * time.Second // before OpenCode is asked again after a failure

	// providersDelay is the time from a start of OpenCode until it is asked for the providers that it cannot use yet. The
	// answer (6 MB) takes OpenCode about 2 s, in which it answers nothing else; the first prompt must not wait for it.
	providersDelay = 30 * time.Second
)

// watchProviders records which model providers OpenCode knows, and whether it can use them: after each of its starts,
// because it learns of a key by being started with it.
func (s *System) watchProviders(ctx context.Context) error {
	for failures := 0; ; {
		begun := s.lives.awaited()
		var again <-chan time.Time
		if err := s.recordProviders(ctx, begun); err == nil || ctx.Err() != nil {
			failures = 0
		} else {
			level := slog.LevelInfo // the first failure may be OpenCode's end, which is reported by itself
			if failures++; failures > 1 {
				level = slog.LevelWarn
			}
			s.o.Logger.Log(ctx, level, "record providers", "err", err)
			again = time.After(providersPause)
		}
		select {
		case <-begun:
		case <-again:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// recordProviders records the providers that OpenCode can use at once, and all others after providersDelay, unless
// begun is closed meanwhile, which means that OpenCode was started again.
func (s *System) recordProviders(ctx context.Context, begun <-chan struct{}) error {
	usable, err := s.outbox.UsableProviders(ctx)
	if err != nil {
		return err
	}
	disconnect := func(id string) error {
		return s.saveProvider(ctx, id, false, map[string]json.RawMessage{"is_connected": json.RawMessage("false")})
	}
	if err := s.saveProviders(ctx, usable, disconnect); err != nil {
		return err
	}
	select {
	case <-time.After(providersDelay):
	case <-begun:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
	all, err := s.outbox.Providers(ctx)
	if err != nil {
		return err
	}
	return s.saveProviders(ctx, all, func(id string) error {
		by := handlers.Command{Actor: events.ActorSystem}
		_, err := s.records.Delete(ctx, record.Delete{Command: by, Collection: "llm_providers", Record: id})
		return err
	})
}

// saveProviders saves what has changed since the last time, and calls missing for each record of a provider that is
// not listed.
func (s *System) saveProviders(ctx context.Context, list []client.ModelProvider, missing func(id string) error) error {
	kept, err := s.model.Config(ctx, "llm_providers")
	if err != nil {
		return err
	}
	unlisted := map[string]bool{}
	for _, r := range kept {
		unlisted[r.RecordID] = true
	}
	for _, p := range list {
		id := store.RecordID("provider/" + p.ID)
		if err := s.saveProvider(ctx, id, !unlisted[id], providerFields(p)); err != nil {
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

func (s *System) saveProvider(ctx context.Context, id string, isNew bool, set map[string]json.RawMessage) error {
	save := record.Save{Command: handlers.Command{Actor: events.ActorSystem}, Collection: "llm_providers", Record: id,
		New: isNew, Set: set}
	_, _, err := s.records.Save(ctx, save)
	return err
}

func providerFields(p client.ModelProvider) map[string]json.RawMessage {
	set := map[string]json.RawMessage{}
	for field, value := range map[string]any{
		"provider_id": p.ID, "name": p.Name, "env_vars": append([]string{}, p.Env...), "models": p.Models, "is_connected": p.Connected,
	} {
		set[field], _ = json.Marshal(value) // texts, lists of texts and a bool
	}
	return set
}
