package app

import (
	"fmt"
	"time"

	"pocketcoder/cmd/datadir"
	"pocketcoder/events/log"
	"pocketcoder/ops/natsconf"
	"pocketcoder/web/api"
)

// NATSConfig returns the configuration of the embedded server, which is also the base of that of an external one.
func NATSConfig(d datadir.Dir, keys natsconf.Keys) natsconf.Config {
	return natsconf.Config{
		Name: "pocketcoder", Listen: "127.0.0.1:0", StoreDir: d.Path("nats"), Keys: keys.Public,
		Pools: []string{Pool},
	}
}

// streamOptions returns the limits of the streams. Fragments get an eighth of the free space, so that a small disk is
// left to the events.
func streamOptions(o Options) log.Options {
	streams := log.DefaultOptions
	streams.Replicas = o.Replicas
	if free, err := natsconf.Free(string(o.Data)); err == nil && o.NATS == "" {
		streams.DeltaMaxBytes = min(streams.DeltaMaxBytes, int64(free)/8)
	}
	return streams
}

// logHealth returns the state of the log. It is offline while nothing is stored. It is degraded while the disk is
// almost full, while the number of redacted secrets is used up or a stored secret is not redacted, and after a loss
// until a person has acknowledged the loss.
func (s *System) logHealth() api.Part {
	detail := map[string]any{"url": s.url}
	part := api.Part{State: either(s.nc.IsConnected(), api.Ready, api.Offline), Detail: detail}
	if trouble := s.disk.Trouble(); trouble != "" {
		part.State, detail["error"] = api.Offline, trouble
		return part
	}
	if lost := s.quorum.Lost(); lost > 0 {
		part.State, detail["error"] = api.Offline, fmt.Sprintf(
			"the log stores nothing: no majority of the NATS servers has answered for %d s", int(lost.Seconds()))
		return part
	}
	if since, err := s.log.Failing(); err != nil {
		part.State, detail["error"] = api.Offline, fmt.Sprintf("the log has stored nothing for %d s: %v",
			int(time.Since(since).Seconds()), err)
		return part
	}
	if lost := s.nats.Trouble(); lost != "" && part.State == api.Ready {
		part.State, detail["error"] = api.Degraded, lost
		return part
	}
	if full := s.log.Full(); full != "" && part.State == api.Ready {
		part.State, detail["error"] = api.Degraded, "secrets: "+full
		return part
	}
	if full := s.disk.AlmostFull(); full != "" && part.State == api.Ready {
		part.State, detail["error"] = api.Degraded, full
	}
	return part
}
