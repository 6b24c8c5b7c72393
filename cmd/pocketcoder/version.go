package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

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

// version is that of this program: the module's, and the commit it was built from when the build knew it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return unknownVersion
	}
	v := []string{info.Main.Version}
	if v[0] == "" {
		v[0] = "(devel)"
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && v[0] == "(devel)":
			v = append(v, s.Value[:min(len(s.Value), 12)])
		case s.Key == "vcs.modified" && s.Value == "true" && v[0] == "(devel)":
			v = append(v, "modified")
		}
	}
	return strings.Join(v, " ")
}

const unknownVersion = "unknown"

// moduleVersion is the version of a module that this program is built with.
func moduleVersion(path string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == path {
				return m.Version
			}
		}
	}
	return unknownVersion
}
