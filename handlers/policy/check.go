package policy

import (
	"slices"
	"strings"

	"pocketcoder/handlers/policy/display"
	"pocketcoder/handlers/policy/files"
	"pocketcoder/handlers/policy/program"
)

// check checks a command that a rule matches for effects that the rule does not cover.
type check struct {
	program.Call
	ask Input
	in  []string // folders in which it may run

	places []files.Location // the files that its arguments may name
	reads  []program.Tree   // folders that it reads recursively
}

// cause returns why a person must decide about the command although a rule matches it, "" if the rule is enough.
func (k *check) cause() string {
	name := k.Words[0]
	if cause := program.AskCause(name); cause != "" {
		return cause
	}
	switch {
	case program.Interprets(name):
		files, cause := k.Script()
		if cause != "" {
			return cause
		}
		return k.filesCause(files, false)
	case name == "curl":
		return k.curlCause()
	case name == "git":
		return k.gitCause()
	case name == "cd":
		return "" // bash.Follow handles it
	}
	inner, cause := k.SubCommand()
	if cause != "" {
		return cause
	}
	if inner != nil {
		started := *k
		started.Words = inner
		if cause := started.cause(); cause != "" {
			return cause
		}
		k.places, k.reads = started.places, started.reads
	}
	u, cause := k.Usage()
	if cause != "" {
		return cause
	}
	if cause := k.filesCause(u.Files, u.ReadsOnly); cause != "" {
		return cause
	}
	k.reads = append(k.reads, u.Trees...)
	return ""
}

// curlCause checks the URLs of curl: the rule must name the host of each.
func (k *check) curlCause() string {
	urls, cause := k.ReadCurl()
	if len(urls) == 0 || slices.ContainsFunc(urls, func(u string) bool { return !k.namesHost(u) }) {
		return "“curl” sends to other machines; a rule reaches that only when it names the host"
	}
	return cause
}

// namesHost reports whether a word of the rule's pattern names the host of a URL.
func (k *check) namesHost(url string) bool {
	u, cause := readURL(url)
	if cause != "" {
		return false
	}
	for word := range k.Named {
		if p, wrong := parseURLPattern(word); wrong == nil && !strings.Contains(p.host, "*") && p.matches(u) && p.allows(u) {
			return true
		}
	}
	return false
}

// filesCause checks where arguments lead, from every folder in which the command may run. Any argument may be a file.
func (k *check) filesCause(args []program.Argument, readsOnly bool) string {
	for _, a := range args {
		for _, candidate := range candidates(a) {
			if cause := k.fileCause(candidate, readsOnly); cause != "" {
				return cause
			}
		}
	}
	return ""
}

func (k *check) fileCause(p string, readsOnly bool) string {
	if p == "" || p == "-" || p == "/dev/null" {
		return ""
	}
	for _, folder := range k.in {
		at, cause := k.ask.workspace().Locate(folder, p)
		if cause != "" {
			return cause
		}
		k.places = append(k.places, at)
		if !files.Within(k.ask.Root, at.Real) {
			return display.Quote(p) + " is outside the workspace"
		}
		if cause := k.ask.workspace().MayRead(at); cause != "" {
			return cause
		}
		if readsOnly {
			continue
		}
		if cause := k.ask.workspace().MayWrite(at); cause != "" {
			return cause
		}
		if at.Real == k.ask.Root && slices.Contains([]string{"rm", "mv", "chmod", "chown", "chgrp"}, k.Words[0]) {
			return display.Quote(p) + " is the whole workspace"
		}
	}
	return ""
}

// candidates returns the paths that an argument may name: the argument itself, and parts after =, :, comma or @ that
// lead outside.
func candidates(a program.Argument) []string {
	list := []string{a.Value}
	attached := len(a.Word) > 2 && a.Word[0] == '-' && a.Word[1] != '-' && strings.HasSuffix(a.Word, a.Value)
	if i := strings.IndexByte(a.Value, '/'); attached && i > 0 && i < 3 {
		list = append(list, a.Value[i:]) // -xo/tmp/f
	}
	for i, c := range a.Value {
		if !strings.ContainsRune("=:,@", c) {
			continue
		}
		rest := a.Value[i+1:]
		switch {
		case c == ':' && strings.HasPrefix(rest, "//") && !strings.HasSuffix(a.Value[:i], "file"): // a URL
		case strings.HasPrefix(rest, "/"), strings.HasPrefix(rest, "../"), rest == "..", strings.HasPrefix(rest, "~"),
			files.Secret(rest):
			list = append(list, rest)
		}
	}
	return list
}
