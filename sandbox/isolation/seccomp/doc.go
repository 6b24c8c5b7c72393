// Package seccomp builds the seccomp filter of confined commands and installs it.
//
// A filter is a deny list. It denies system calls that commands do not need, and those that could undo their isolation:
// mounts, namespaces, tracing of other processes, kernel modules. It denies every call that gives a file a set-user-id
// or set-group-id bit. It limits which sockets a process can create. It kills a process that makes a system call of
// another architecture.
//
// A filter sees only the number and the register arguments of a system call. It cannot read memory, so it does not
// decide which files and addresses a command can use. Filter.Supervise adds that decision for changes of file modes.
//
// The package must not know what an isolation level, a workspace or a worker is. On other systems it is empty.
package seccomp
