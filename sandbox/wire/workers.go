package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
)

type WorkerInfo struct {
	Name      string `json:"name"`
	Isolation string `json:"isolation"`
	Reason    string `json:"reason,omitempty"` // why it has this isolation level
	Apart     bool   `json:"apart,omitempty"`  // see Start.Apart
	Workspace string `json:"workspace"`
	Running   int    `json:"running"`  // running commands
	Capacity  int    `json:"capacity"` // maximum of running commands; 0 is no limit
	Version   string `json:"version"`
}

// Workers lists the workers of a pool that answer within Gathering, by name. It returns an empty list if none answers.
func Workers(ctx context.Context, nc *nats.Conn, pool string) ([]WorkerInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, Gathering)
	defer cancel()
	workers, err := gather(ctx, nc, RunSubject(pool))
	if err != nil {
		return nil, fmt.Errorf("list workers of pool %s: %w", pool, err)
	}
	slices.SortFunc(workers, func(a, b WorkerInfo) int { return strings.Compare(a.Name, b.Name) })
	return workers, nil
}

func gather(ctx context.Context, nc *nats.Conn, subject string) (workers []WorkerInfo, err error) {
	answers, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		return nil, err
	}
	defer answers.Unsubscribe()
	err = nc.PublishMsg(&nats.Msg{Subject: subject, Reply: answers.Subject, Header: nats.Header{frameHeader: {frameWho}}})
	if err != nil {
		return nil, err
	}
	for {
		m, err := answers.NextMsgWithContext(ctx)
		switch {
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrNoResponders):
			return workers, nil
		case err != nil:
			return nil, err
		}
		var w WorkerInfo
		if json.Unmarshal(m.Data, &w) != nil {
			continue // not a worker
		}
		for _, s := range []*string{&w.Name, &w.Isolation, &w.Reason, &w.Workspace, &w.Version} {
			*s = OneLine(*s)
		}
		workers = append(workers, w)
	}
}

func (s *server) sendInfo(m *nats.Msg) {
	info := s.Info
	s.mu.Lock()
	for _, x := range s.calls {
		if x.request.Op == Run && x.isGranted() {
			info.Running++
		}
	}
	s.mu.Unlock()
	body, _ := json.Marshal(info) // a struct of numbers and strings
	s.nc.Publish(m.Reply, body)
}
