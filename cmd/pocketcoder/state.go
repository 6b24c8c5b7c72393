package main

import (
	"context"
	"fmt"
	"sync"

	"pocketcoder/bridge/opencode"
	"pocketcoder/events"
	"pocketcoder/web"
)

// operator is who gives commands with the operator's key.
var operator = events.UserActor("operator")

// load gets ready what must be known before anything goes out or is decided: the read model has caught up with what the
// log held at the start, the bridge knows its sessions, and commands that were running when the system died are lost.
func (s *parts) load(ctx context.Context) error {
	last, err := s.log.Last(ctx)
	if err != nil {
		return err
	}
	if err := s.model.Wait(ctx, last); err != nil {
		return err
	}
	if err := s.bridge.Load(ctx); err != nil {
		return fmt.Errorf("load sessions: %w", err)
	}
	running, err := s.model.RunningExecutions(ctx)
	if err != nil {
		return err
	}
	for _, x := range running {
		if err := s.exec.Lost(ctx, x.Chat, x.ID); err != nil {
			return err
		}
	}
	close(s.loaded)
	s.change()
	<-ctx.Done()
	return ctx.Err()
}

// onceLoaded runs a worker that needs what load gets ready.
func (s *parts) onceLoaded(worker func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-s.loaded:
			return worker(ctx)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// health is the state of every part.
func (s *parts) health() web.Health {
	h := web.Health{}
	h["log"] = web.Part{State: natsState(s.nc.IsConnected()), Detail: map[string]any{"url": s.url}}
	h["read_model"] = s.modelHealth()
	bridge := s.bridge.Condition()
	h["opencode"] = web.Part{State: either(bridge.Connected, web.Ready, web.Starting), Detail: bridge}
	h["sandbox"] = web.Part{State: either(s.worker.pid.Load() != 0, web.Ready, web.Starting), Detail: map[string]any{"pid": s.worker.pid.Load(), "pool": pool}}
	return h
}

func (s *parts) modelHealth() web.Part {
	detail := map[string]any{"seq": s.model.Seq()}
	select {
	case <-s.loaded:
	default:
		return web.Part{State: web.Starting, Detail: detail}
	}
	dead, err := s.model.DeadLetters(context.Background())
	if err != nil {
		detail["error"] = err.Error()
		return web.Part{State: web.Offline, Detail: detail}
	}
	detail["dead_letters"] = dead
	if trouble := s.model.Trouble(); trouble != "" {
		detail["error"] = trouble
	}
	if aside := s.model.SetAside(); aside != "" {
		detail["set_aside"] = aside
	}
	return web.Part{State: either(dead == 0 && s.model.Trouble() == "", web.Ready, web.Degraded), Detail: detail}
}

func natsState(connected bool) web.State { return either(connected, web.Ready, web.Offline) }

func either(is bool, then, otherwise web.State) web.State {
	if is {
		return then
	}
	return otherwise
}

// announceReady calls ready once, when every part is.
func (s *parts) announceReady(ctx context.Context, ready func()) error {
	for !s.health().Ready() {
		select {
		case <-s.changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	ready()
	<-ctx.Done()
	return ctx.Err()
}

// lives gives the OpenCode that runs now to those who talk to it.
type lives struct {
	mu      sync.Mutex
	current *opencode.Generation
	begun   chan struct{} // closed when the next one begins
}

// started is told of each life.
func (l *lives) started(g opencode.Generation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current = &g
	close(l.next())
	l.begun = nil
}

func (l *lives) next() chan struct{} {
	if l.begun == nil {
		l.begun = make(chan struct{})
	}
	return l.begun
}

// client waits for an OpenCode that is alive.
func (l *lives) client(ctx context.Context) (*opencode.Client, error) {
	for {
		l.mu.Lock()
		g, begun := l.current, l.next()
		l.mu.Unlock()
		if g != nil {
			select {
			case <-g.Exited:
			default:
				return g.Client, nil
			}
		}
		select {
		case <-begun:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
