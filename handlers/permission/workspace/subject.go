package workspace

import (
	"cmp"
	"encoding/json"
	"strings"

	"pocketcoder/events"
	"pocketcoder/handlers/policy"
)

// Subject is what the metadata of an ask say it is about.
type Subject struct {
	Command  string `json:"command"`  // bash
	Filepath string `json:"filepath"` // edit, external_directory
	Lsp      string `json:"filePath"` // lsp
	Folder   string `json:"path"`     // grep, glob: the folder or file, absolute or relative to the session's directory
	Include  string `json:"include"`  // grep: a glob of the files that are searched
	URL      string `json:"url"`      // webfetch

	// Of a patch, each file absolute, and where it is moved. Its filepath holds the names alone, from OpenCode's worktree.
	Files []struct {
		FilePath string `json:"filePath"`
		MovePath string `json:"movePath"`
		Type     string `json:"type"` // add, update, delete, move
	} `json:"files"`
}

// patched gives every file that a patch writes.
func (s Subject) patched() (paths []string) {
	for _, f := range s.Files {
		paths = append(paths, f.FilePath)
		if f.MovePath != "" {
			paths = append(paths, f.MovePath)
		}
	}
	return paths
}

func SubjectOf(a events.PermissionAsk) (s Subject) {
	_ = json.Unmarshal(a.Metadata, &s) // of whatever shape it is: the policy asks about what is missing
	if a.Permission != "bash" {
		s.Command = ""
	}
	return s
}

// Text says what an ask is about.
func Text(a events.PermissionAsk) string {
	is := SubjectOf(a)
	return cmp.Or(is.Command, is.Filepath, is.URL, strings.Join(a.Patterns, " "))
}

// Ask returns a request of a session that works in a directory, as the policy looks at it. The command of a request would run there.
func Ask(a events.PermissionAsk, directory string) policy.Ask {
	about := SubjectOf(a)
	in := policy.Ask{
		Type: a.Permission, Patterns: a.Patterns, Command: about.Command, Path: about.Filepath, URL: about.URL, Resolve: RealPath,
		List: ListFolder, Tracked: TrackedFiles, Irregular: irregular,
	}
	switch a.Permission {
	case "grep", "glob":
		in.Path, in.Include = about.Folder, about.Include
	case "lsp":
		in.Path = about.Lsp
	}
	in.Root, _ = RealPath(directory)
	in.Cwd, in.Ignored = in.Root, IgnoredBelow(in.Root)
	if paths := about.patched(); a.Permission == "edit" && len(paths) > 0 {
		in.Patterns, in.Path = paths, paths[0]
	}
	if len(a.Patterns) != 1 {
		return in
	}
	switch pattern := a.Patterns[0]; a.Permission {
	case "read", "list":
		if in.Path == "" && in.Root != "" {
			in.Path, _ = locate(directory, pattern)
		}
	case "edit", "write":
		in.Path = cmp.Or(in.Path, pattern)
	case "webfetch":
		in.URL = cmp.Or(in.URL, pattern)
	case "mcp": // OpenCode asks under the tool's own name
		in.Tool = pattern
	}
	return in
}
