package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

// A model chooses the ids of its calls. Two calls with one id must not share the arguments by which the gate judges
// them.
func TestCallsWithADuplicateIDAreLeftToAPerson(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := openSystem.system(t)
	is.NoErr(os.WriteFile(filepath.Join(p.workspace, "notes.txt"), []byte(strings.Repeat("needle\n", 100_000)), 0o600))
	is.NoErr(os.WriteFile(filepath.Join(p.workspace, ".env"), []byte("PASSWORD=needle\n"), 0o600))
	defer os.Remove(filepath.Join(p.workspace, "notes.txt"))
	slow := call("read", map[string]any{"filePath": p.workspace + "/notes.txt", "offset": 90_000})
	secret := call("read", map[string]any{"filePath": p.workspace + "/.env"})
	chat := p.chat(t, "@@callid call_twice\n"+slow+"\n"+secret+"\n@@next\n@@say done")
	var left []projections.Permission
	expect.Eventually(t, "a person is asked, or the turn is over", func() bool {
		left = p.leftToAPerson(t, chat)
		return len(left) > 0 || slices.Contains(p.kinds(t.Context(), chat), "opencode.session.idle")
	})
	for _, a := range left {
		p.decide(t, chat, events.PermissionRequest{ID: a.EnginePermission}, events.Denied, "")
	}
	p.turnEnds(t, chat)
	for _, a := range rows[projections.Permission](t, p, "permissions", chat) {
		if patterns := string(a.Patterns); !strings.Contains(patterns, "notes.txt") && a.Status == "authorized" {
			t.Errorf("%s %s was authorized: %s", a.Permission, patterns, a.Rule)
		}
	}
	for _, c := range p.tools(t, chat) {
		expect.Lacks(t, c.State.Output, "PASSWORD")
	}
}
