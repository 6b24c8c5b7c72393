// Package proc reads the state of Linux processes from /proc. It must not know what a command, a limit or a worker is.
// On other systems it is empty.
package proc
