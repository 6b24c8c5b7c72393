package program

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

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

// jqWords are the words of a harmless jq filter, besides fields, variables and keys: keywords, and functions that only
// read their input.
var jqWords = set(`
	if then elif else end and or not as def reduce foreach try catch label break null true false empty error add any all flatten range floor sqrt pow log
	tostring tonumber type infinite nan isinfinite isnan isnormal sort sort_by group_by min max min_by max_by unique unique_by reverse contains inside
	startswith endswith combinations ltrimstr rtrimstr trimstr trim ltrim rtrim explode implode split join ascii_downcase ascii_upcase recurse recurse_down
	while until repeat inputs input input_filename input_line_number length utf8bytelength keys keys_unsorted values has in map map_values path paths
	del delpaths getpath setpath to_entries from_entries with_entries select arrays objects iterables booleans numbers normals finites strings nulls
	scalars limit first last nth skip tojson fromjson todate fromdate now dateadd datesub date mktime gmtime localtime strftime strptime strflocaltime
	test match capture scan splits sub gsub ascii index indices rindex transpose walk leaf_paths bsearch tostream fromstream truncate_stream isvalid abs
	toarray pick debug halt halt_error ceil round fabs significand`)

// jqWord is a field, a variable, a format or a name.
var jqWord = regexp.MustCompile(`^(\.|@|\$ *)?[A-Za-z_][A-Za-z0-9_]*(::[A-Za-z_][A-Za-z0-9_]*)*`)

// jqFilter checks the filter, which is the first argument. An unknown word may read the environment or other files.
func jqFilter(_ Call, args []Argument) string {
	n := positionals(args)
	if len(n) == 0 {
		return ""
	}
	if word := jqUnknown(n[0]); word != "" {
		return display.Quote(word) + " is not known to make “jq” look at its input alone"
	}
	return ""
}

// jqUnknown returns the first unknown part of a filter, "" if there is none.
func jqUnknown(filter string) string {
	var open []byte // open brackets; a quote is a text that may contain a filter
	inText, before := false, byte(0)
	for i := 0; i < len(filter); i++ {
		c := filter[i]
		switch {
		case inText && c == '\\' && strings.HasPrefix(filter[i+1:], "("):
			open, inText = append(open, '"'), false
			i++
		case inText && c == '\\':
			i++
		case inText:
			inText = c != '"'
		case c == '"':
			inText = true
		case strings.IndexByte("([{", c) >= 0:
			open = append(open, c)
		case strings.IndexByte(")]}", c) >= 0:
			if len(open) == 0 {
				return filter
			}
			inText = open[len(open)-1] == '"'
			open = open[:len(open)-1]
		case c == '#':
			return filter[i:]
		case c == ' ' || c == '\t' || c == '\n':
			continue
		default:
			word := jqWord.FindString(filter[i:])
			if word == "" {
				break
			}
			key := word[0] != '$' && len(open) > 0 && open[len(open)-1] == '{' && (before == '{' || before == ',')
			if !key && !plainJq(word) {
				return word
			}
			i += len(word) - 1
			c = filter[i]
		}
		before = c
	}
	if inText || len(open) > 0 {
		return filter
	}
	return ""
}

func plainJq(word string) bool {
	if name, variable := strings.CutPrefix(word, "$"); variable {
		name = strings.TrimLeft(name, " ")
		return name != "ENV" && !strings.HasPrefix(name, "__prog")
	}
	return word[0] == '.' || word[0] == '@' || jqWords[word]
}

// plainSed matches the sed scripts that are known completely: commands p, d and q behind line numbers or plain regular
// expressions, and s without brackets or line ends, with the flags g, i, p and a number. Every other script asks. A
// bracket is excluded because it may hold the delimiter, so that the rest of the script begins elsewhere than it
// seems. It is compiled when a command needs it, because it takes 0.2 MiB of every process.
var plainSed = sync.OnceValue(func() *regexp.Regexp {
	const (
		pattern = `/[^\[\]\\/\n]*/I?`
		address = `(\d+(~\d+)?|\$|` + pattern + `)`
		flags   = `[gpiI0-9]*`
	)
	substitute := ""
	for _, delimiter := range []string{"/", "|", ",", "#", ":", "@", "!", "%", "_"} {
		part := `([^\[\]\\\n` + delimiter + `]|\\[^\[\]\n])*`
		between := regexp.QuoteMeta(delimiter)
		substitute += `|s` + between + part + between + part + between + flags
	}
	command := ` *(` + address + ` *(, *([+~]?\d+|` + address + `) *)?)?(! *)?([pdq]` + substitute + `) *`
	return regexp.MustCompile(`^( *|` + command + `(; *|;` + command + `)*)$`)
})
