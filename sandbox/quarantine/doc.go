// Package quarantine moves protected names (package protected) that commands create in the top directory of a workspace
// out of it. It also puts back protected files that commands change. It watches a workspace while commands run in it.
//
// A quarantined name leaves the workspace by a rename. When it is reported, the worker copies it, so that no process
// can change it any more. A person then decides about the copy: Keep moves it back, and Dismiss deletes it.
//
// Promises:
//   - A protected name that appears is taken as soon as the kernel reports it. If the kernel did not report it, it is
//     taken a moment later, or when a command ends. Links and special files are never followed or opened.
//   - The watch names no process. So it also takes a name that a person creates while a command runs. It never takes
//     a name that has existed since the first of the running commands started.
//   - Nothing that was taken or put back is deleted before a person decides. Folders that were taken under one name
//     become one item. Of files with one name the newest is the item. Everything else, and what cannot be kept, goes to
//     the directory "replaced". What does not fit there stays in the workspace under another name.
//   - The part that completes a git repository in the top directory is taken and cannot be kept. Neither can large
//     names and special files.
//   - With Config.Guards, a protected name that exists is put back when it changes, with the content it had before the
//     first of the running commands. A missing name in a git directory is removed. Without Guards, only a symbolic
//     link is put back, and a kept name while commands run that started before.
//   - Without Guards, a command of no chat is not watched. With Guards it is.
//   - A command that creates or changes protected names again and again is stopped.
//   - Items are reported when a running command of a chat is asked (Report), and when a command of a chat ends (End).
//     After a restart, each item without a decision is reported again. A lost report is repeated only then.
//     A report has the text of an item only if the commands of no other chat ran when the item was taken.
//
// It must not know what a permission is, nor how commands are isolated. Outside Linux it does nothing.
package quarantine

type Config struct {
	Dir       string                   // for the quarantined files, absolute
	Workspace string                   // absolute, symlinks resolved
	Guards    bool                     // protected names are not covered by mounts
	Worker    string                   // identifies this worker
	IsDead    func(worker string) bool // reports whether a worker is dead
}

// Command is a command that is about to start.
type Command struct {
	Exec             string
	Chat             string // equal for the commands of a chat; empty if it belongs to none, such as an MCP server
	ManagesWorktrees bool
	// Stop stops the command, because it created or changed a protected name again and again. It must not block.
	Stop func()
}
