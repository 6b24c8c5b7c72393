package quarantine

import (
	"errors"

	"pocketcoder/sandbox/wire"
)

// Quarantine does nothing on macOS.
type Quarantine struct{}

// Session does nothing on macOS.
type Session struct{}

var errLinuxOnly = errors.New("no names are quarantined on macOS")

// Open returns a Quarantine that does nothing.
func Open(Config) (*Quarantine, error) { return nil, nil }

func (*Quarantine) Begin(Command) (*Session, error) { return nil, nil }

func (*Quarantine) Holds(string) bool { return false }

func (*Quarantine) Keep(string) error { return errLinuxOnly }

func (*Quarantine) Expect(string) error { return errLinuxOnly }

// Dismiss does nothing.
func (*Quarantine) Dismiss(string) error { return nil }

func (*Session) End() ([]wire.Quarantined, []string) { return nil, nil }

func (*Session) Report() []wire.Quarantined { return nil }

// Close does nothing.
func (*Session) Close() {}
