// Package protection prevents commands from changing files of a workspace that programs read as configuration (package
// protected). Workspace.Protect returns mounts that cover these files. A mount needs a file to cover, so it creates
// placeholders at missing names in a git directory. A missing name in the top directory is not protected, unless the
// workspace is a bare repository, where it is the git directory: package quarantine takes it when it appears.
//
// Promises: workers share placeholders. The last worker that uses them removes them. A new worker removes those of a
// killed worker.
//
// It must not know what an isolation level or a command is, nor how the mounts are made. Outside Linux it does
// nothing.
package protection
