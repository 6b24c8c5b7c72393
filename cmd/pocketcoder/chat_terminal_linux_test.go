package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/projections"
)

// talk runs "pocketcoder chat" in a terminal.
func (p *process) talk(t *testing.T, args ...string) *seat {
	t.Helper()
	cmd := exec.Command(filepath.Join(binaries, "pocketcoder"), append([]string{"chat", "--data", string(p.data)}, args...)...)
	cmd.Env = append(os.Environ(), "TERM=xterm-256color")
	return sit(t, cmd)
}

// twoCommands asks for two commands at once.
func twoCommands(first, second string) string {
	return call("bash", map[string]any{"command": first, "description": "first"}) + "\n" +
		call("bash", map[string]any{"command": second, "description": "second"}) + "\n@@next\n@@say done"
}

func TestATypedAnswerIsOnlyForTheRequestThatWasShown(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	chat := p.chat(t, twoCommands("printf first >/dev/null", "printf second >/dev/null"))
	asks := []events.PermissionAsk{p.ask(t, chat, 0), p.ask(t, chat, 1)}
	s := p.talk(t, chat)
	s.sees("allow it?")
	shown, other := asks[0], asks[1]
	if !strings.Contains(s.seen.String(), shown.Command()) {
		shown, other = other, shown
	}
	s.types("y")
	s.sees("\x1b[0my") // it is on the screen
	p.decide(t, chat, shown, events.Authorized, "")
	s.sees(other.Command())
	s.types("\r")
	s.sees(`"y" was not used`)
	for _, row := range rows[projections.Permission](t, p, "permissions", chat) {
		if row.EnginePermission == other.ID {
			is.Equal(row.Status, projections.PermissionDraft) // nobody decided the second
		}
	}
	s.types("y\r") // now it is shown
	p.turnEnds(t, chat)
	for _, row := range rows[projections.Permission](t, p, "permissions", chat) {
		if row.EnginePermission == other.ID {
			is.Equal([]string{row.Status, row.DecidedBy}, []string{projections.PermissionAuthorized, "user:operator"})
		}
	}
	s.types("\x04")
	s.leaves()
}
