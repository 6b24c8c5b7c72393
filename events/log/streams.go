package log

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/events"
)

// Names of the streams. The package blob names that of contents.
const (
	EventsStream = "EVENTS"
	DeltasStream = "DELTAS"
)

// Options are the settings that an installation may choose.
type Options struct {
	Replicas      int           // of EVENTS and BLOBS: 1 embedded, 3 in a cluster
	DeltaMaxAge   time.Duration // how long streaming fragments are kept
	DeltaMaxBytes int64         // maximum bytes of fragments; the server reserves that much disk space
	Refuse        func() error  // returns why commands are refused now (an Unavailable), nil if they are stored
}

// DefaultOptions are those of a single node.
var DefaultOptions = Options{Replicas: 1, DeltaMaxAge: 7 * 24 * time.Hour, DeltaMaxBytes: 1 << 30}

// EventsConfig returns the configuration of the stream of facts. Events have no time limit and are never rewritten; a
// full stream refuses new ones. Sync to disk on every append is a setting of the server (sync_interval: always), not
// of the stream.
func EventsConfig(o Options) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:               EventsStream,
		Description:        "every fact, for ever",
		Subjects:           []string{events.AllEvents},
		Retention:          jetstream.LimitsPolicy,
		Discard:            jetstream.DiscardNew,
		Storage:            jetstream.FileStorage,
		Replicas:           o.Replicas,
		Compression:        jetstream.S2Compression,
		Duplicates:         2 * time.Minute,
		DenyDelete:         true,
		DenyPurge:          true,
		AllowDirect:        true,
		AllowAtomicPublish: true,
		Metadata:           map[string]string{"config": "1"},
	}
}

// DeltasConfig returns the configuration of the stream of fragments. The server acknowledges them before they are on
// disk, because the closing event of a part has the whole text.
func DeltasConfig(o Options) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        DeltasStream,
		Description: "streaming fragments",
		Subjects:    []string{events.AllDeltas},
		Retention:   jetstream.LimitsPolicy,
		Discard:     jetstream.DiscardOld,
		Storage:     jetstream.FileStorage,
		Replicas:    1, // async persistence exists for one replica only
		MaxAge:      o.DeltaMaxAge,
		MaxBytes:    o.DeltaMaxBytes,
		AllowDirect: true,
		PersistMode: jetstream.AsyncPersistMode,
		Metadata:    map[string]string{"config": "1"},
	}
}
