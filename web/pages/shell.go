package pages

import (
	"fmt"
	"net/http"

	"github.com/a-h/templ"
	"github.com/pocketbase/dbx"

	"pocketcoder/web/api"
	"pocketcoder/web/pages/site"
)

// showShell shows a terminal in which shell.js opens a shell of the person's own.
func (p Pages) showShell(r *http.Request, caller api.Caller, nonce string) (templ.Component, error) {
	v, err := p.readTerminal(r.Context(), caller, r.PathValue("id"), func(dbx.Builder, string) ([]execution, bool, error) {
		return nil, false, nil
	})
	if err != nil {
		return nil, err
	}
	if err := p.API.PersonMayWrite(r, caller, v.chat.ID); err != nil {
		return nil, err
	}
	return shellPage(v, nonce, r.URL.Query().Get("private") == "true"), nil
}

// shellPath is the address of the page with a shell.
func shellPath(v terminalView) string { return site.ChatPath(v.chat.ID) + "/shell" }

const privateHint = "The log does not record what a private shell prints."

// recordedText says whether the log records what the shell prints.
func recordedText(private bool) string {
	if private {
		return privateHint
	}
	return "What the shell prints is recorded."
}

func noScriptText(v terminalView) string {
	return fmt.Sprintf("A shell in the browser needs JavaScript. Or use a terminal: pocketcoder sandbox shell %s",
		v.chat.ID)
}

// phoneKeys are those that the keyboard of a phone lacks. shell.js knows what they send.
var phoneKeys = []struct{ name, shown, label string }{
	{"Escape", "Esc", "Escape"}, {"Tab", "Tab", "Tab"}, {"Control", "Ctrl", "Control, for the next key"},
	{"ArrowLeft", "←", "Left"}, {"ArrowDown", "↓", "Down"}, {"ArrowUp", "↑", "Up"}, {"ArrowRight", "→", "Right"},
}
