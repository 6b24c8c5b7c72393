package isolation

// protected is what programs outside the sandbox execute or obey when they find it in the top folder of a workspace: the
// person's git, editor, shell prompt and package manager, and other agents. A command that could write one of them would
// run code outside, with the person's rights, at the next look at the folder. Those that are missing are protected too.
//
// It is shorter than the gate's list of names that are not written without a person: a name is worth its cost here when
// programs obey it without being asked to run something of the project. A Makefile is not among them, nor is a folder
// further down, which nobody works in as a project.
var protected = []name{
	{path: ".git", inner: []name{
		{path: "config", stub: file}, {path: "config.worktree", stub: file}, // core.fsmonitor, hooksPath, pager, …
		{path: "commondir", stub: itself}, // moves config and hooks elsewhere
		{path: "hooks", stub: folder}, {path: "info", stub: folder}, {path: "modules", stub: folder}, {path: "worktrees", stub: folder},
	}, stub: folder}, // a repository is made by the person: git init here is refused
	{path: ".gitmodules", stub: folder}, {path: ".gitattributes", stub: folder}, {path: ".gitconfig", stub: folder},
	{path: ".githooks", stub: folder}, {path: ".husky", stub: folder}, // core.hooksPath is set to them by custom
	{path: ".mcp.json", stub: folder}, {path: ".claude", stub: folder}, {path: ".opencode", stub: folder}, {path: ".pocketcoder", stub: folder},
	{path: "opencode.json", stub: folder}, {path: "opencode.jsonc", stub: folder},
	{path: ".vscode", stub: folder}, {path: ".idea", stub: folder}, // tasks that run when the folder is opened
	{path: ".envrc", stub: folder}, {path: ".npmrc", stub: folder},
}

// bare is protected as well when there is no .git: git takes a folder with HEAD, objects, refs and config for a repository.
var bare = []name{{path: "HEAD", stub: folder}}

// inHome is protected as well when the workspace is somebody's home directory.
var inHome = []name{
	{path: ".bashrc", stub: folder}, {path: ".bash_profile", stub: folder}, {path: ".bash_login", stub: folder}, {path: ".bash_logout", stub: folder},
	{path: ".bash_aliases", stub: folder}, {path: ".profile", stub: folder}, {path: ".zshrc", stub: folder}, {path: ".zshenv", stub: folder},
	{path: ".zprofile", stub: folder}, {path: ".zlogin", stub: folder}, {path: ".zlogout", stub: folder}, {path: ".inputrc", stub: folder},
	{path: ".vimrc", stub: folder}, {path: ".tmux.conf", stub: folder}, {path: ".ssh", stub: folder}, {path: ".gnupg", stub: folder},
	{path: ".config", stub: folder}, {path: ".local", stub: folder},
}

// name is a protected name.
type name struct {
	path  string // below the folder it is listed for
	inner []name // when it is a folder: what is protected in it, while the rest stays writable. Without, all of it is protected
	stub  stub
}

// stub is what stands at a missing name while a command runs, for something has to be there that a mount can lie on. It is
// an empty folder wherever possible, even for names of files, since git and tools that list files pass over it.
type stub int

const (
	none stub = iota // it cannot be missing, or need not be protected then
	folder
	file
	itself // a file with a dot in it: git takes commondir for the path of the repository
)
