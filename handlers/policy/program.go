package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// call is one command as a program is started with it.
type call struct {
	words []string        // the program's name first
	named map[string]bool // words that the caller approves one by one, because a person wrote each of them
	piped bool            // its input comes from another command
}

// usage is what a program does with its arguments.
type usage struct {
	files     []argument // that may name files
	readsOnly bool       // it changes none of them
	trees     []tree     // the folders that it reads with all that lies below
}

// plainName is what a program may be called; a path to one is not its name.
var plainName = regexp.MustCompile(`^[A-Za-z0-9_:][A-Za-z0-9_.+-]*$`)

// scriptName is a script or package an interpreter is given by name.
var scriptName = regexp.MustCompile(`^[A-Za-z0-9_@.][A-Za-z0-9_@./:-]*$`)

// usage reads the arguments. cause is why one of them, or what the program is not known to do with it, is not harmless.
func (c call) usage() (u usage, cause string) {
	p, described := programs[c.words[0]]
	if _, ok := tools[c.words[0]]; ok {
		described = true
	}
	words := c.words[1:]
	switch c.words[0] {
	case "tar":
		words = dashes(words)
	case "jq":
		words = withoutVariables(words)
	}
	args := p.read(words)
	for _, a := range args {
		if a.unknown {
			return u, fmt.Sprintf("%s is not an option of %s that is known to be harmless", quoted(a.word), quoted(c.words[0]))
		}
		name, _, _ := strings.Cut(strings.TrimLeft(a.word, "-"), "=")
		switch {
		case p.dangerous(a), a.option != "" && !p.known && tells(name):
			return u, fmt.Sprintf("%s makes %s run, read or write something else", quoted(a.word), quoted(c.words[0]))
		case !described && strings.HasPrefix(a.value, "@"):
			return u, quoted(a.word) + " reads arguments from a file"
		}
	}
	if n := positionals(args); p.most > 0 && len(n) > p.most {
		return u, fmt.Sprintf("%s writes to %s", quoted(c.words[0]), quoted(n[p.most]))
	}
	if p.also != nil {
		if cause := p.also(c, args); cause != "" {
			return u, cause
		}
	}
	if p.freely {
		return u, ""
	}
	return usage{files: p.files(args), readsOnly: p.readsOnly, trees: c.trees(p, args)}, ""
}

// onlyReads reports whether the program changes no file, whatever its arguments.
func (c call) onlyReads() bool {
	if c.words[0] == "git" {
		words := withoutQuiet(c.words)
		return len(words) > 1 && gitLooks[words[1]]
	}
	p := programs[c.words[0]]
	return p.readsOnly || p.freely || c.words[0] == "cd"
}

// script returns the arguments of an interpreter that may name files. cause is why it is not known what the interpreter runs: the
// caller must approve the script's name.
func (c call) script() (files []argument, cause string) {
	rest := c.words[1:]
	if len(rest) == 1 && rest[0] == "--version" && c.named[rest[0]] {
		return nil, ""
	}
	if len(rest) > 1 && rest[0] == "-m" && c.named["-m"] && strings.HasPrefix(c.words[0], "py") {
		rest = rest[1:]
	}
	if len(rest) == 0 || !c.named[rest[0]] || !scriptName.MatchString(rest[0]) {
		return nil, sentence(runsScripts, c.words[0])
	}
	return program{}.files(program{}.read(rest)), ""
}

// takesSubCommand reports whether the first argument of a program says what the program does.
func takesSubCommand(name string) bool {
	_, isTool := tools[name]
	return isTool || name == "git" || name == "make"
}

// subCommand reads the sub-command of a program that has some. cause is why it is not harmless. inner is the command that a
// sub-command such as “uv run” starts, or nil.
func (c call) subCommand() (inner []string, cause string) {
	t, ok := tools[c.words[0]]
	if !ok || len(c.words) < 2 {
		return nil, ""
	}
	sub := c.words[1]
	if strings.HasPrefix(sub, "-") {
		if slices.Contains([]string{"--version", "-v", "-V", "--help", "-h"}, sub) && len(c.words) == 2 {
			return nil, ""
		}
		if t.bare {
			return nil, ""
		}
		return nil, fmt.Sprintf("%s stands before the sub-command of %s", quoted(sub), quoted(c.words[0]))
	}
	both := sub
	if len(c.words) > 2 {
		both += " " + c.words[2]
	}
	switch {
	case slices.Contains(t.never, sub), slices.Contains(t.never, both):
		return nil, fmt.Sprintf("%s can run, show or change anything; a rule does not reach it", quoted(c.words[0]+" "+both))
	case slices.Contains(t.freely, sub), slices.Contains(t.freely, both):
		return nil, ""
	case !c.named[sub], slices.Contains(t.groups, sub) && (len(c.words) < 3 || !c.named[c.words[2]]):
		return nil, fmt.Sprintf("%s is more than looking: a rule reaches it only when it names it", quoted(c.words[0]+" "+both))
	}
	if slices.Contains(t.wholly, sub) {
		for _, w := range c.words[2:] {
			if !strings.HasPrefix(w, "-") && !c.named[w] {
				return nil, fmt.Sprintf("%s fetches and runs the code of %s; a rule reaches it only when it names that", quoted(c.words[0]+" "+sub), quoted(w))
			}
		}
	}
	if slices.Contains(t.runs, sub) {
		if len(c.words) == 2 || !c.named[c.words[2]] {
			return nil, sentence(runsOthers, c.words[0]+" "+sub)
		}
		return c.words[2:], ""
	}
	return nil, ""
}
