package main

import (
	"encoding/json"
	"testing"

	"github.com/matryer/is"
)

func TestVersionListsItsParts(t *testing.T) {
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
