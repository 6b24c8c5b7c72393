package pages

import (
	"net/http"
	"regexp"
	"strconv"

	"pocketcoder/web/api"
)

// openPort leads a browser to a port of the chat. It is reached over a link: browsers do not follow a form to another
// origin.
func (p Pages) openPort(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	login, _ := p.Token(r)
	address, err := p.Ports.Address(r, caller, login)
	if err == nil {
		w.Header().Set("Cache-Control", "no-store")
		http.Redirect(w, r, address, http.StatusSeeOther)
	}
	return err
}

// portOf returns the port that a person typed, "" for none.
func portOf(r *http.Request) (string, error) {
	text := r.URL.Query().Get("port")
	if text == "" {
		return "", nil
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return "", api.BadField("port", "validation_invalid_value", "want a port from 1 to 65535, got %q",
			api.Truncate(text, 40))
	}
	return strconv.FormatUint(port, 10), nil
}

// portInCommand is a number in a command that can be a port: with four digits or five.
var portInCommand = regexp.MustCompile(`\b[1-9]\d{3,4}\b`)

// portsOf are those that running commands seem to serve, and the one that a person typed. Whether they do shows when
// one is opened.
func portsOf(v terminalView) (all []string) {
	known := map[string]bool{"": true}
	add := func(port string) {
		if n, _ := strconv.Atoi(port); !known[port] && n < 1<<16 {
			known[port] = true
			all = append(all, port)
		}
	}
	add(v.port)
	for _, x := range v.executions {
		if x.running() && x.Detached {
			for _, port := range portInCommand.FindAllString(x.Text, maxPorts) {
				add(port)
			}
		}
	}
	return all
}

// maxPorts is the number of ports that are looked for in one command.
const maxPorts = 3
