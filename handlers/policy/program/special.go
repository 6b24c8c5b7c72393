package program

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"pocketcoder/handlers/policy/display"
)

func noArguments(c Call, args []Argument) string {
	if n := positionals(args); len(n) > 0 {
		return fmt.Sprintf("%s changes what %s reports", display.Quote(n[0]), display.Quote(c.Words[0]))
	}
	return ""
}

// findActions begin the predicates of find that run or write. They are looked for everywhere, besides the list of
// options: no name or pattern should look like one.
var findActions = regexp.MustCompile(`^-(exec|ok|fprint|fls|delete|files0)`)

func findPredicates(c Call, _ []Argument) string {
	for _, w := range c.Words {
		if findActions.MatchString(w) {
			return display.Quote(w) + " makes “find” run commands, write or delete"
		}
	}
	return ""
}

// dateSets refuses arguments that set the clock: all that are not a format.
func dateSets(_ Call, args []Argument) string {
	for _, n := range positionals(args) {
		if !strings.HasPrefix(n, "+") {
			return display.Quote(n) + " sets the clock"
		}
	}
	return ""
}

// tailFollows refuses the options with which tail never ends, unless a rule names them.
func tailFollows(c Call, args []Argument) string {
	for _, a := range args {
		if slices.Contains([]string{"f", "F", "follow", "retry"}, a.option) && !c.Named[a.Word] {
			return display.Quote(a.Word) + " makes “tail” run until it is stopped; a rule reaches it only when it names it"
		}
	}
	return ""
}

// printfPlain matches a format whose conversions only print. %n stores a number in a shell variable such as PATH.
var printfPlain = regexp.MustCompile(`^([^%]|%%|%[-+ #0']*(\*|\d+)?(\.(\*|\d+)?)?[diouxXeEfFgGcsbqQ])*$`)

// printfFormat refuses the option that sets a variable, and formats that do.
func printfFormat(c Call, _ []Argument) string {
	words := c.Words[1:]
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	} else if len(words) > 0 && strings.HasPrefix(words[0], "-") {
		return display.Quote(words[0]) + " makes “printf” set a variable, which changes what programs do"
	}
	if len(words) > 0 && !printfPlain.MatchString(words[0]) {
		return display.Quote(words[0]) + " is a format that may set a variable, which changes what programs do"
	}
	return ""
}

// testPlain are the operators of test on files, texts and numbers. -v and -R evaluate their argument.
var testPlain = set("-a -b -c -d -e -f -g -h -k -p -r -s -t -u -w -x -O -G -L -N -S -nt -ot -ef -z -n -eq -ne -lt -le -gt -ge -o")

func testOperators(c Call, _ []Argument) string {
	for _, w := range c.Words[1:] {
		if strings.HasPrefix(w, "-") && !testPlain[w] && !IsNumber(w[1:]) {
			return display.Quote(w) + " is not an operator of “test” that is known to be harmless"
		}
	}
	return ""
}

// withoutVariables removes variables from the arguments of jq: a name and a value follow --arg and --argjson.
func withoutVariables(words []string) (rest []string) {
	for i := 0; i < len(words); i++ {
		switch {
		case (words[i] == "--arg" || words[i] == "--argjson") && i+2 < len(words):
			i += 2
		case words[i] == "--indent" && i+1 < len(words):
			rest = append(rest, words[i], words[i+1])
			i++
		case words[i] == "--":
			return append(rest, words[i:]...)
		default:
			rest = append(rest, words[i])
		}
	}
	return rest
}

// sedScripts checks the scripts: those of -e, or the first argument.
func sedScripts(_ Call, args []Argument) string {
	var scripts []string
	for _, a := range args {
		if a.option == "e" || a.option == "expression" {
			scripts = append(scripts, a.Value)
		}
	}
	if n := positionals(args); len(scripts) == 0 && len(n) > 0 {
		scripts = n[:1]
	}
	for _, s := range scripts {
		if !plainSed().MatchString(s) {
			return display.Quote(s) + " may write files or run commands"
		}
	}
	return ""
}

// dashes turns tar's first argument, which may be letters without a dash followed by their values, into options.
func dashes(words []string) []string {
	if len(words) == 0 || strings.HasPrefix(words[0], "-") {
		return words
	}
	var options []string
	tar, rest := programs["tar"].options, words[1:]
	for _, c := range words[0] {
		options = append(options, "-"+string(c))
		if takes := tar[string(c)]; (takes == text || takes == file) && len(rest) > 0 {
			options, rest = append(options, rest[0]), rest[1:]
		}
	}
	return append(options, rest...)
}

func tarArchives(_ Call, args []Argument) string {
	for _, a := range args {
		if (a.option == "f" || a.option == "file") && strings.Contains(a.Value, ":") {
			return display.Quote(a.Value) + " is an archive on another machine"
		}
	}
	return ""
}

// plainLinking are the flags for the linker that only name values.
var plainLinking = regexp.MustCompile(`^(-s|-w|-X|[A-Za-z0-9_./-]+=[^ '"]*|\s)*$`)

func goFlags(c Call, args []Argument) string {
	for _, a := range args {
		switch {
		case a.option == "ldflags" && (!plainLinking.MatchString(a.Value) || strings.Contains(a.Value, "-ext")):
			return display.Quote(a.Word) + " can make the linker run another program"
		case a.option == "" && strings.Contains(a.Value, "@") && c.Words[1] != "list" && !c.Named[a.Value]:
			return display.Quote(a.Value) + " is code from elsewhere"
		case a.option == "u" && c.Words[1] == "env":
			return display.Quote(a.Word) + " changes what go does from now on"
		}
	}
	return ""
}

// makeVariables refuses variables of the makefile. SHELL is one, and any may be part of a recipe.
func makeVariables(c Call, args []Argument) string {
	for _, n := range positionals(args) {
		if strings.Contains(n, "=") && !c.Named[n] {
			return display.Quote(n) + " changes what the makefile runs; a rule reaches it only when it names it"
		}
	}
	return ""
}

// The options of curl that neither write, nor read a file, nor send anything but the URL and headers.
var (
	curlPlain = program{known: true, valued: "mHXwo", words: []string{"max-time", "header", "request", "write-out",
		"output", "connect-timeout"}}
	curlFlags = set("s S f i I v m H X w o silent show-error fail include head verbose max-time header request write-out output connect-timeout compressed http1.1 http2")
)

// ReadCurl returns the URLs that curl is given. cause is why curl would read, write or send more than URLs and plain
// headers.
func (c Call) ReadCurl() (urls []string, cause string) {
	args := curlPlain.read(c.Words[1:])
	urls = positionals(args)
	for _, a := range args {
		switch {
		case a.option == "":
		case !curlFlags[a.option], (a.option == "o" || a.option == "output") && a.Value != "/dev/null",
			(a.option == "X" || a.option == "request") && a.Value != "GET" && a.Value != "HEAD",
			strings.HasPrefix(a.Value, "@"), strings.Contains(a.Value, "%output"), strings.Contains(a.Value, "%header"):
			return urls, fmt.Sprintf("%s makes “curl” read, write or send more than a URL", display.Quote(a.Word))
		}
	}
	return urls, ""
}
