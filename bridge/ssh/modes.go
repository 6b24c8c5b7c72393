package ssh

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"syscall"
)

// checkModes checks a directory and its parents as sshd's StrictModes does before it reads authorized_keys, up
// to the user's home or the root. Each must belong to the user or to root, and no other user may write to it. The
// sticky bit of /tmp makes no difference (OpenSSH's safe_path). If a check fails, sshd would start and refuse every
// key.
func checkModes(dir string, me *user.User) error {
	home, err := filepath.EvalSymlinks(me.HomeDir)
	if err != nil {
		home = "" // then up to the root
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return err
	}
	for above := dir; ; above = filepath.Dir(above) {
		info, err := os.Stat(above)
		if err != nil {
			return err
		}
		owner := info.Sys().(*syscall.Stat_t).Uid
		if owner != 0 && int(owner) != os.Getuid() {
			return fmt.Errorf("sshd would refuse every key: %s, which holds %s, belongs to another user (uid %d); choose another data directory", above, dir, owner)
		}
		if mode := info.Mode(); mode.Perm()&0o022 != 0 {
			err := fmt.Errorf("sshd would refuse every key: other users may write to %s (%v), which holds %s; choose another data directory", above, mode, dir)
			if mode&os.ModeSticky == 0 { // a sticky directory such as /tmp is meant to be writable
				err = fmt.Errorf("%w, or: chmod go-w %s", err, above)
			}
			return err
		}
		if above == home || above == filepath.Dir(above) {
			return nil
		}
	}
}
