package program

import (
	"slices"
	"strings"
)

// program describes the arguments of a program. Letters are short options, names are long ones, without dashes. If
// options are listed, every other option asks. The fields from danger to valued describe a program that only a rule of
// a person allows.
type program struct {
	options options
	// long options that run, write or read something else; also when abbreviated, as GNU programs allow
	danger    []string
	exact     []string    // harmless long options that look like an abbreviation of one of those
	letters   string      // short options of the same kind
	known     bool        // an option that is not listed here is harmless
	valued    string      // letters that take a value
	words     []string    // long options whose value is the next word, unless it follows a =
	free      []string    // options, letters or names, whose value is never a file
	pattern   []string    // the first argument is a pattern, unless one of these options is given
	freely    bool        // no argument is a file
	oneDash   bool        // long options have one dash
	alone     bool        // a short option takes its value only from the next word
	most      int         // arguments before the one that names an output file; 0 for no limit
	readsOnly bool        // changes no file
	trees     treeOptions // folders that it reads recursively
	also      func(Call, []Argument) string
}

// valueKind is the kind of an option's value.
type valueKind byte

const (
	nothing  valueKind = iota
	attached           // optional text in the same word
	text               // text, in the same word or the next one
	file               // a file, in the same word or the next one
)

// options are the harmless options of a program. "#" stands for a number, as in head -5.
type options map[string]valueKind

// harmless parses a list of options: "a" has no value, "b=?" has an optional text in the same word, "c=" a text, "d:" a
// file.
func harmless(lists ...string) options {
	o := options{}
	for _, list := range lists {
		for _, name := range strings.Fields(list) {
			takes := nothing
			switch {
			case strings.HasSuffix(name, "=?"):
				takes = attached
			case strings.HasSuffix(name, "="):
				takes = text
			case strings.HasSuffix(name, ":"):
				takes = file
			}
			o[strings.TrimRight(name, "=?:")] = takes
		}
	}
	return o
}

// Argument is an argument as the program reads it.
type Argument struct {
	option   string // letter or name; empty for other arguments
	given    string // the option as given, perhaps abbreviated
	Value    string // of the option, or the argument
	hasValue bool
	text     bool   // the value is text, never a file
	unknown  bool   // looks like an option, but is not listed
	Word     string // the word that contains it
}

// read divides the arguments of a command (its words without the name) into options and others.
func (p program) read(words []string) (args []Argument) {
	for i := 0; i < len(words); i++ {
		w := words[i]
		next := ""
		if i+1 < len(words) {
			next = words[i+1]
		}
		var used bool
		switch {
		case p.options != nil && strings.HasPrefix(w, "-") && w != "-" && (w != "--" || p.oneDash):
			args, used = p.harmless(args, w, next)
		case w == "--":
			for _, w := range words[i+1:] {
				args = append(args, Argument{Value: w, hasValue: true, Word: w})
			}
			return args
		case strings.HasPrefix(w, "--"), p.oneDash && strings.HasPrefix(w, "-") && len(w) > 2:
			a := Argument{Word: w}
			a.option, a.Value, a.hasValue = strings.Cut(strings.TrimLeft(w, "-"), "=")
			a.given = a.option
			if full := p.takesWord(a.option); full != "" {
				a.option = full
				if !a.hasValue && i+1 < len(words) {
					a.Value, a.hasValue, used = next, true, true
				}
			}
			args = append(args, a)
		case strings.HasPrefix(w, "-") && w != "-":
			args, used = p.cluster(args, w, next)
		default:
			args = append(args, Argument{Value: w, hasValue: true, Word: w})
		}
		if used {
			i++
		}
	}
	return args
}

