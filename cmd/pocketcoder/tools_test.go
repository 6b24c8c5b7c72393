package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/matryer/is"
)

// toEnvironment is an environment without a terminal, whose output is kept.
func toEnvironment(vars map[string]string) (environment, *bytes.Buffer) {
	var out bytes.Buffer
	return environment{stdin: strings.NewReader(""), stdout: &out, stderr: &out, getenv: func(name string) string { return vars[name] }}, &out
}

func TestVersionNamesWhatItIsMadeOf(t *testing.T) {
	is := is.New(t)
	out, _, err := runApp(t, "version", "--json")
	is.NoErr(err)
	var v map[string]string
	is.NoErr(json.Unmarshal([]byte(out), &v))
	is.Equal(v["opencode"], "1.18.33")
	for _, name := range []string{"pocketcoder", "go", "nats_server"} {
		is.True(v[name] != "")
	}
}
