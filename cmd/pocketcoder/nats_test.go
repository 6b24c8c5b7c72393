package main

import (
	"slices"
	"testing"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/cmd/app"
	"pocketcoder/ops/natsconf"
)

// A reader may make consumers of its own. It may neither change nor use those that the system works with.
func TestReadersAreKeptFromAllWorkOfTheSystem(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	reserved := app.NATSConfig(p.data, natsconf.Keys{}).Reserved
	js, err := jetstream.NewWithAPIPrefix(p.Conn, natsconf.ReaderAPI)
	is.NoErr(err)
	stream, err := js.Stream(t.Context(), "EVENTS")
	is.NoErr(err)
	found := 0
	consumers := stream.ListConsumers(t.Context())
	for info := range consumers.Info() {
		if name := info.Config.Durable; name != "" && info.Config.InactiveThreshold == 0 {
			found++
			if !slices.Contains(reserved, name) {
				t.Errorf("a reader may change the consumer %q", name)
			}
		}
	}
	is.NoErr(consumers.Err())
	is.Equal(found, len(reserved))
}
