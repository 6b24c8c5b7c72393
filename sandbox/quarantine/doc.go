// Package quarantine takes protected names (package protected) out of a workspace that commands create in its top
// directory, and puts back protected files that commands change. It watches a workspace while commands run in it.
//
// A quarantined name leaves the workspace by a rename. When its command ends, the worker copies it, so that no process
// can change it any more. A person then decides about the copy: Keep moves it back, and Dismiss deletes it.
//
// Promises:
//   - A protected name that appears is taken as soon as the kernel reports it. If the kernel did not report it, it is
//     taken when a command ends, at the latest. Links and special files are never followed or opened.
//   - The watch names no process. So it also takes a name that a person creates while a command runs. It never takes
//     a name that existed when the first of the running commands started.
//   - The part that completes a git repository in the top directory is taken and cannot be kept. Neither can large
//     names and special files.
//   - With Config.Guards, a protected name that exists is put back when it changes, with the content it had before the
//     first of the running commands. A missing name in a git directory is removed. Without Guards, only a kept name is
//     put back, while commands run that started before.
//   - A command that does so again and again is stopped.
//   - An item survives a restart and a crash. What is replaced or cannot be kept goes to the directory "replaced".
//
// It must not know what a permission is, nor how commands are isolated. Outside Linux it does nothing.
package quarantine

// Config is the configuration of a Quarantine.
type Config struct {
	Dir       string                   // for the quarantined files, absolute
	Workspace string                   // absolute, symlinks resolved
	Guards    bool                     // protected names are not covered by mounts
	Worker    string                   // identifies this worker
	IsDead    func(worker string) bool // reports whether a worker is dead
}