// harmless reads one word with options of a program that is known by them. A value in a word of its own that looks
// like an option is unknown: should the program not take it as the value, it would be one.
func (p program) harmless(args []Argument, w, next string) (_ []Argument, used bool) {
	end := func(a Argument, takes valueKind) ([]Argument, bool) {
		inNext := !a.hasValue && (takes == text || takes == file)
		if inNext {
			a.Value, a.hasValue = next, true
			a.unknown = next == "" || !p.oneDash && next[0] == '-' && !IsNumber(next[1:])
		}
		a.text = takes != file
		return append(args, a), inNext
	}
	unknown := func(option string) ([]Argument, bool) {
		a := Argument{option: option, Word: w, unknown: true}
		if strings.HasPrefix(w, "--") {
			a.given = option
		}
		return append(args, a), false
	}
	if IsNumber(w[1:]) && p.has("#") {
		return append(args, Argument{option: "#", Word: w}), false
	}
	if long := strings.HasPrefix(w, "--"); long || p.oneDash {
		a := Argument{Word: w}
		if a.option = w[1:]; long {
			a.option, a.Value, a.hasValue = strings.Cut(w[2:], "=")
		}
		takes, ok := p.options[a.option]
		if !ok || long && (p.oneDash || len(a.option) < 2) || a.hasValue && takes == nothing {
			return unknown(a.option)
		}
		return end(a, takes)
	}
	for i := 1; i < len(w); i++ {
		a := Argument{option: w[i : i+1], Word: w}
		takes, ok := p.options[a.option]
		switch rest := w[i+1:]; {
		case !ok:
			return unknown(a.option)
		case takes != nothing && p.alone && rest != "":
			return unknown(a.option)
		case takes != nothing:
			a.Value, a.hasValue = rest, rest != ""
			return end(a, takes)
		}
		args = append(args, a)
	}
	return args, false
}

func (p program) has(option string) bool {
	_, ok := p.options[option]
	return ok
}

// takesWord returns the full name of an option whose value is the next word. GNU programs also accept abbreviations.
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

// cluster reads short options that are joined in one word. A character that is not a letter begins a value.
func (p program) cluster(args []Argument, w, next string) (_ []Argument, used bool) {
	for i := 1; i < len(w); i++ {
		a := Argument{option: w[i : i+1], Word: w}
		rest := w[i+1:]
		if strings.Contains(p.valued, a.option) {
			if rest == "" {
				rest, used = next, true
			}
			a.Value, a.hasValue = strings.TrimPrefix(rest, "="), true
			return append(args, a), used
		}
		if c := w[i]; !(c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z') {
			return append(args, Argument{option: a.option, Value: strings.TrimPrefix(w[i:], "="), hasValue: true, Word: w}),
				false
		}
		args = append(args, a)
		if !p.known {
			a = Argument{option: a.option, Value: rest, hasValue: rest != "", Word: w}
			return append(args[:len(args)-1], a), false
		}
	}
	return args, used
}

// dangerous reports whether an option is a dangerous one, in full, abbreviated or as a letter.
func (p program) dangerous(a Argument) bool {
	switch {
	case a.option == "" || p.options != nil:
		return false
	case a.given == "":
		return strings.Contains(p.letters, a.option)
	case slices.Contains(p.exact, a.given), slices.Contains(p.words, a.given):
		return false
	}
	return slices.ContainsFunc(p.danger, func(d string) bool { return strings.HasPrefix(d, a.given) })
}

// files are the arguments that may name files: all but patterns and text.
func (p program) files(args []Argument) (files []Argument) {
	skip := p.pattern != nil && !has(args, p.pattern...)
	for _, a := range args {
		switch {
		case !a.hasValue, a.option != "" && (a.text || slices.Contains(p.free, a.option)):
		case a.option == "" && skip:
			skip = false
		default:
			files = append(files, a)
		}
	}
	return files
}

// positionals returns the arguments that are not options.
func positionals(args []Argument) (values []string) {
	for _, a := range args {
		if a.option == "" {
			values = append(values, a.Value)
		}
	}
	return values
}

// has reports whether one of these options is given with its exact name.
func has(args []Argument, options ...string) bool {
	return slices.ContainsFunc(args, func(a Argument) bool { return a.option != "" && slices.Contains(options, a.option) })
}

func IsNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
