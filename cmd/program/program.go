// Package program describes the running program: its version, its name on the command line, and how it starts other
// programs.
//
// It must not know what the program does.
package program

import (
	"cmp"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"syscall"
)

// Launcher are the words that start a program with the file mode mask that this process was started with, because the
// program writes the person's files. It is empty unless MaskFiles was called.
var Launcher []string

// Version returns the version of this program: the module's, and the commit it was built from when the build knew it.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return unknownVersion
	}
	v := []string{info.Main.Version}
	v[0] = cmp.Or(v[0], "(devel)")
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && v[0] == "(devel)":
			v = append(v, s.Value[:min(len(s.Value), 12)])
		case s.Key == "vcs.modified" && s.Value == "true" && v[0] == "(devel)":
			v = append(v, "modified")
		}
	}
	return strings.Join(v, " ")
}

const unknownVersion = "unknown"

// VersionOfModule returns the version of a module that this program is built with.
func VersionOfModule(path string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == path {
				return m.Version
			}
		}
	}
	return unknownVersion
}

// Name returns what a person types to run this program again: "go run" leaves no program behind.
func Name() string {
	self, err := os.Executable()
	if err == nil && strings.Contains(self, "go-build") {
		return "go run ./cmd/pocketcoder"
	}
	return "pocketcoder"
}

// MaskFiles makes every file that this process creates accessible to its owner alone, and sets Launcher.
func MaskFiles() {
	Launcher = []string{"/bin/sh", "-c", `umask "$0" && exec "$@"`, fmt.Sprintf("%04o", syscall.Umask(0o077))}
}
