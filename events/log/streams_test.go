package log

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events/log/blob"
	"pocketcoder/events/secret"
)

var updateStreams = flag.Bool("update-streams", false, "accept the configurations of the streams as they are now")

func TestStreamConfigurations(t *testing.T) {
	cluster := DefaultOptions
	cluster.Replicas = 3
	for name, o := range map[string]Options{"one": DefaultOptions, "three": cluster} {
		for stream, config := range map[string]any{"EVENTS": EventsConfig(o), "DELTAS": DeltasConfig(o),
			"BLOBS": blob.Config(o.Replicas), "SECRETS": secret.Config(o.Replicas)} {
			var b bytes.Buffer
			encoder := json.NewEncoder(&b)
			encoder.SetEscapeHTML(false)
			encoder.SetIndent("", "  ")
			is.New(t).NoErr(encoder.Encode(config))
			file := filepath.Join("testdata", "streams", name, stream+".json")
			if *updateStreams {
				is.New(t).NoErr(os.WriteFile(file, b.Bytes(), 0o644))
			}
			want, err := os.ReadFile(file)
			is.New(t).NoErr(err)
			is.New(t).Equal(b.String(), string(want)) // accept with -update
		}
	}
}
