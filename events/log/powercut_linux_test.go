package log_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
)

// A power cut takes what only the memory has. The image of a mounted disk holds the rest: what a stopped process has
// acknowledged must be in a copy of the image.
func TestAcknowledgedEventsSurviveAPowerCut(t *testing.T) {
	expect.Long(t, "makes and mounts disks")
	t.Parallel()
	is := is.New(t)
	if os.Geteuid() != 0 {
		t.Skip("only root may mount a disk")
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skip("this kernel mounts no file: ", err)
	}
	fault := expect.CountFault(t, "events acknowledged", "of them found once")
	for round := range 3 {
		dir := t.TempDir()
		image, copied := filepath.Join(dir, "image"), filepath.Join(dir, "copied")
		is.NoErr(os.WriteFile(image, nil, 0o600))
		is.NoErr(os.Truncate(image, 8<<30))
		command(t, "mkfs.ext4", "-q", image)
		disk := mount(t, image)

		a := startAppender(t, filepath.Join(disk, "nats"))
		a.read(80 * (round + 1))
		stop(t, a.Process)
		command(t, "cp", "--sparse=always", image, copied)
		a.kill()

		fault.Tried()
		fault.Saw(a.seen, checkStored(t, filepath.Join(mount(t, copied), "nats"), a.seen))
	}
}

func command(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

// mount mounts the image of a disk until the test ends.
func mount(t *testing.T, image string) (dir string) {
	t.Helper()
	dir = image + ".mounted"
	is.New(t).NoErr(os.Mkdir(dir, 0o700))
	command(t, "mount", "-o", "loop", image, dir)
	t.Cleanup(func() { command(t, "umount", "--lazy", dir) })
	return dir
}

// stop stops a child process and waits until each of its threads is stopped.
func stop(t *testing.T, child *os.Process) {
	t.Helper()
	is := is.New(t)
	is.NoErr(child.Signal(syscall.SIGSTOP))
	var status syscall.WaitStatus
	_, err := syscall.Wait4(child.Pid, &status, syscall.WUNTRACED, nil)
	is.NoErr(err)
	is.True(status.Stopped())
}
