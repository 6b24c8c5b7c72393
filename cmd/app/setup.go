package app

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/mdp/qrterminal/v3"
	"golang.org/x/term"

	"pocketcoder/handlers/account"
)

// Setup prints the link with which the first administrator is made, on a terminal also as a QR code. base is the URL
// under which people reach the web server.
func (p *progress) Setup(base string, s account.Setup) {
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
No account exists yet. Open this link to create the administrator (valid once, until %s):

  %s

`, s.Expires.Local().Format(time.TimeOnly), link)
	switch {
	case !reachedByOthers(base):
		fmt.Fprintf(w, "That address works only on this machine. %s\n\n", reachHelp(base))
	case terminal:
		qrterminal.GenerateWithConfig(link, qrterminal.Config{Level: qrterminal.L, Writer: w, HalfBlocks: true, QuietZone: 2})
	}
}

// reachedByOthers reports whether another device can reach a URL: its host is not this machine's own name for itself.
func reachedByOthers(base string) bool {
	u, err := url.Parse(base)
	if err != nil {
		return false
	}
	host := u.Hostname()
	ip := net.ParseIP(host)
	return host != "" && host != "localhost" && !strings.HasSuffix(host, ".localhost") &&
		(ip == nil || !ip.IsLoopback() && !ip.IsUnspecified())
}

// reachHelp says in one line how other devices reach the web server.
func reachHelp(base string) string {
	port := "8090"
	if u, err := url.Parse(base); err == nil && u.Port() != "" {
		port = u.Port()
	}
	return fmt.Sprintf("From another computer: ssh -L %[1]s:127.0.0.1:%[1]s HOST. From a phone: use a reverse proxy with TLS or \"tailscale serve %[1]s\", and start with --url and its address.", port)
}
