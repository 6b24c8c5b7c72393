// Package proc reads what Linux tells of processes in /proc. It must not know what a command, a limit or a worker is.
// On other systems it is empty.
package proc
