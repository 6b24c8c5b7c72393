package bash

import (
	"cmp"
	"slices"
	"strings"

	"pocketcoder/handlers/policy/display"
	"pocketcoder/handlers/policy/files"
)

// LocatedCommand is a command and the folders in which it may run.
type LocatedCommand struct {
	Command
	Folders []string // several if the folder depends on earlier commands
	Moved   bool     // a cd comes before it
}

// Follow returns the plain commands with the folders in which each may run, if bash starts in cwd. A cd moves the
// commands after it, with certainty only those after &&. cause is why the folders are unknown, or not all in the
// workspace.
func (s Script) Follow(ws files.Workspace, cwd string) (commands []LocatedCommand, cause string) {
	switch {
	case ws.Root == "":
		return nil, "the workspace is not known"
	case cwd == "":
		return nil, "the folder it would run in is not known"
	case !files.Within(ws.Root, cwd):
		return nil, "it would run in " + display.Quote(cwd) + ", outside the workspace"
	}
	start := []files.Location{{Lexical: cwd, Real: cwd}}
	in, ever, moved := start, start, false
	for i, c := range s.Plain {
		if i > 0 && c.Line != s.Plain[i-1].Line {
			in = ever
		}
		commands = append(commands, LocatedCommand{Command: c, Folders: folders(in), Moved: moved})
		if len(c.Words) == 0 || c.Words[0] != "cd" {
			continue
		}
		next, cause := enter(ws, in, c.Words[1:])
		if cause != "" {
			return nil, cause
		}
		moved = true
		if ever = union(ever, next); len(ever) > 16 { // each cd may double them
			return nil, "it changes the folder more often than can be followed"
		}
		if c.Sure {
			in = next
		} else {
			in = ever
		}
	}
	return commands, ""
}

// enter returns the directories that a cd can lead to. For ".." bash removes the last part of the logical path. With
// -P, or if no directory has that path, bash uses the parent of the physical directory.
func enter(ws files.Workspace, from []files.Location, words []string) (to []files.Location, cause string) {
	physical := false
	for len(words) > 0 && (words[0] == "-P" || words[0] == "-L") {
		physical, words = words[0] == "-P", words[1:]
	}
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	// also behind -- bash takes "-" for the previous directory
	if len(words) != 1 || words[0] == "" || words[0][0] == '-' {
		return nil, "the target of “cd” cannot be read from the command"
	}
	for _, folder := range from {
		real, cause := ws.Locate(folder.Real, words[0])
		if cause != "" {
			return nil, cause
		}
		next := []files.Location{{Lexical: real.Real, Real: real.Real}}
		if !physical {
			named, cause := ws.Locate(folder.Lexical, words[0])
			if cause == "" {
				named, cause = ws.Locate("", named.Lexical)
			}
			if cause != "" {
				return nil, cause
			}
			if next[0] = named; named.Real != real.Real {
				next = append(next, files.Location{Lexical: real.Real, Real: real.Real})
			}
		}
		for _, at := range next {
			if !files.Within(ws.Root, at.Real) {
				return nil, display.Quote(words[0]) + " is outside the workspace"
			}
		}
		to = union(to, next)
	}
	return to, ""
}

// union returns the locations of both lists, sorted, each once.
func union(a, b []files.Location) []files.Location {
	all := slices.Concat(a, b)
	slices.SortFunc(all, func(a, b files.Location) int {
		return cmp.Or(strings.Compare(a.Lexical, b.Lexical), strings.Compare(a.Real, b.Real))
	})
	return slices.Compact(all)
}

// folders returns the real paths of locations.
func folders(in []files.Location) (real []string) {
	for _, at := range in {
		if !slices.Contains(real, at.Real) {
			real = append(real, at.Real)
		}
	}
	return real
}
