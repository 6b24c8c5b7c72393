// Package isolation confines commands, so that the kernel denies what they must not do.
//
// Choose finds the strongest isolation level that works on this machine, by trying each one. Open prepares that level
// for one workspace. Confinement.Prepare returns how to start one command. The levels are:
//
//	bwrap      namespaces created by bubblewrap (root, processes, network, host name, IPC), and seccomp
//	landlock   Landlock, seccomp and no capabilities, applied to the thread that forks. If the worker can mount (as root),
//	           the command also has its own mounts: /tmp, /proc and the protected paths
//	container  seccomp and no capabilities. The container of the worker does the rest
//	none       nothing
//
// The levels bwrap and landlock promise:
//   - A command can use only listed files. It reads the system's directories without their secret files, and exposed
//     directories. It writes the workspace, the HOME of commands and a private temporary directory. Landlock does not
//     hide names: a command can read the existence and the size of other files. Without mounts, a command can also
//     change times of the user's files, and list all processes in /proc.
//   - A command cannot change, replace or rename a protected name that exists in the workspace (package protected), nor
//     create one in .git. Landlock cannot exclude one name from a directory. Without mounts, the kernel allows such
//     changes, and the caller must undo them (Choice.Mounts). At every level, the caller must remove a new protected
//     name from the top directory.
//   - A command has no network, except through a proxy at bwrap. It cannot reach the sockets of the host. At bwrap it
//     can reach a socket that another program creates in the workspace, and the sockets of the commands with which it
//     shares a Loopback. It cannot see, signal or trace their processes.
//   - The kernel follows no symbolic link in the directories of FileAccess.NoSymlinks, if this process can mount or
//     create a user namespace.
//   - A command cannot gain privileges: it has no set-user-id programs, capabilities, new namespaces or mounts, and it
//     cannot trace other processes.
//   - A command cannot set a set-user-id or set-group-id bit, which would give this user's rights to other users.
//
// One case is not covered. A mount ends with the file that it covers. If a program outside replaces a protected file
// while a command runs, that command can change the new file. The next command cannot.
//
// The package runs a program only to test a level, and bubblewrap for a long-running program (RunGuard). It must not
// know what a worker, a request or a limit is.
package isolation

import (
	"errors"
	"fmt"
	"slices"
)

type Level string

const (
	Bwrap     Level = "bwrap"
	Landlock  Level = "landlock"
	Container Level = "container"
	None      Level = "none"
)

// ContainerMark is the environment variable that the sandbox image sets.
const ContainerMark = "POCKETCODER_CONTAINER"

// GuardCommand is the first argument with which this program calls RunGuard.
const GuardCommand = "sandbox-guard"

// Auto makes Choose select the strongest level that works.
const Auto = "auto"

// Choice is the isolation level that Choose selected, and the reason. If Level is empty, no command may run.
type Choice struct {
	Level  Level
	Reason string // one line for a person: why this level was selected, and its restrictions

	// SharesLoopback reports whether commands can share a network: NewLoopback works
	SharesLoopback bool

	canMount bool // at landlock: this process can mount
}

// Mounts reports whether protected names are covered by mounts.
func (c Choice) Mounts() bool { return c.Level == Bwrap || c.canMount }

func (c Choice) String() string {
	if c.Level == "" {
		return "refused: " + c.Reason
	}
	return string(c.Level) + ": " + c.Reason
}

// ErrUnknownLevel is in the error of ValidateLevel and Choose if the level does not exist.
var ErrUnknownLevel = errors.New("choose auto, bwrap, landlock, container or none")

// ValidateLevel returns ErrUnknownLevel if want is neither a level nor Auto. It does not test the level.
func ValidateLevel(want string) error {
	if slices.Contains([]string{Auto, string(Bwrap), string(Landlock), string(Container), string(None)}, want) {
		return nil
	}
	return fmt.Errorf("there is no isolation %q: %w", want, ErrUnknownLevel)
}

// Choose tests the level want. For Auto it tests one level after the other. If no level works, the error says why
// and how to change that. Choose selects None only if want is None.
func Choose(want string) (Choice, error) {
	if want == string(None) {
		return Choice{Level: None, Reason: "chosen explicitly: commands and OpenCode run unprotected"}, nil
	}
	if err := ValidateLevel(want); err != nil {
		return Choice{}, err
	}
	var why []error
	for _, level := range []Level{Bwrap, Landlock, Container} {
		if want != Auto && want != string(level) {
			continue
		}
		choice, err := tryLevel(level)
		if err == nil {
			if len(why) > 0 {
				choice.Reason += "; " + errors.Join(why...).Error()
			}
			return choice, nil
		}
		why = append(why, fmt.Errorf("%s does not work here: %w", level, err))
	}
	return Choice{}, fmt.Errorf("no commands can be isolated: %w; or choose the isolation none, which leaves commands unprotected", joinErrors(why))
}
