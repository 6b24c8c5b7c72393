package policy

import (
	"slices"
	"strings"
)

// check is a command that a rule matches, looked at for what no rule of that kind reaches.
type check struct {
	call
	ask Ask
	in  []string // folders it may run in

	places []place // the files that its arguments may name
	reads  []tree  // the folders that it reads with all that lies below
}

// cause says why the command is asked although a rule matches it; empty when it is not.
func (k *check) cause() string {
	name := k.words[0]
	if cause := alwaysAsked(name); cause != "" {
		return cause
	}
	switch {
	case interprets(name):
		files, cause := k.script()
		if cause != "" {
			return cause
		}
		return k.files(files, false)
	case name == "curl":
		return k.curl()
	case name == "git":
		return k.git()
	case name == "cd":
		return "" // followed when the commands are put in their folders
	}
	inner, cause := k.subCommand()
	if cause != "" {
		return cause
	}
	if inner != nil {
		started := *k
		started.words = inner
		if cause := started.cause(); cause != "" {
			return cause
		}
	}
	u, cause := k.usage()
	if cause != "" {
		return cause
	}
	if cause := k.files(u.files, u.readsOnly); cause != "" {
		return cause
	}
	k.reads = append(k.reads, u.trees...)
	return ""
}

// curl decides about a request of curl: the rule must name the host of each URL.
func (k *check) curl() string {
	urls, cause := k.readCurl()
	if len(urls) == 0 || slices.ContainsFunc(urls, func(u string) bool { return !k.namesHost(u) }) {
		return "“curl” sends to other machines; a rule reaches that only when it names the host"
	}
	return cause
}

// namesHost says whether a word of the rule's pattern names the host of a URL.
func (k *check) namesHost(url string) bool {
	u, cause := readURL(url)
	if cause != "" {
		return false
	}
	for word := range k.named {
		if p, wrong := parseURLPattern(word); wrong == nil && !strings.Contains(p.host, "*") && p.matches(u) && p.reaches(u) {
			return true
		}
	}
	return false
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
		at, cause := k.ask.workspace().locate(folder, p)
		if cause != "" {
			return cause
		}
		k.places = append(k.places, at)
		if !within(k.ask.Root, at.real) {
			return quoted(p) + " is outside the workspace"
		}
		if cause := k.ask.workspace().mayRead(at); cause != "" {
			return cause
		}
		if readsOnly {
			continue
		}
		if cause := k.ask.workspace().mayWrite(at); cause != "" {
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
