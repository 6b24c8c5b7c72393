// Package program is what the policy knows of programs, as data: which programs run others, which options are
// harmless, which arguments name files, and which folders a command reads with all that lies below. It knows git,
// curl, sed, jq and ripgrep best.
//
// Promises: an option or a sub-command that no table lists is not harmless. Arguments are read as the program itself
// reads them. It looks at words only: the same words give the same answer.
//
// It must not know rules, the shell's syntax, or what the file system holds.
package program

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"pocketcoder/handlers/policy/display"
)

// Call is the command line of a program.
type Call struct {
	Words []string        // the program's name first
	Named map[string]bool // words that a rule names exactly, so that a person approved each
	Piped bool            // its input comes from another command
}

// Usage describes what a program does with its arguments.
type Usage struct {
	Files     []Argument // arguments that may name files
	ReadsOnly bool       // changes none of them
	Trees     []Tree     // folders that it reads recursively
}

// plainName matches the name of a program, not a path.
var plainName = regexp.MustCompile(`^[A-Za-z0-9_:][A-Za-z0-9_.+-]*$`)

// scriptName matches the name of a script or package that an interpreter runs.
var scriptName = regexp.MustCompile(`^[A-Za-z0-9_@.][A-Za-z0-9_@./:-]*$`)

// Usage reads the arguments. cause is why an argument is unknown or not harmless.
func (c Call) Usage() (u Usage, cause string) {
	p, described := programs[c.Words[0]]
	if _, ok := tools[c.Words[0]]; ok {
		described = true
	}
	words := c.Words[1:]
	switch c.Words[0] {
	case "tar":
		words = dashes(words)
	case "jq":
		words = withoutVariables(words)
	}
	args := p.read(words)
	for _, a := range args {
		if a.unknown {
			return u, fmt.Sprintf("%s is not an option of %s that is known to be harmless", display.Quote(a.Word),
				display.Quote(c.Words[0]))
		}
		name, _, _ := strings.Cut(strings.TrimLeft(a.Word, "-"), "=")
		switch {
		case p.dangerous(a), a.option != "" && !p.known && namesExecution(name):
			return u, fmt.Sprintf("%s makes %s run, read or write something else", display.Quote(a.Word),
				display.Quote(c.Words[0]))
		case !described && strings.HasPrefix(a.Value, "@"):
			return u, display.Quote(a.Word) + " reads arguments from a file"
		}
	}
	if n := positionals(args); p.most > 0 && len(n) > p.most {
		return u, fmt.Sprintf("%s writes to %s", display.Quote(c.Words[0]), display.Quote(n[p.most]))
	}
	if p.also != nil {
		if cause := p.also(c, args); cause != "" {
			return u, cause
		}
	}
	if p.freely {
		return u, ""
	}
	return Usage{Files: p.files(args), ReadsOnly: p.readsOnly, Trees: c.trees(p, args)}, ""
}

// OnlyReads reports whether the program changes no file, whatever its arguments.
func (c Call) OnlyReads() bool {
	if c.Words[0] == "git" {
		words := WithoutQuiet(c.Words)
		return len(words) > 1 && gitLooks[words[1]]
	}
	p := programs[c.Words[0]]
	return p.readsOnly || p.freely || c.Words[0] == "cd"
}

// Script returns the arguments of an interpreter that may name files. cause is why it is unknown what the interpreter
// runs; then a rule must name the script.
func (c Call) Script() (files []Argument, cause string) {
	rest := c.Words[1:]
	if len(rest) == 1 && rest[0] == "--version" && c.Named[rest[0]] {
		return nil, ""
	}
	if len(rest) > 1 && rest[0] == "-m" && c.Named["-m"] && strings.HasPrefix(c.Words[0], "py") {
		rest = rest[1:]
	}
	if len(rest) == 0 || !c.Named[rest[0]] || !scriptName.MatchString(rest[0]) {
		return nil, sentence(runsScripts, c.Words[0])
	}
	return program{}.files(program{}.read(rest)), ""
}

// TakesSubCommand reports whether the first argument of a program says what the program does.
func TakesSubCommand(name string) bool {
	_, isTool := tools[name]
	return isTool || name == "git" || name == "make"
}

// SubCommand reads the sub-command of a program. cause is why it is not harmless. inner is the command that a
// sub-command such as “uv run” starts, or nil.
func (c Call) SubCommand() (inner []string, cause string) {
	t, ok := tools[c.Words[0]]
	if !ok || len(c.Words) < 2 {
		return nil, ""
	}
	sub := c.Words[1]
	if strings.HasPrefix(sub, "-") {
		if slices.Contains([]string{"--version", "-v", "-V", "--help", "-h"}, sub) && len(c.Words) == 2 {
			return nil, ""
		}
		if t.bare {
			return nil, ""
		}
		return nil, fmt.Sprintf("%s stands before the sub-command of %s", display.Quote(sub), display.Quote(c.Words[0]))
	}
	both := sub
	if len(c.Words) > 2 {
		both += " " + c.Words[2]
	}
	switch {
	case slices.Contains(t.never, sub), slices.Contains(t.never, both):
		return nil, fmt.Sprintf("%s can run, show or change anything; a rule does not reach it",
			display.Quote(c.Words[0]+" "+both))
	case slices.Contains(t.freely, sub), slices.Contains(t.freely, both):
		return nil, ""
	case !c.Named[sub], slices.Contains(t.groups, sub) && (len(c.Words) < 3 || !c.Named[c.Words[2]]):
		return nil, fmt.Sprintf("%s is more than looking: a rule reaches it only when it names it",
			display.Quote(c.Words[0]+" "+both))
	}
	if slices.Contains(t.wholly, sub) {
		for _, w := range c.Words[2:] {
			if !strings.HasPrefix(w, "-") && !c.Named[w] {
				return nil, fmt.Sprintf("%s fetches and runs the code of %s; a rule reaches it only when it names that",
					display.Quote(c.Words[0]+" "+sub), display.Quote(w))
			}
		}
	}
	if slices.Contains(t.runs, sub) {
		if len(c.Words) == 2 || !c.Named[c.Words[2]] {
			return nil, sentence(runsOthers, c.Words[0]+" "+sub)
		}
		return c.Words[2:], ""
	}
	return nil, ""
}

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
