package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/mdp/qrterminal/v3"
	"golang.org/x/term"

	"pocketcoder/handlers/account"
)

// setup shows the link that makes the first administrator.
func (p *progress) setup(base string, s account.Setup) {
	p.mu.Lock()
	defer p.mu.Unlock()
	file, ok := p.w.(*os.File)
	writeSetup(p.w, base, s, ok && term.IsTerminal(int(file.Fd())))
}

// setupLink has the token in its fragment, which browsers do not send: no log and no referrer gets it.
func setupLink(base string, s account.Setup) string { return base + "/setup#" + s.Token }

func writeSetup(w io.Writer, base string, s account.Setup, terminal bool) {
	link := setupLink(base, s)
	fmt.Fprintf(w, `
Nobody can log in yet. Who opens this link becomes the administrator; it works once, until %s:

  %s

`, s.Expires.Local().Format(time.TimeOnly), link)
	if terminal {
		qrterminal.GenerateWithConfig(link, qrterminal.Config{Level: qrterminal.L, Writer: w, HalfBlocks: true, QuietZone: 2})
	}
}
