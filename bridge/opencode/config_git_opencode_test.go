package opencode_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode"
	"pocketcoder/bridge/opencode/client"
	"pocketcoder/bridge/opencode/opencodetest"
	"pocketcoder/bridge/opencode/provider"
	"pocketcoder/expect"
)

// TestFIFOsDoNotBlockOpenCode is one test because each start of OpenCode takes seconds.
func TestFIFOsDoNotBlockOpenCode(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	tools := opencodetest.Tools(t)
	base, seen := startModel(t)
	workspace := t.TempDir()
	logged := filepath.Join(t.TempDir(), "log")
	to, err := os.Create(logged)
	is.NoErr(err)
	t.Cleanup(func() { to.Close() })
	ready := make(chan opencode.Generation, 1)
	s := &opencode.Supervisor{
		Tools: tools, Dir: t.TempDir(), Workspace: workspace, Shell: "/bin/sh", Logger: slog.New(slog.NewTextHandler(to, nil)),
		// OpenCode has apply_patch for such names
		Provider: provider.Provider{Model: "demo/gpt-5", BaseURL: base, APIKey: "x", Catalogue: []byte("{}")},
		Started:  func(g opencode.Generation) { ready <- g }, GitLimit: 5 * time.Second,
	}
	confine(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	c := (<-ready).Client
	patchesOfFIFOsAreRefused(t, c, workspace, seen)
	fifosThatGitReadsBlockNoTurn(t, c, filepath.Join(workspace, "repository"))
	expect.Eventually(t, "the log names the git that took too long", func() bool {
		return strings.Contains(expect.ReadFile(t, logged), "command=ls-files")
	})
}

// The names of the FIFOs have characters at which a line ends for JavaScript, not for a patch.
func patchesOfFIFOsAreRefused(t *testing.T, c *client.Client, workspace string, seen func() string) {
	is := is.New(t)
	for i, end := range []string{"\r", "\u2028", "\u2029"} {
		name := "x" + end + "y"
		is.NoErr(syscall.Mkfifo(filepath.Join(workspace, name), 0o600))
		session, err := c.CreateSession(t.Context(), client.NewSession{Directory: workspace, Title: "a title"})
		is.NoErr(err)
		args, err := json.Marshal(map[string]string{"patchText": "*** Begin Patch\n*** Update File: " + name +
			"\n@@\n-a\n+b\n*** End Patch"})
		is.NoErr(err)
		requests := turn(t, c, workspace, session.ID, "@@call apply_patch "+string(args)+"\n@@next\n@@say done",
			idle(t, c, session.ID))
		is.Equal(len(requests), 0)
		expect.Eventually(t, "the model learns why", func() bool {
			return strings.Count(seen(), "is a FIFO. OpenCode opens only") > i
		})
	}
}

// The FIFOs have names that git or ripgrep reads, and are below the top folder of a repository.
func fifosThatGitReadsBlockNoTurn(t *testing.T, c *client.Client, repository string) {
	is := is.New(t)
	is.NoErr(exec.Command("git", "init", "-q", repository).Run())
	for _, name := range []string{".gitignore", ".gitattributes", ".ignore", ".rgignore"} {
		expect.WriteFile(t, filepath.Join(repository, name+".d", "a.txt"), "one\n")
		is.NoErr(syscall.Mkfifo(filepath.Join(repository, name+".d", name), 0o600))
	}
	for range 2 {
		session, err := c.CreateSession(t.Context(), client.NewSession{Directory: repository, Title: "a title"})
		is.NoErr(err)
		turn(t, c, repository, session.ID, "@@say done", idle(t, c, session.ID))
	}
}
