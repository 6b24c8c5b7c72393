package opencode_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode"
	"pocketcoder/bridge/opencode/client"
	"pocketcoder/bridge/opencode/opencodetest"
	"pocketcoder/bridge/opencode/provider"
	"pocketcoder/expect"
)

func TestOpenCodeStartsAgainAfterItsDatabaseWasTruncated(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	tools := opencodetest.Tools(t)
	base, _ := startModel(t)
	dir, err := os.MkdirTemp("/var/tmp", "pocketcoder-damaged-")
	is.NoErr(err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	workspace, data := filepath.Join(dir, "workspace"), filepath.Join(dir, "data", "opencode")
	is.NoErr(os.Mkdir(workspace, 0o700))
	run := func(use func(*client.Client)) {
		ready := make(chan opencode.Generation, 1)
		s := &opencode.Supervisor{
			Tools: tools, Dir: data, Workspace: workspace, Shell: "/bin/sh",
			Logger:   slog.New(slog.NewTextHandler(t.Output(), nil)),
			Provider: provider.Provider{Model: "demo/demo", BaseURL: base, APIKey: "x", Catalogue: []byte("{}")},
			Started:  func(g opencode.Generation) { ready <- g },
		}
		confine(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		select {
		case g := <-ready:
			use(g.Client)
			cancel()
			is.NoErr(<-ended)
		case err := <-ended:
			t.Fatalf("it ended: %v", err)
		}
	}
	create := func(c *client.Client) {
		_, err := c.CreateSession(t.Context(), client.NewSession{Directory: workspace, Title: "a title"})
		is.NoErr(err)
	}
	run(create)
	database := filepath.Join(data, "data", "opencode", "opencode.db")
	info, err := os.Stat(database)
	is.NoErr(err)
	is.NoErr(os.Truncate(database, info.Size()/2))
	_ = os.Remove(database + "-wal") // otherwise it may hold the lost pages
	run(create)
	copies, err := filepath.Glob(filepath.Join(data, opencode.DamagedDir, "*", "opencode.db"))
	is.NoErr(err)
	is.Equal(len(copies), 1)
	is.Equal(len(expect.ReadFile(t, copies[0])), int(info.Size()/2))
}
