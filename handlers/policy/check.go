package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// check is a command that a rule matches, looked at for what no rule of that kind reaches.
type check struct {
	ask   Ask
	words []string
	in    []string        // folders it may run in
	named map[string]bool // words the rule's pattern says
	piped bool            // its input comes from another command

	places []place     // the files that its arguments may name
	reads  []treeReads // the folders that it reads with all that lies below
}

// plainName is what a program may be called; a path to one is not its name.
var plainName = regexp.MustCompile(`^[A-Za-z0-9_:][A-Za-z0-9_.+-]*$`)

// scriptName is a script or package an interpreter is given by name.
var scriptName = regexp.MustCompile(`^[A-Za-z0-9_@.][A-Za-z0-9_@./:-]*$`)

// cause says why the command is asked although a rule matches it; empty when it is not.
func (k *check) cause() string {
	name := k.words[0]
	if !plainName.MatchString(name) {
		return quoted(name) + " is not the plain name of a program"
	}
	switch why := mustAsk[name]; why {
	case "":
	case runsScripts:
		return k.script(why)
	case reachesOut:
		if name == "curl" {
			return k.curl()
		}
		return sentence(why, name)
	default:
		return sentence(why, name)
	}
	switch name {
	case "git":
		return k.git()
	case "cd":
		return "" // followed when the commands are put in their folders
	}
	p, described := programs[name]
	if t, ok := tools[name]; ok {
		described = true
		if cause := k.subCommand(t); cause != "" {
			return cause
		}
	}
	return k.arguments(p, described)
}

func sentence(why, name string) string { return strings.Replace(why, "%s", name, 1) }

// onlyReads says whether the program changes no file, whatever its arguments.
func (k *check) onlyReads() bool {
	if k.words[0] == "git" {
		words := withoutQuiet(k.words)
		return len(words) > 1 && gitLooks[words[1]]
	}
	p := programs[k.words[0]]
	return p.readsOnly || p.freely || k.words[0] == "cd"
}

// arguments looks at a program's options and files.
func (k *check) arguments(p program, described bool) string {
	words := k.words[1:]
	switch k.words[0] {
	case "tar":
		words = dashes(words)
	case "jq":
		words = withoutVariables(words)
	}
	args := p.read(words)
	for _, a := range args {
		if a.unknown {
			return fmt.Sprintf("%s is not an option of %s that is known to be harmless", quoted(a.word), quoted(k.words[0]))
		}
		name, _, _ := strings.Cut(strings.TrimLeft(a.word, "-"), "=")
		switch {
		case p.dangerous(a), a.option != "" && !p.known && tells(name):
			return fmt.Sprintf("%s makes %s run, read or write something else", quoted(a.word), quoted(k.words[0]))
		case !described && strings.HasPrefix(a.value, "@"):
			return quoted(a.word) + " reads arguments from a file"
		}
	}
	if n := positionals(args); p.most > 0 && len(n) > p.most {
		return fmt.Sprintf("%s writes to %s", quoted(k.words[0]), quoted(n[p.most]))
	}
	if p.also != nil {
		if cause := p.also(k, args); cause != "" {
			return cause
		}
	}
	if p.freely {
		return ""
	}
	if cause := k.files(p.files(args), p.readsOnly); cause != "" {
		return cause
	}
	k.readsTrees(p, args)
	return ""
}

// files looks at where arguments lead, from every folder the command may run in. Any argument may be a file.
func (k *check) files(args []argument, readsOnly bool) string {
	for _, a := range args {
		for _, candidate := range candidates(a) {
			if cause := k.file(candidate, readsOnly); cause != "" {
				return cause
			}
		}
	}
	return ""
}

