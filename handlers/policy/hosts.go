package policy

import (
	"path"
	"slices"
	"strings"
)

// networkPrograms are the programs that do nothing without a network. Of those with sub-commands, only these need one.
var networkPrograms = map[string][]string{
	"curl": nil, "wget": nil, "npx": nil, "ssh": nil, "scp": nil, "rsync": nil, "ping": nil,
	"git": {"clone", "fetch", "pull", "push", "ls-remote"},
	"npm": {"install", "i", "ci", "add", "update", "view", "publish"}, "pnpm": {"install", "i", "add", "update"}, "yarn": {"install", "add", "upgrade"},
	"pip": {"install", "download"}, "pip3": {"install", "download"}, "uv": {"pip", "sync", "add"}, "poetry": {"install", "add", "update"},
	"go": {"get", "install"}, "cargo": {"fetch", "install", "add", "update"}, "gem": {"install", "update"}, "bundle": {"install", "update"},
	"apt": {"install", "update"}, "apt-get": {"install", "update"},
}

// notConnected are the options of curl and wget whose value is a URL that they do not connect to.
var notConnected = set("-d --data --data-raw --data-binary --data-urlencode --json -F --form -H --header -e --referer -A --user-agent -x --proxy -b --cookie")

// Reached returns the public addresses that a command names and will connect to, each once, and reports whether it runs a program that
// needs a network. It reads what is written out: a host that a variable or a script holds is not returned.
func Reached(command string) (named []Address, needs bool) {
	for _, words := range readScript(command).all {
		program, rest := unwrapped(words)
		subs, known := networkPrograms[program]
		switch {
		case !known:
			continue
		case subs != nil && (len(rest) == 0 || !slices.Contains(subs, rest[0])):
			continue
		}
		needs = true
		for i, word := range rest {
			before := ""
			if i > 0 {
				before = rest[i-1]
			}
			if at, ok := argumentAddress(program, before, word); ok && !slices.Contains(named, at) {
				named = append(named, at)
			}
		}
	}
	return named, needs
}

// unwrapped returns the base name of the program that a command runs, and its arguments, without what only starts another program.
func unwrapped(words []string) (program string, rest []string) {
	for len(words) > 0 {
		switch name := path.Base(words[0]); {
		case slices.Contains([]string{"sudo", "env", "nohup", "time", "exec", "command", "setsid", "timeout", "nice"}, name):
		case strings.HasPrefix(words[0], "-"), strings.Contains(words[0], "="), strings.Trim(words[0], "0123456789.smh") == "":
		default:
			return name, words[1:]
		}
		words = words[1:]
	}
	return "", nil
}

// argumentAddress reads the address that one argument names.
func argumentAddress(program, before, word string) (at Address, ok bool) {
	fetches := program == "curl" || program == "wget"
	switch {
	case fetches && notConnected[before]:
		return at, false
	case strings.Contains(word, "://"):
	case fetches && !strings.HasPrefix(word, "-") && (!strings.HasPrefix(before, "-") || before == "--") && strings.Contains(word, "."):
		word = "http://" + word
	default:
		return at, false
	}
	u, cause := readURL(word)
	if cause != "" {
		return at, false
	}
	at, err := ParseAddress(u.host + ":" + u.port)
	return at, err == nil && at.private() == ""
}
