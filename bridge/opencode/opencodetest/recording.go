package opencodetest

import (
	"bytes"
	"embed"
	"encoding/json"
	"io/fs"
	"path"
	"strings"
	"testing"
)

//go:embed testdata
var recordings embed.FS

func RecordingNames(t testing.TB) (names []string) {
	t.Helper()
	paths, err := fs.Glob(recordings, "testdata/*.jsonl")
	if err != nil || len(paths) == 0 {
		t.Fatalf("list recordings: %d found, %v", len(paths), err)
	}
	for _, p := range paths {
		names = append(names, strings.TrimSuffix(path.Base(p), ".jsonl"))
	}
	return names
}

// RecordedEvents returns the events of a recording as OpenCode sent them. The first says that the connection is there.
func RecordedEvents(t testing.TB, name string) (all [][]byte) {
	t.Helper()
	text, err := recordings.ReadFile("testdata/" + name + ".jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var l struct{ Ev json.RawMessage }
		if err := json.Unmarshal(line, &l); err != nil {
			t.Fatalf("recording %s: %v", name, err)
		}
		if l.Ev != nil { // the last line says how the recording ended
			all = append(all, l.Ev)
		}
	}
	return all
}