func (k *check) file(p string, readsOnly bool) string {
	if p == "" || p == "-" || p == "/dev/null" {
		return ""
	}
	for _, folder := range k.in {
		at, cause := k.ask.locate(folder, p)
		if cause != "" {
			return cause
		}
		k.places = append(k.places, at)
		if !within(k.ask.Root, at.real) {
			return quoted(p) + " is outside the workspace"
		}
		if cause := k.ask.mayRead(at); cause != "" {
			return cause
		}
		if readsOnly {
			continue
		}
		if cause := k.ask.mayWrite(at); cause != "" {
			return cause
		}
		if at.real == k.ask.Root && slices.Contains([]string{"rm", "mv", "chmod", "chown", "chgrp"}, k.words[0]) {
			return quoted(p) + " is the whole workspace"
		}
	}
	return ""
}

// candidates are the paths an argument may name: itself, and what stands behind =, :, comma or @ and leads away.
func candidates(a argument) []string {
	list := []string{a.value}
	attached := len(a.word) > 2 && a.word[0] == '-' && a.word[1] != '-' && strings.HasSuffix(a.word, a.value)
	if i := strings.IndexByte(a.value, '/'); attached && i > 0 && i < 3 {
		list = append(list, a.value[i:]) // -xo/tmp/f
	}
	for i, c := range a.value {
		if !strings.ContainsRune("=:,@", c) {
			continue
		}
		rest := a.value[i+1:]
		switch {
		case c == ':' && strings.HasPrefix(rest, "//") && !strings.HasSuffix(a.value[:i], "file"): // a URL
		case strings.HasPrefix(rest, "/"), strings.HasPrefix(rest, "../"), rest == "..", strings.HasPrefix(rest, "~"), secret(rest):
			list = append(list, rest)
		}
	}
	return list
}

// script looks at an interpreter: a rule reaches what it runs only when its pattern names that.
func (k *check) script(why string) string {
	rest := k.words[1:]
	if len(rest) == 1 && rest[0] == "--version" && k.named[rest[0]] {
		return ""
	}
	if len(rest) > 1 && rest[0] == "-m" && k.named["-m"] && strings.HasPrefix(k.words[0], "py") {
		rest = rest[1:]
	}
	if len(rest) == 0 || !k.named[rest[0]] || !scriptName.MatchString(rest[0]) {
		return sentence(why, k.words[0])
	}
	return k.files(program{}.files(program{}.read(rest)), false)
}

// subCommand looks at which sub-command of a tool is meant.
func (k *check) subCommand(t tool) string {
	if len(k.words) < 2 {
		return ""
	}
	sub := k.words[1]
	if strings.HasPrefix(sub, "-") {
		if slices.Contains([]string{"--version", "-v", "-V", "--help", "-h"}, sub) && len(k.words) == 2 {
			return ""
		}
		if t.bare {
			return ""
		}
		return fmt.Sprintf("%s stands before the sub-command of %s", quoted(sub), quoted(k.words[0]))
	}
	both := sub
	if len(k.words) > 2 {
		both += " " + k.words[2]
	}
	switch {
	case slices.Contains(t.never, sub), slices.Contains(t.never, both):
		return fmt.Sprintf("%s can run, show or change anything; a rule does not reach it", quoted(k.words[0]+" "+both))
	case slices.Contains(t.freely, sub), slices.Contains(t.freely, both):
		return ""
	case !k.named[sub], slices.Contains(t.groups, sub) && (len(k.words) < 3 || !k.named[k.words[2]]):
		return fmt.Sprintf("%s is more than looking: a rule reaches it only when it names it", quoted(k.words[0]+" "+both))
	}
	if slices.Contains(t.wholly, sub) {
		for _, w := range k.words[2:] {
			if !strings.HasPrefix(w, "-") && !k.named[w] {
				return fmt.Sprintf("%s fetches and runs the code of %s; a rule reaches it only when it names that", quoted(k.words[0]+" "+sub), quoted(w))
			}
		}
	}
	if slices.Contains(t.runs, sub) {
		inner := *k
		if inner.words = k.words[2:]; len(inner.words) == 0 || !k.named[inner.words[0]] {
			return sentence(runsOthers, k.words[0]+" "+sub)
		}
		return inner.cause()
	}
	return ""
}
