package policy

import (
	"path"
	"strings"
	"unicode/utf8"

	"pocketcoder/handlers/policy/display"
	"pocketcoder/handlers/policy/files"
	"pocketcoder/handlers/policy/program"
)

// checkPath says what is wrong with the pattern of a rule about files: absolute, or relative to the workspace, with *
// for any name or a part of one and ** for any folders.
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

// pathPattern is the pattern of a rule about files, taken apart.
type pathPattern struct {
	inside   bool // is Inside
	absolute bool
	parts    []string
}

func parsePathPattern(pattern string) pathPattern {
	clean := path.Clean(pattern)
	return pathPattern{pattern == Inside, strings.HasPrefix(clean, "/"),
		strings.Split(strings.TrimPrefix(clean, "/"), "/")}
}

// matches compares with an absolute, clean path, by component.
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

// matchParts lets ** stand for any folders, none too; at the end it stands for at least one name. It goes back to the
// last ** only: what an earlier one could take besides, that one can take too.
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

// leads says where the file that is asked about really is, when symlinks lead elsewhere than its path says. Of several
// files it names the first such that lies outside the workspace, or else the first.
func (a Ask) leads() (cause string) {
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

// reaches names the folders outside the workspace that a command is about: OpenCode tells only them, each as folder/*.
func (a Ask) reaches() string {
	var folders []string
	for _, p := range a.Patterns {
		folders = append(folders, display.QuotePath(path.Clean(strings.TrimSuffix(p, "*"))))
	}
	return "it reaches outside the workspace: " + strings.Join(folders, ", ")
}

// lowercaseLocation is a place as a file system that ignores case sees it.
type lowercaseLocation struct {
	files.Location
	root string
}

func (a Ask) lower(at files.Location) lowercaseLocation {
	return lowercaseLocation{files.Location{Lexical: strings.ToLower(at.Lexical), Real: strings.ToLower(at.Real)},
		strings.ToLower(a.Root)}
}
