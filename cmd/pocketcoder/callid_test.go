package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/expect"
	"pocketcoder/projections"
)

// A model chooses the ids of its calls. Two calls with one id must not share the arguments by which the gate judges
// them.
func TestCallsWithADuplicateIDAreLeftToAPerson(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := openSystem.system(t)
	is.NoErr(os.WriteFile(filepath.Join(p.workspace, "notes.txt"), []byte(strings.Repeat("needle\n", 400_000)), 0o600))
	is.NoErr(os.WriteFile(filepath.Join(p.workspace, ".env"), []byte("PASSWORD=needle\n"), 0o600))
	slow := call("read", map[string]any{"filePath": p.workspace + "/notes.txt", "offset": 390_000})
	for name, second := range map[string]string{
		"a secret file":    call("read", map[string]any{"filePath": p.workspace + "/.env"}),
		"outside":          call("read", map[string]any{"filePath": "/proc/self/environ"}),
		"a folder outside": call("bash", map[string]any{"command": "cat notes.txt", "workdir": "/etc", "description": "d"}),
	} {
		t.Run(name, func(t *testing.T) {
			chat := p.chat(t, "@@callid call_twice\n"+slow+"\n"+second+"\n@@next\n@@say done")
			var left []projections.Permission
			expect.Eventually(t, "a person is asked, or the turn is over", func() bool {
				left = p.leftToAPerson(t, chat)
				return len(left) > 0 || slices.Contains(p.kinds(t.Context(), chat), "opencode.session.idle")
			})
			for _, a := range left {
				p.decide(t, chat, events.PermissionAsk{ID: a.EnginePermission}, events.Denied, "")
			}
			p.turnEnds(t, chat)
			for _, a := range rows[projections.Permission](t, p, "permissions", chat) {
				if patterns := string(a.Patterns); a.Permission == "read" && !strings.Contains(patterns, "notes.txt") &&
					a.Status == "authorized" {
					t.Errorf("%s %s was authorized: %s", a.Permission, patterns, a.Rule)
				}
			}
			for _, c := range p.tools(t, chat) {
				expect.Lacks(t, c.State.Output, "PASSWORD")
				expect.Lacks(t, c.State.Output, "PATH=")
			}
		})
	}
}
