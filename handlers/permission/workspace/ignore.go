package workspace

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"

	"pocketcoder/handlers/policy/files"
)

// ignoreFiles are the names of the files that tell ripgrep what to skip.
var ignoreFiles = []string{".gitignore", ".ignore", ".rgignore"}

// IgnoredBelow returns policy.Input.Ignored for a workspace. It understands plain lines of .gitignore, .ignore and
// .rgignore; a line that it does not understand ignores nothing, and one with ! that may match makes a path count as
// not ignored. Repositories around the workspace do not count, because OpenCode does not see them.
func IgnoredBelow(root string) files.Ignored {
	known := map[string][]ignoreLine{}
	exists := map[string]bool{}
	lines := func(file string) []ignoreLine {
		read, ok := known[file]
		if !ok {
			read = readIgnoreFile(file)
			known[file] = read
		}
		return read
	}
	repository := func(dir string) bool {
		is, ok := exists[dir]
		if !ok {
			_, err := os.Stat(filepath.Join(dir, ".git"))
			is = err == nil
			exists[dir] = is
		}
		return is
	}
	return func(path string, folder bool, spend func(steps int) bool) bool {
		ignored, inGit, above := false, false, false
		for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
			relative, err := filepath.Rel(dir, path)
			if err != nil {
				return false
			}
			for _, name := range ignoreFiles {
				git := name == ".gitignore"
				compared := lines(filepath.Join(dir, name))
				if !spend(len(compared)) {
					return false
				}
				for _, l := range compared {
					switch matches := l.matches(relative, folder); {
					case l.negated && matches:
						return false
					case above || git && inGit || !matches: // a repository's .gitignore does not count above it
					case !git:
						ignored = true
					default:
						ignored = ignored || repositoryAround(dir, root, repository)
					}
				}
			}
			inGit = inGit || repository(dir)
			above = above || dir == root
			if dir == filepath.Dir(dir) {
				return ignored
			}
		}
	}
}

// repositoryAround reports whether a folder lies in a git repository of the workspace: ripgrep reads .gitignore only
// there.
func repositoryAround(dir, root string, repository func(string) bool) bool {
	for ; ; dir = filepath.Dir(dir) {
		if repository(dir) {
			return true
		}
		if dir == root || dir == filepath.Dir(dir) {
			return false
		}
	}
}

type ignoreLine struct {
	negated  bool
	folders  bool     // it matches folders only
	anchored bool     // it matches a path from the file's folder, not a name anywhere below
	parts    []string // patterns of names; nil when the line is not understood
}

var plainIgnore = regexp.MustCompile(`^[A-Za-z0-9_.*-]+$`)

func readIgnoreFile(file string) (lines []ignoreLine) {
	info, err := os.Lstat(file)
	if err != nil {
		return nil
	}
	body, ok := readRegular(file, 64<<10)
	if !ok || info.IsDir() || !utf8.Valid(body) || bytes.ContainsAny(body, "\x00\ufeff") {
		return []ignoreLine{{negated: true}} // what it says is not known: versions of ripgrep differ
	}
	for _, text := range strings.Split(string(body), "\n") {
		if text = strings.TrimSuffix(text, "\r"); text == "" || text[0] == '#' {
			continue
		}
		var l ignoreLine // blanks are part of a pattern, and are not understood
		text, l.negated = strings.CutPrefix(text, "!")
		text, l.folders = strings.CutSuffix(text, "/")
		if name, ok := strings.CutPrefix(text, "**/"); ok && !strings.Contains(name, "/") {
			text = name
		}
		l.anchored = strings.Contains(text, "/")
		for _, part := range strings.Split(strings.TrimPrefix(text, "/"), "/") {
			if !plainIgnore.MatchString(part) || l.anchored && strings.Contains(part, "**") {
				l.parts = nil
				break
			}
			l.parts = append(l.parts, part)
		}
		lines = append(lines, l)
	}
	return lines
}

// matches reports whether a line is about a path below the folder of its file. In doubt one with ! is, and another is
// not.
func (l ignoreLine) matches(relative string, folder bool) bool {
	switch names := strings.Split(relative, "/"); {
	case l.parts == nil:
		return l.negated
	case l.folders && !folder:
		return false
	case !l.anchored:
		return matchName(l.parts[0], names[len(names)-1])
	case len(names) != len(l.parts):
		return false
	default:
		for i, part := range l.parts {
			if !matchName(part, names[i]) {
				return false
			}
		}
		return true
	}
}

// matchName compares a name with a pattern in which * stands for any characters.
func matchName(pattern, name string) bool {
	ok, err := filepath.Match(pattern, name)
	return ok && err == nil
}
