package policy

import (
	"path"
	"strings"
	"unicode/utf8"

	"pocketcoder/handlers/policy/display"
	"pocketcoder/handlers/policy/files"
	"pocketcoder/handlers/policy/program"
)

// checkPath checks the pattern of a file rule: absolute, or relative to the workspace, with * for a name or a part of
// it and ** for any folders.
func checkPath(pattern string) *SyntaxError {
	if pattern == Inside {
		return nil
	}
	at := 1
	for i, part := range strings.Split(pattern, "/") {
		switch {
		case part == "..":
			return &SyntaxError{at, "a pattern does not go up with .."}
		case strings.HasPrefix(part, "~") && i == 0:
			return &SyntaxError{at, "~ means nothing here; write the whole path"}
		case part != "**" && strings.Contains(part, "**"):
			return &SyntaxError{at, "** stands alone between slashes"}
		case strings.Contains(part, `\`):
			return &SyntaxError{at, `folders are separated with /, and \ means nothing`}
		}
		at += utf8.RuneCountInString(part) + 1
	}
	if strings.HasSuffix(pattern, "/") {
		return &SyntaxError{utf8.RuneCountInString(pattern),
			"a pattern ends with a name; for all that is in a folder write /**"}
	}
	return nil
}

// pathPattern is the parsed pattern of a file rule.
type pathPattern struct {
	inside   bool // the pattern is Inside
	absolute bool
	parts    []string
}

func parsePathPattern(pattern string) pathPattern {
	clean := path.Clean(pattern)
	return pathPattern{pattern == Inside, strings.HasPrefix(clean, "/"),
		strings.Split(strings.TrimPrefix(clean, "/"), "/")}
}

// matches compares the pattern with an absolute, clean path, by component.
func (p pathPattern) matches(at, root string) bool {
	switch {
	case p.inside:
		return files.Within(root, at)
	case p.absolute:
		at = at[1:]
	case !files.Within(root, at):
		return false
	default:
		at = strings.TrimPrefix(strings.TrimPrefix(at, root), "/")
	}
	if first := p.parts[0]; !strings.Contains(first, "*") && !strings.HasPrefix(at, first) {
		return false
	}
	return matchParts(p.parts, strings.Split(at, "/"))
}

// matchesWide compares like matches, and takes * also as any characters of several names. It is for rules that deny or
// ask.
func (p pathPattern) matchesWide(at, root string) bool {
	if p.matches(at, root) {
		return true
	}
	switch {
	case p.inside || len(p.parts) == 1 && p.parts[0] == "":
		return false
	case p.absolute:
		at = at[1:]
	case !files.Within(root, at):
		return false
	default:
		at = strings.TrimPrefix(strings.TrimPrefix(at, root), "/")
	}
	return program.Glob(strings.Join(p.parts, "/"), at)
}

// matchParts lets ** match any number of folders, at the end at least one name. It backtracks to the last ** only,
// which can match everything that an earlier one could.
func matchParts(pattern, parts []string) bool {
	if parts[0] == "" { // the folder itself
		return pattern[0] == ""
	}
	p, last, from := 0, -1, 0
	for i := 0; i < len(parts); {
		switch {
		case p < len(pattern) && pattern[p] == "**":
			last, from = p, i
			p++
		case p < len(pattern) && program.Glob(pattern[p], parts[i]):
			p++
			i++
		case last >= 0:
			from++
			p, i = last+1, from
		default:
			return false
		}
	}
	return p == len(pattern)
}

// linkCause says where the requested file really is, if symlinks lead elsewhere. Of several files it names the first
// outside the workspace, else the first.
func (a Input) linkCause() (cause string) {
	paths := []string{a.Path}
	if len(a.Patterns) > 1 {
		paths = a.Patterns
	}
	for _, p := range paths {
		at, unknown := a.workspace().Locate(a.Cwd, p)
		outside := a.Root != "" && !files.Within(a.Root, at.Real)
		if unknown != "" || at.Real == at.Lexical || !outside && (cause != "" || !files.Within(a.Root, at.Lexical)) {
			continue
		}
		name := "it"
		if len(paths) > 1 {
			name = display.QuotePath(strings.TrimPrefix(at.Lexical, a.Root+"/"))
		}
		cause = name + " leads to " + display.QuoteStart(at.Real, 120)
		if outside {
			return cause + ", outside the workspace"
		}
	}
	return cause
}

// outsideCause names the folders outside the workspace that a command uses. OpenCode reports each as folder/*.
func (a Input) outsideCause() string {
	var folders []string
	for _, p := range a.Patterns {
		folders = append(folders, display.QuotePath(path.Clean(strings.TrimSuffix(p, "*"))))
	}
	return "it reaches outside the workspace: " + strings.Join(folders, ", ")
}

// lowercaseLocation is a location on a file system that ignores case.
type lowercaseLocation struct {
	files.Location
	root string
}

func (a Input) lower(at files.Location) lowercaseLocation {
	return lowercaseLocation{files.Location{Lexical: strings.ToLower(at.Lexical), Real: strings.ToLower(at.Real)},
		strings.ToLower(a.Root)}
}
