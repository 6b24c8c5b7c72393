package isolation

import (
	"errors"
	"fmt"
	"io"
)

type (
	filters struct{}
	stubs   struct{}
)

func (filters) close() {}

func (*stubs) clear() {}

func try(Level) (Found, error) {
	return Found{}, errors.New("macOS has no mechanism for it; run the worker on Linux, for example in PocketCoder's sandbox container")
}

func (w *Walls) open() error { return errors.New("only none works on macOS") }

// RunLinks fails: macOS has no such mounts.
func RunLinks(_ []string, stderr io.Writer) int {
	fmt.Fprintln(stderr, "sandbox: macOS has no mounts without symbolic links")
	return 126
}

// FollowsLinks returns nil: there are no directories in which it matters.
func (w *Walls) FollowsLinks() error { return nil }

func (w *Walls) start(Command) (*Start, error) { return nil, errors.New("only none works on macOS") }

// OnThread runs fn in a goroutine.
func OnThread(fn func()) { go fn() }

func closeOnExec() error { return nil }

type secrets struct{}

func newSecrets() secrets { return secrets{} }

func (secrets) Close() {}
