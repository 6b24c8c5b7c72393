package program

import (
	"regexp"
	"slices"
	"strings"
)

// treeOptions describe when a program reads folders recursively.
type treeOptions struct {
	options   []string // options that make it recursive
	always    bool     // recursive without an option
	here      bool     // reads the current folder if no argument names one
	follows   []string // options with which it follows symlinks; "*" for always
	visible   []string // options without which it skips hidden names; nil skips none
	skips     []string // options that name folders to skip
	only      []string // options that name the files to read
	noContent bool     // shows no content, so only the rules count and not possible secrets
}

// Tree describes the folders that a command reads recursively, and what it skips.
type Tree struct {
	Folders   []string // as the command names them
	Hidden    bool     // also hidden names
	Follow    bool     // also the targets of symlinks
	NoContent bool     // shows no content, so secrets do not count
	Shown     bool     // of hidden names, only those that an ignore file shows
	Tracked   bool     // only tracked files; all of them if Folders is empty
	Skips     []string // names of folders that are skipped
	Only      []string // patterns of names; nil for all
}

// plainGlob matches a name pattern that all programs interpret alike.
var plainGlob = regexp.MustCompile(`^[A-Za-z0-9_.*-]+$`)

// trees returns the folders that the command reads recursively.
func (c Call) trees(p program, args []Argument) []Tree {
	t := p.trees
	if !t.always && !has(args, t.options...) || c.Words[0] == "rg" && has(args, "files", "type-list") {
		return nil
	}
	r := Tree{NoContent: t.noContent, Hidden: t.visible == nil || has(args, t.visible...),
		Follow: slices.Contains(t.follows, "*") || has(args, t.follows...)}
	for _, a := range p.files(args) {
		r.Folders = append(r.Folders, a.Value)
	}
	if len(r.Folders) == 0 && t.here && !(c.Piped && c.Words[0] == "rg") {
		r.Folders = []string{"."}
	}
	if c.Words[0] == "rg" {
		r.ripgrep(args)
	}
	onlyAll := has(args, "exclude", "exclude-from")
	for _, a := range args {
		switch {
		case slices.Contains(t.skips, a.option) && plainGlob.MatchString(a.Value) && !strings.Contains(a.Value, "*"):
			r.Skips = append(r.Skips, a.Value)
		case slices.Contains(t.only, a.option):
			onlyAll = onlyAll || !plainGlob.MatchString(a.Value)
			r.Only = append(r.Only, a.Value)
		}
	}
	if onlyAll {
		r.Only = nil
	}
	return []Tree{r}
}

// visibleTypes are the file types of ripgrep without secret files. With another type it may read hidden ones.
var visibleTypes = set("c cpp cs css go h html java js kotlin md markdown php py python rust swift ts")

// ripgrep notes that rg reads hidden names that match a glob or a type, and only those that match a glob.
func (r *Tree) ripgrep(args []Argument) {
	r.Shown = !r.Hidden
	limits, all := false, has(args, "iglob", "glob-case-insensitive")
	for _, a := range args {
		switch a.option {
		case "iglob":
			r.Hidden = r.Hidden || !strings.HasPrefix(a.Value, "!")
		case "g", "glob":
			if strings.HasPrefix(a.Value, "!") {
				continue
			}
			names := GlobNames(a.Value)
			limits, all, r.Hidden = true, all || names == nil, true
			r.Only = append(r.Only, names...)
		case "t", "type":
			r.Hidden = r.Hidden || !visibleTypes[a.Value]
		case "type-add", "type-clear":
			r.Hidden = true
		}
	}
	if !limits || all {
		r.Only = nil
	}
}

// GlobNames returns patterns for the names that a glob of ripgrep matches, nil if it may match any name.
func GlobNames(include string) (names []string) {
	for _, pattern := range expandBraces(include) {
		name := pattern[strings.LastIndexByte(pattern, '/')+1:]
		if !plainGlob.MatchString(name) {
			return nil
		}
		names = append(names, name)
	}
	return names
}

// expandBraces returns the alternatives of a pattern with one pair of braces. It returns other patterns unchanged.
func expandBraces(pattern string) (all []string) {
	head, rest, opened := strings.Cut(pattern, "{")
	list, tail, closed := strings.Cut(rest, "}")
	if !opened || !closed || strings.ContainsAny(head+tail, `{}\`) || strings.ContainsAny(list, `{\`) {
		return []string{pattern}
	}
	for _, part := range strings.Split(list, ",") {
		all = append(all, head+part+tail)
	}
	return all
}

// plainIgnored matches a line of an ignore file that all versions of ripgrep interpret alike.
var plainIgnored = regexp.MustCompile(`^[A-Za-z0-9_./*-]*$`)

// ShownNames returns the hidden names, in lower case, that an ignore file makes ripgrep read with lines that begin with
// !. It returns "*" for a line that may show any hidden name.
func ShownNames(text string) (names []string) {
	for _, line := range strings.Split(text, "\n") {
		pattern, negated := strings.CutPrefix(strings.TrimSpace(strings.TrimPrefix(line, "\ufeff")), "!")
		if !negated {
			continue
		}
		pattern = strings.TrimRight(pattern, "/")
		name := pattern[strings.LastIndexByte(pattern, '/')+1:]
		switch {
		case !plainIgnored.MatchString(pattern), strings.HasPrefix(name, "*"),
			strings.HasPrefix(name, ".") && strings.Contains(name, "*"):
			return []string{"*"}
		case strings.HasPrefix(name, "."):
			names = append(names, strings.ToLower(name))
		}
	}
	return names
}

func set(names string) map[string]bool {
	s := map[string]bool{}
	for _, name := range strings.Fields(names) {
		s[name] = true
	}
	return s
}

// Reads reports whether the command reads files of a name.
func (t Tree) Reads(name string) bool {
	return t.Only == nil || slices.ContainsFunc(t.Only, func(pattern string) bool { return Glob(pattern, name) })
}

// Glob compares s with a pattern in which * stands for any characters.
func Glob(pattern, s string) bool {
	head, rest, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == s
	}
	if !strings.HasPrefix(s, head) {
		return false
	}
	s = s[len(head):]
	for {
		part, after, more := strings.Cut(rest, "*")
		if !more {
			return strings.HasSuffix(s, part)
		}
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s, rest = s[i+len(part):], after
	}
}
