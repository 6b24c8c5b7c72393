package workspace

import (
	"cmp"

	"pocketcoder/events"
	"pocketcoder/handlers/policy"
)

// Ask returns a request of a session that works in a directory, as the policy looks at it. The command of a request
// would run there.
func Ask(a events.PermissionAsk, directory string) policy.Ask {
	about := a.About()
	in := policy.Ask{
		Type: a.Permission, Patterns: a.Patterns, Path: about.Filepath, URL: about.URL, Resolve: RealPath,
		List: ListFolder, Tracked: TrackedFiles, Irregular: irregular,
	}
	switch a.Permission {
	case "bash":
		in.Command = about.Command
	case "grep", "glob":
		in.Path, in.Include = about.Folder, about.Include
	case "lsp":
		in.Path = about.Lsp
	}
	in.Root, _ = RealPath(directory)
	in.Cwd, in.Ignored = in.Root, IgnoredBelow(in.Root)
	if paths := about.Patched(); a.Permission == "edit" && len(paths) > 0 {
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
	case "network":
		in.Address = pattern
	case "mcp": // OpenCode asks under the tool's own name
		in.Tool = pattern
	}
	return in
}
