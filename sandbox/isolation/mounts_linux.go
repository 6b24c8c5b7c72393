package isolation

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"pocketcoder/sandbox/isolation/protection"
)

// Sizes of a command's temporary file systems, in bytes. They use memory, so they count towards the memory limit.
const (
	tempSize  = 1 << 30
	smallSize = 64 << 20
)

// setUpMounts creates mounts for this thread alone, at the level landlock. They protect single files where Landlock can
// allow or deny only whole directories.
func (c *Confinement) setUpMounts(mounts []protection.Mount) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	// A mount on its root makes the kernel treat this thread as if its root had changed (chroot). Such a thread cannot
	// create user namespaces (user_namespaces(7)), which all other namespaces require. So the filter need not deny
	// clone3, which starts a command in its cgroup.
	if err := unix.Mount("/", "/", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("cover root: %w", err)
	}
	trees, err := c.cloneVisibleTrees()
	defer func() {
		for _, t := range trees {
			unix.Close(t.fd)
		}
	}()
	if err != nil {
		return err
	}
	// Read-only, because Landlock does not deny changes of modes, owners and times.
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &attr); err != nil {
		return fmt.Errorf("make mounts read-only: %w", err)
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV
	for _, m := range []struct {
		at, kind, options string
		flags             uintptr
	}{
		{"/tmp", "tmpfs", "mode=1777,size=" + strconv.Itoa(tempSize), flags},
		{"/dev/shm", "tmpfs", "mode=1777,size=" + strconv.Itoa(smallSize), flags | unix.MS_NOEXEC},
		{"/proc", "proc", "hidepid=ptraceable", flags | unix.MS_NOEXEC | unix.MS_RDONLY}, // hides other processes
	} {
		if err := unix.Mount(m.kind, m.at, m.kind, m.flags, m.options); err != nil &&
			!(m.at == "/dev/shm" && errors.Is(err, unix.ENOENT)) {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	for _, t := range trees {
		if err := t.attach(); err != nil {
			return err
		}
	}
	if err := mountProtections(mounts); err != nil {
		return err
	}
	return c.maskSecrets()
}

// mountTree is a copy of a part of the file system, made before other mounts cover it.
type mountTree struct {
	fd   int
	path string
}

// cloneTree copies the mounts at path and below it.
func cloneTree(path string, readOnly, noLinks bool) (mountTree, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, path,
		unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW|unix.AT_RECURSIVE)
	if err != nil {
		return mountTree{}, fmt.Errorf("clone mount of %s: %w", path, err)
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID}
	if readOnly {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if noLinks { // nodev, so that bubblewrap changes no flag of the mount
		attr.Attr_set |= unix.MOUNT_ATTR_NOSYMFOLLOW | unix.MOUNT_ATTR_NODEV
	}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
		unix.Close(fd)
		return mountTree{}, fmt.Errorf("set flags of the mount of %s: %w", path, err)
	}
	return mountTree{fd, path}, nil
}

// attach mounts the tree at its original path.
func (t mountTree) attach() error {
	err := unix.MoveMount(t.fd, "", unix.AT_FDCWD, t.path, unix.MOVE_MOUNT_F_EMPTY_PATH)
	if errors.Is(err, unix.ENOENT) { // below the new /tmp
		if err := os.MkdirAll(t.path, 0o755); err != nil {
			return fmt.Errorf("make mount point: %w", err)
		}
		err = unix.MoveMount(t.fd, "", unix.AT_FDCWD, t.path, unix.MOVE_MOUNT_F_EMPTY_PATH)
	}
	if err != nil {
		return fmt.Errorf("mount %s: %w", t.path, err)
	}
	return nil
}

// cloneVisibleTrees clones the writable directories, and the exposed ones that need other flags or that new mounts
// cover. It returns an error if the workspace, which is last, is not the directory that Open opened.
func (c *Confinement) cloneVisibleTrees() (trees []mountTree, err error) {
	for _, path := range c.access.Expose {
		noLinks := slices.Contains(c.access.NoSymlinks, path)
		if !noLinks && !within("/tmp", path) && !within("/dev/shm", path) {
			continue
		}
		t, err := cloneTree(path, true, noLinks)
		if err != nil {
			return trees, err
		}
		trees = append(trees, t)
	}
	for _, path := range slices.Concat([]string{c.access.Home}, c.access.Writable, []string{c.access.Workspace}) {
		t, err := cloneTree(path, false, slices.Contains(c.access.NoSymlinks, path))
		if err != nil {
			return trees, err
		}
		trees = append(trees, t)
	}
	var opened, taken unix.Stat_t
	if err := errors.Join(unix.Fstat(int(c.workspace.Fd()), &opened),
		unix.Fstat(trees[len(trees)-1].fd, &taken)); err != nil {
		return trees, fmt.Errorf("stat workspace: %w", err)
	}
	if opened.Dev != taken.Dev || opened.Ino != taken.Ino {
		return trees, errors.New("workspace was replaced while the command started")
	}
	return trees, nil
}

// maskSecrets covers each secret file with a device on a nodev mount, and each secret directory with an empty one.
// Commands can open neither.
func (c *Confinement) maskSecrets() error {
	for _, path := range secretPaths() {
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("mask: %w", err)
		}
		if info.IsDir() {
			err = unix.Mount("tmpfs", path, "tmpfs", unix.MS_RDONLY|unix.MS_NODEV|unix.MS_NOSUID|unix.MS_NOEXEC,
				"size=4k,mode=0")
		} else if err = unix.Mount(os.DevNull, path, "", unix.MS_BIND, ""); err == nil {
			err = unix.Mount("", path, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NODEV|unix.MS_NOSUID, "")
		}
		if err != nil {
			return fmt.Errorf("mask %s: %w", path, err)
		}
	}
	return nil
}

// mountProtections clones all mounts before it attaches the first one: the clone of a writable directory in a read-only
// one would be read-only.
func mountProtections(mounts []protection.Mount) error {
	var trees []mountTree
	defer func() {
		for _, t := range trees {
			unix.Close(t.fd)
		}
	}()
	for _, m := range mounts {
		t, err := cloneTree(m.Path, !m.Writable, false) // a mount below NoSymlinks has its flags
		if err != nil {
			return err
		}
		trees = append(trees, t)
	}
	for _, t := range trees {
		if err := t.attach(); err != nil {
			return err
		}
	}
	return nil
}

// changeDir changes this thread to dir through its own mounts. A directory that was opened earlier would bypass
// them.
func (c *Confinement) changeDir(dir string) error {
	base := c.access.Workspace
	if within(c.access.Home, dir) {
		base = c.access.Home
	}
	rel, err := filepath.Rel(base, dir)
	if err != nil {
		return fmt.Errorf("enter cwd: %w", err)
	}
	root, err := unix.Open(base, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", base, err)
	}
	defer unix.Close(root)
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS}
	fd, err := unix.Openat2(root, rel, &how)
	if err != nil {
		return fmt.Errorf("open cwd: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.Fchdir(fd); err != nil {
		return fmt.Errorf("enter cwd: %w", err)
	}
	return nil
}
