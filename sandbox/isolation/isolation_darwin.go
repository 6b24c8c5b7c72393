package isolation

import (
	"context"
	"errors"
	"fmt"
	"io"
)

var errLinuxOnly = errors.New("only none works on macOS")

func tryLevel(Level) (Choice, error) {
	return Choice{}, errors.New("macOS has no mechanism for it; run the worker on Linux, for example in PocketCoder's sandbox container")
}

func (c *Confinement) prepareLevel() error { return errLinuxOnly }

func (c *Confinement) prepare(Command) (*PreparedCommand, error) { return nil, errLinuxOnly }

// NoSymlinksError returns nil, because macOS has only the level none.
func (c *Confinement) NoSymlinksError() error { return nil }

// RunGuard fails, because macOS has no bubblewrap.
func RunGuard(_ context.Context, _ []string, stderr io.Writer) int {
	fmt.Fprintln(stderr, "sandbox: macOS has no bubblewrap")
	return 126
}

// Loopback is empty here, because macOS has no network namespaces.
type Loopback struct{}

// Close does nothing.
func (*Loopback) Close() {}

func NewLoopback() (*Loopback, error) { return nil, errLinuxOnly }

// RunOnThread runs fn in a goroutine.
func RunOnThread(fn func()) { go fn() }

func setCloseOnExec() error { return nil }

// filters is empty here, because only Linux has seccomp.
type filters struct{}

func (filters) close() {}
