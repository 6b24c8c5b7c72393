package isolation

import (
	"path/filepath"
	"slices"

	list "pocketcoder/sandbox/protected"
)

// protected are the names that commands may not create or change in the top folder of a workspace. Missing ones are
// protected too. A folder further down is not protected, because nobody works in it as a project.
var projectNames = listProjectNames()

func listProjectNames() (names []protectedName) {
	for _, path := range list.Project {
		n := protectedName{path: path, placeholder: directoryPlaceholder}
		switch {
		case path == ".git":
			n.children = gitNames // a repository is made by the person: git init here is refused
		case path == "opencode.json" || path == "opencode.jsonc":
			// OpenCode reads them whatever they are, and a folder would end every chat. A file would show in the person's git. So a
			// command can create them, and OpenCode obeys them only where it does not run for PocketCoder.
			n.placeholder = noPlaceholder
		}
		names = append(names, n)
	}
	for _, path := range list.Instructions {
		names = append(names, protectedName{path: path, placeholder: directoryPlaceholder, instructions: true})
	}
	return names
}

// inGit are the names in .git by which git runs programs. The rest of .git stays writable.
var gitNames = []protectedName{
	{path: "config", placeholder: filePlaceholder}, {path: "config.worktree", placeholder: filePlaceholder}, // core.fsmonitor, hooksPath, pager, …
	{path: "commondir", placeholder: dotPlaceholder}, // moves config and hooks elsewhere
	{path: "hooks", placeholder: directoryPlaceholder}, {path: "info", placeholder: directoryPlaceholder}, {path: "modules", placeholder: directoryPlaceholder}, {path: "worktrees", placeholder: directoryPlaceholder},
}

// inHome is protected as well when the workspace is a person's home directory.
func homeNames() (names []protectedName) {
	for _, path := range list.Home {
		names = append(names, protectedName{path: path, placeholder: directoryPlaceholder})
	}
	return names
}

// name is a protected name.
type protectedName struct {
	path        string          // below the folder it is listed for
	children    []protectedName // when it is a folder: what is protected in it, while the rest stays writable. Without, all of it is protected
	placeholder placeholderKind

	// instructions are texts for agents. A symbolic link is left as it is: projects often have one text under two names.
	instructions bool
}

// stub is what stands at a missing name while a command runs, for something has to be there that a mount can lie on. It is
// an empty folder wherever possible, even for names of files, since git and tools that list files pass over it.
type placeholderKind int

const (
	noPlaceholder placeholderKind = iota // it cannot be missing, or need not be protected then
	directoryPlaceholder
	filePlaceholder
	dotPlaceholder // a file with a dot in it: git takes commondir for the path of the repository
)

// instructionOrder is the order in which OpenCode looks for instructions in a folder. It reads the first that exists.
var instructionOrder = []string{"AGENTS.md", "CLAUDE.md", "CONTEXT.md"}

// hides reports whether a stub with this name would keep OpenCode from reading a file that comes later in instructionOrder.
func shadows(workspace, name string) bool {
	at := slices.Index(instructionOrder, name)
	return at >= 0 && slices.ContainsFunc(instructionOrder[at+1:], func(later string) bool { return exists(filepath.Join(workspace, later)) })
}

// bareNames are protected where there is no .git. Git takes a folder for a bare repository when it has HEAD, objects and
// refs, and obeys the configuration in it. With a file commondir, the latter two may be elsewhere. A stub named HEAD would
// make `git diff HEAD` ambiguous in a folder of a repository, so it is the last choice.
func bareRepositoryNames(workspace string) []protectedName {
	has := func(name string) bool { return exists(filepath.Join(workspace, name)) }
	switch {
	case has("HEAD") && has("objects") && has("refs"): // it is one
		return append([]protectedName{{path: "HEAD"}}, gitNames...)
	case !has("refs"):
		return []protectedName{{path: "commondir", placeholder: directoryPlaceholder}, {path: "refs", placeholder: directoryPlaceholder}}
	case !has("objects"):
		return []protectedName{{path: "commondir", placeholder: directoryPlaceholder}, {path: "objects", placeholder: directoryPlaceholder}}
	}
	return []protectedName{{path: "HEAD", placeholder: directoryPlaceholder}}
}

// bareStubs are all stubs that bareNames may have asked for.
var bareRepositoryPlaceholders = []protectedName{{path: "HEAD", placeholder: directoryPlaceholder}, {path: "commondir", placeholder: directoryPlaceholder}, {path: "refs", placeholder: directoryPlaceholder}, {path: "objects", placeholder: directoryPlaceholder}}
