package cli

import (
	"context"
	"fmt"
	"runtime"

	"pocketcoder/bridge/opencode/install"
	"pocketcoder/cmd/program"
)

const versionUsage = `pocketcoder version: print the versions of this program and of its parts.

  pocketcoder version
  pocketcoder version --json
`

// versions are the versions of this program and its parts.
type versions struct {
	PocketCoder string `json:"pocketcoder"`
	Go          string `json:"go"`
	OpenCode    string `json:"opencode"` // the version that it installs
	NATSServer  string `json:"nats_server"`
}

func Version(_ context.Context, env Environment, args []string) error {
	fs := NewFlags(env, "version", versionUsage)
	asJSON := fs.Bool("json", false, "print JSON")
	if _, err := Parse(fs, args, 0); err != nil {
		return err
	}
	v := versions{program.Version(), runtime.Version(), install.OpenCodeVersion,
		program.VersionOfModule("github.com/nats-io/nats-server/v2")}
	if *asJSON {
		return PrintJSON(env.Stdout, v)
	}
	_, err := fmt.Fprintf(env.Stdout, "pocketcoder %s\ngo          %s\nopencode    %s\nnats-server %s\n", v.PocketCoder,
		v.Go, v.OpenCode, v.NATSServer)
	return err
}
