package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

func noArguments(k *check, args []argument) string {
	if n := positionals(args); len(n) > 0 {
		return fmt.Sprintf("%s changes what %s reports", quoted(n[0]), quoted(k.words[0]))
	}
	return ""
}

// findActions begin the predicates of find that run or write.
var findActions = regexp.MustCompile(`^-(exec|ok|fprint|fls|delete|files0)`)

func findPredicates(k *check, _ []argument) string {
	for _, w := range k.words { // behind -- they count too
		if findActions.MatchString(w) {
			return quoted(w) + " makes “find” run commands, write or delete"
		}
	}
	return ""
}

// dateSets refuses what sets the clock: any argument that is no format.
func dateSets(_ *check, args []argument) string {
	for _, n := range positionals(args) {
		if !strings.HasPrefix(n, "+") {
			return quoted(n) + " sets the clock"
		}
	}
	return ""
}

// jqBeyond are the words of a jq filter that look at more than its input: the environment and other files.
var jqBeyond = regexp.MustCompile(`(^|[^.\w"])(env|import|include|get_search_list)\b|\$(ENV|__prog)`)

// jqFilters looks at the filter, which is the first argument, or any when options take some as names and values.
func jqFilters(_ *check, args []argument) string {
	filters := positionals(args)
	if !has(args, "arg", "argjson", "slurpfile", "rawfile", "argfile", "args", "jsonargs") {
		filters = filters[:min(1, len(filters))]
	}
	for _, f := range filters {
		if jqBeyond.MatchString(f) {
			return quoted(f) + " looks at more than its input"
		}
	}
	return ""
}

// sedScripts looks at the scripts: those of -e, or the first argument.
func sedScripts(_ *check, args []argument) string {
	var scripts []string
	for _, a := range args {
		if a.option == "e" || a.option == "expression" {
			scripts = append(scripts, a.value)
		}
	}
	if n := positionals(args); len(scripts) == 0 && len(n) > 0 {
		scripts = n[:1]
	}
	for _, s := range scripts {
		if !plainSed(s) {
			return quoted(s) + " may write files or run commands"
		}
	}
	return ""
}

// dashes gives tar's first argument, which may be letters without a dash whose values follow in their order, as options.
func dashes(words []string) []string {
	if len(words) == 0 || strings.HasPrefix(words[0], "-") {
		return words
	}
	var options []string
	rest := words[1:]
	for _, c := range words[0] {
		options = append(options, "-"+string(c))
		if strings.ContainsRune(programs["tar"].valued, c) && len(rest) > 0 {
			options, rest = append(options, rest[0]), rest[1:]
		}
	}
	return append(options, rest...)
}

func tarArchives(_ *check, args []argument) string {
	for _, a := range args {
		if (a.option == "f" || a.option == "file") && strings.Contains(a.value, ":") {
			return quoted(a.value) + " is an archive on another machine"
		}
	}
	return ""
}

// plainLinking are the flags for the linker that only name values.
var plainLinking = regexp.MustCompile(`^(-s|-w|-X|[A-Za-z0-9_./-]+=[^ '"]*|\s)*$`)

func goFlags(k *check, args []argument) string {
	for _, a := range args {
		switch {
		case a.option == "ldflags" && (!plainLinking.MatchString(a.value) || strings.Contains(a.value, "-ext")):
			return quoted(a.word) + " can make the linker run another program"
		case a.option == "" && strings.Contains(a.value, "@") && k.words[1] != "list" && !k.named[a.value]:
			return quoted(a.value) + " is code from elsewhere"
		case a.option == "u" && k.words[1] == "env":
			return quoted(a.word) + " changes what go does from now on"
		}
	}
	return ""
}

// makeVariables refuses what is given for a variable of the makefile: SHELL is one, and any may be part of a recipe.
func makeVariables(k *check, args []argument) string {
	for _, n := range positionals(args) {
		if strings.Contains(n, "=") && !k.named[n] {
			return quoted(n) + " changes what the makefile runs; a rule reaches it only when it names it"
		}
	}
	return ""
}

// The options of curl that neither write, nor read a file, nor send anything but the URL and headers.
var (
	curlPlain = program{known: true, valued: "mHXwo", words: []string{"max-time", "header", "request", "write-out", "output", "connect-timeout"}}
	curlFlags = set("s S f i I v m H X w o silent show-error fail include head verbose max-time header request write-out output connect-timeout compressed http1.1 http2")
)

// curl is reached by a rule that names the host: nothing is sent but the URL and plain headers.
func (k *check) curl() string {
	args := curlPlain.read(k.words[1:])
	urls := positionals(args)
	if len(urls) == 0 || slices.ContainsFunc(urls, func(u string) bool { return !k.namesHost(u) }) {
		return "“curl” sends to other machines; a rule reaches that only when it names the host"
	}
	for _, a := range args {
		switch {
		case a.option == "":
		case !curlFlags[a.option], (a.option == "o" || a.option == "output") && a.value != "/dev/null",
			(a.option == "X" || a.option == "request") && a.value != "GET" && a.value != "HEAD",
			strings.HasPrefix(a.value, "@"), strings.Contains(a.value, "%output"), strings.Contains(a.value, "%header"):
			return fmt.Sprintf("%s makes “curl” read, write or send more than a URL", quoted(a.word))
		}
	}
	return ""
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
