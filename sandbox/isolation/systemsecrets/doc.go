// Package systemsecrets lists the system's secret files: the files and directories below /etc, /opt and /usr/local that
// this process can read, but not every user of the machine can.
//
// The list is up to date at each call of Paths, because inotify reports changes to it. If the kernel allows too few
// inotify watches, it can be one minute old. A process has one list, because a scan reads tens of thousands of files.
//
// The package changes no file. It must not know what an isolation level or a command is. On other systems it is empty.
package systemsecrets
