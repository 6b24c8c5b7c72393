// Package isolation builds the walls around a command, so that what it may not do is refused by the kernel.
//
// Choose finds the strongest level that works on this machine, by trying it; Open prepares it for one workspace; Start
// says, for one command, what to execute instead of it and what the thread that forks has to do before. The levels:
//
//	bwrap      namespaces made by bubblewrap: own root, processes, network, host name, IPC; seccomp
//	landlock   Landlock, seccomp and no capabilities, taken on by the thread that forks; where the worker may mount (root),
//	           also own mounts: /tmp, /proc and the protected paths
//	container  seccomp and no capabilities; the rest is left to the container that the worker runs in
//	none       nothing
//
// Promises, at bwrap and landlock:
//   - Files are an allow list, the same for both: the system's directories without the secrets in them, and what is exposed, to
//     read; the workspace, the commands' HOME and a private temporary directory, to write. Landlock hides no names: whether
//     a file exists, and how large it is, can be asked there. Without mounts times of the user's files can be changed, and
//     /proc tells which processes there are.
//   - What programs outside obey or execute in the workspace (see protected) cannot be created, changed, replaced or
//     renamed. Where the worker may not mount, Landlock cannot take one name out of a folder: there nothing can be created,
//     removed or renamed directly in the workspace's top folder and in .git.
//   - There is no network, unless a command is given a proxy, and none at all at landlock. Sockets of the host are out of reach; one that
//     somebody puts into the workspace is not, at bwrap.
//   - In the directories of Place.NoLinks the kernel follows no symbolic link, where this process may mount or make a user namespace.
//   - No privilege can be gained: no set-user-id, no capabilities, no namespaces, no mounts, no tracing of others.
//   - No file gets a set-user-id or set-group-id bit, by which another user of the machine could gain this user's rights.
//
// What the kernel cannot hold: when somebody outside replaces a protected file while a command runs, that command sees and
// may change the new one, because a mount ends with the file it lies on. The next command is kept from it again.
//
// The package runs nothing by itself but to probe, and must not know what a worker, a request or a limit is.
package isolation

import (
	"errors"
	"fmt"
	"slices"
)

// Level is a kind of walls.
type Level string

const (
	Bwrap     Level = "bwrap"
	Landlock  Level = "landlock"
	Container Level = "container"
	None      Level = "none"
)

// ContainerMark is the environment variable that the image of the sandbox sets.
const ContainerMark = "POCKETCODER_CONTAINER"

// LinksName is the first argument with which this program runs RunLinks.
const NoSymlinksCommand = "sandbox-links"

// Auto asks Choose for the strongest level that works.
const Auto = "auto"

// Found is a level that works on this machine. Without a level nothing is run, and Reason is what a person is told.
type Choice struct {
	Level  Level
	Reason string // one line for a person: why this level, and what it lacks

	canMount bool // at landlock: this process may mount
}

func (choice Choice) String() string {
	if choice.Level == "" {
		return "refused: " + choice.Reason
	}
	return string(choice.Level) + ": " + choice.Reason
}

// ErrUnknown is in the error of Known and Choose when there is no such level.
var ErrUnknownLevel = errors.New("choose auto, bwrap, landlock, container or none")

// Known is an error when want is neither a level nor Auto. Whether it works here is for Choose to find out.
func ValidateLevel(want string) error {
	if slices.Contains([]string{Auto, string(Bwrap), string(Landlock), string(Container), string(None)}, want) {
		return nil
	}
	return fmt.Errorf("there is no isolation %q: %w", want, ErrUnknownLevel)
}

// Choose tries what want names, or for Auto one level after the other. When it does not work here the error says why and
// how to change that. None is chosen only when it is asked for.
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
