package program

import (
	"path"
	"slices"
	"strings"
)

// networkPrograms are the programs that need a network. A program with sub-commands needs one only for those listed.
var networkPrograms = map[string][]string{
	"curl": nil, "wget": nil, "npx": nil, "ssh": nil, "scp": nil, "rsync": nil, "ping": nil,
	"git": {"clone", "fetch", "pull", "push", "ls-remote"},
	"npm": {"install", "i", "ci", "add", "update", "view", "publish"}, "pnpm": {"install", "i", "add", "update"}, "yarn": {"install", "add", "upgrade"},
	"pip": {"install", "download"}, "pip3": {"install", "download"}, "uv": {"pip", "sync", "add"}, "poetry": {"install", "add", "update"},
	"go": {"get", "install"}, "cargo": {"fetch", "install", "add", "update"}, "gem": {"install", "update"}, "bundle": {"install", "update"},
	"apt": {"install", "update"}, "apt-get": {"install", "update"},
}

// notConnected are the options of curl and wget whose value is a URL to which they do not connect.
var notConnected = set("-d --data --data-raw --data-binary --data-urlencode --json -F --form -H --header -e --referer -A --user-agent -x --proxy -b --cookie")

// NetworkUse returns the URLs in the arguments of a command to which it will connect. It also reports whether the
// command needs a network.
func NetworkUse(words []string) (urls []string, needs bool) {
	name, rest := unwrapped(words)
	subs, known := networkPrograms[name]
	if !known || subs != nil && (len(rest) == 0 || !slices.Contains(subs, rest[0])) {
		return nil, false
	}
	before := ""
	for _, word := range rest {
		if url := argumentURL(name, before, word); url != "" {
			urls = append(urls, url)
		}
		before = word
	}
	return urls, true
}

// argumentURL returns the URL in an argument, "" for none. before is the previous word.
func argumentURL(name, before, word string) string {
	fetches := name == "curl" || name == "wget"
	switch {
	case fetches && notConnected[before]:
		return ""
	case strings.Contains(word, "://"):
		return word
	case fetches && !strings.HasPrefix(word, "-") && (!strings.HasPrefix(before, "-") || before == "--") &&
		strings.Contains(word, "."):
		return "http://" + word
	}
	return ""
}

// unwrapped returns the base name and the arguments of the program that a command runs, without wrappers such as env.
func unwrapped(words []string) (name string, rest []string) {
	for len(words) > 0 {
		switch base := path.Base(words[0]); {
		case slices.Contains([]string{"sudo", "env", "nohup", "time", "exec", "command", "setsid", "timeout", "nice"}, base):
		case strings.HasPrefix(words[0], "-"), strings.Contains(words[0], "="),
			strings.Trim(words[0], "0123456789.smh") == "":
		default:
			return base, words[1:]
		}
		words = words[1:]
	}
	return "", nil
}
