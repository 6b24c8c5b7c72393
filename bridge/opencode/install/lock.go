package install

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// ErrLocked is the error of Lock for a lock that another process has.
var ErrLocked = errors.New("in use by another process")

// Lock takes the lock that the file at path stands for, until unlock or the end of this process. It does not wait.
func Lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = ErrLocked
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() {
		// closing is not enough: a child that was just forked has it open until its exec
		_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
		f.Close()
	}, nil
}
