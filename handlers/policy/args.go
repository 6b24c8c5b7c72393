package policy

import (
	"slices"
	"strings"
)

// program is what must be known of a program's arguments to tell the harmless from the rest. Letters are those of short
// options, names those of long ones, without dashes.
type program struct {
	known     bool     // its options were read through: an option not named here is harmless
	danger    []string // long options that run, write or read something else; also when abbreviated, as GNU programs allow
	exact     []string // long options that look like an abbreviation of one of those, and are harmless
	letters   string   // short options of that kind
	valued    string   // letters that take a value
	words     []string // long options whose value is the next word, when it does not follow a =
	free      []string // options, letters or names, whose value is text or a pattern, never a file
	pattern   []string // the first argument is a pattern, unless one of these options is there
	freely    bool     // no argument is a file
	oneDash   bool     // long options begin with one dash
	most      int      // arguments it takes before one names a file it writes; 0 is any number
	readsOnly bool     // it changes no file
	also      func(*check, []argument) string
}

// argument is one of a command's arguments as the program would read it.
type argument struct {
	option   string // letter or name; empty when it is no option
	given    string // the option as it was given, perhaps abbreviated
	value    string // of the option, or the argument
	hasValue bool
	word     string // it came from
}

// read cuts the arguments of a command (words without the name) into options and others.
func (p program) read(words []string) (args []argument) {
	for i := 0; i < len(words); i++ {
		w := words[i]
		switch {
		case w == "--":
			for _, w := range words[i+1:] {
				args = append(args, argument{value: w, hasValue: true, word: w})
			}
			return args
		case strings.HasPrefix(w, "--"), p.oneDash && strings.HasPrefix(w, "-") && len(w) > 2:
			a := argument{word: w}
			a.option, a.value, a.hasValue = strings.Cut(strings.TrimLeft(w, "-"), "=")
			a.given = a.option
			if full := p.takesWord(a.option); full != "" {
				a.option = full
				if !a.hasValue && i+1 < len(words) {
					i++
					a.value, a.hasValue = words[i], true
				}
			}
			args = append(args, a)
		case strings.HasPrefix(w, "-") && w != "-":
			var used bool
			next := ""
			if i+1 < len(words) {
				next = words[i+1]
			}
			args, used = p.cluster(args, w, next)
			if used {
				i++
			}
		default:
			args = append(args, argument{value: w, hasValue: true, word: w})
		}
	}
	return args
}

// takesWord gives the full name of an option that takes the next word as its value; GNU programs know it abbreviated too.
func (p program) takesWord(option string) string {
	if slices.Contains(p.words, option) {
		return option
	}
	i := slices.IndexFunc(p.words, func(name string) bool { return !p.oneDash && strings.HasPrefix(name, option) })
	if i < 0 || slices.Contains(p.exact, option) {
		return ""
	}
	return p.words[i]
}

// cluster reads short options joined in one word. What is no letter begins a value, even where none is known of.
func (p program) cluster(args []argument, w, next string) (_ []argument, used bool) {
	for i := 1; i < len(w); i++ {
		a := argument{option: w[i : i+1], word: w}
		rest := w[i+1:]
		if strings.Contains(p.valued, a.option) {
			if rest == "" {
				rest, used = next, true
			}
			a.value, a.hasValue = strings.TrimPrefix(rest, "="), true
			return append(args, a), used
		}
		if c := w[i]; !(c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z') {
			return append(args, argument{option: a.option, value: strings.TrimPrefix(w[i:], "="), hasValue: true, word: w}), false
		}
		args = append(args, a)
		if !p.known {
			a = argument{option: a.option, value: rest, hasValue: rest != "", word: w}
			return append(args[:len(args)-1], a), false
		}
	}
	return args, used
}

// dangerous says whether an option is one of the program's dangerous ones, in full, abbreviated or as a letter.
func (p program) dangerous(a argument) bool {
	switch {
	case a.option == "":
		return false
	case a.given == "":
		return strings.Contains(p.letters, a.option)
	case slices.Contains(p.exact, a.given), slices.Contains(p.words, a.given):
		return false
	}
	return slices.ContainsFunc(p.danger, func(d string) bool { return strings.HasPrefix(d, a.given) })
}

// files are the arguments that may name files: all but patterns and text.
func (p program) files(args []argument) (files []argument) {
	skip := p.pattern != nil && !has(args, p.pattern...)
	for _, a := range args {
		switch {
		case !a.hasValue, a.option != "" && slices.Contains(p.free, a.option):
		case a.option == "" && skip:
			skip = false
		default:
			files = append(files, a)
		}
	}
	return files
}

// positionals are the arguments that are no options.
func positionals(args []argument) (values []string) {
	for _, a := range args {
		if a.option == "" {
			values = append(values, a.value)
		}
	}
	return values
}

// has says whether one of these options is there, by its exact name.
func has(args []argument, options ...string) bool {
	return slices.ContainsFunc(args, func(a argument) bool { return a.option != "" && slices.Contains(options, a.option) })
}
