package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"pocketcoder/bridge/opencode"
	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/projections"
)

const (
	providersPause = 5 * time.Second // before OpenCode is asked again after a failure

	// providersDelay is the time from a start of OpenCode until it is asked for its providers. The answer (6 MB) takes OpenCode
	// about 2 s, in which it answers nothing else; the first prompt must not wait for it.
	providersDelay = 10 * time.Second
)

// watchProviders records which model providers OpenCode knows, and whether it can use them: after each of its starts, because
// it learns of a key by being started with it.
func (s *parts) watchProviders(ctx context.Context) error {
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
			s.o.logger.Log(ctx, level, "record providers", "err", err)
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

// recordProviders saves what has changed since the last time, and takes away what OpenCode does not know any more. It does
// nothing if begun is closed meanwhile, which means that OpenCode was started again.
func (s *parts) recordProviders(ctx context.Context, begun <-chan struct{}) error {
	if err := s.bridge.AwaitModels(ctx); err != nil {
		return err
	}
	select {
	case <-time.After(providersDelay):
	case <-begun:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
	all, err := s.bridge.Providers(ctx)
	if err != nil {
		return err
	}
	kept, err := s.model.Kept(ctx, "llm_providers")
	if err != nil {
		return err
	}
	gone := map[string]bool{}
	for _, r := range kept {
		gone[r.RecordID] = true
	}
	by := handlers.Command{Actor: events.ActorSystem}
	for _, p := range all {
		id := projections.RecordID("provider/" + p.ID)
		save := handlers.SaveRecord{Command: by, Collection: "llm_providers", Record: id, New: !gone[id], Set: providerFields(p)}
		if _, _, err := s.handlers.SaveRecord(ctx, save); err != nil {
			return fmt.Errorf("record provider %s: %w", p.ID, err)
		}
		delete(gone, id)
	}
	for id := range gone {
		if _, err := s.handlers.DeleteRecord(ctx, handlers.DeleteRecord{Command: by, Collection: "llm_providers", Record: id}); err != nil {
			return err
		}
	}
	return nil
}

func providerFields(p opencode.ModelProvider) map[string]json.RawMessage {
	set := map[string]json.RawMessage{}
	for field, value := range map[string]any{
		"provider_id": p.ID, "name": p.Name, "env_vars": p.Env, "models": p.Models, "is_connected": p.Connected,
	} {
		set[field], _ = json.Marshal(value) // texts, lists of texts and a bool
	}
	return set
}
