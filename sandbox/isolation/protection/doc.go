// Package protection protects the names of a workspace that programs obey as configuration (package protected), while
// commands run in it. Workspace.Protect returns mounts that cover these names. A mount needs a file to cover, so it
// creates placeholders at missing names.
//
// Promises: commands of several workers share placeholders. The last worker removes them, and a worker that starts
// removes those of a killed one.
//
// It must not know what an isolation level or a command is, nor how the mounts are made. On other systems it does
// nothing.
package protection
