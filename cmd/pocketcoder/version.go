package main

import (
	"context"
	"fmt"
	"runtime"

	"pocketcoder/bridge/opencode"
)

const versionUsage = `pocketcoder version: print the versions of this program and of what it is made of.

  pocketcoder version
  pocketcoder version --json
`

// versions is what this program is made of.
type versions struct {
	PocketCoder string `json:"pocketcoder"`
	Go          string `json:"go"`
	OpenCode    string `json:"opencode"` // that it is written for, and installs
	NATSServer  string `json:"nats_server"`
}

func runVersion(_ context.Context, env environment, args []string) error {
	fs := newFlags(env, "version", versionUsage)
	asJSON := fs.Bool("json", false, "print JSON")
	if _, err := parse(fs, args, 0); err != nil {
		return err
	}
	v := versions{version(), runtime.Version(), opencode.Version, moduleVersion("github.com/nats-io/nats-server/v2")}
	if *asJSON {
		return printJSON(env.stdout, v)
	}
	_, err := fmt.Fprintf(env.stdout, "pocketcoder %s\ngo          %s\nopencode    %s\nnats-server %s\n", v.PocketCoder, v.Go, v.OpenCode, v.NATSServer)
	return err
}
