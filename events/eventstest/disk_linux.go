package eventstest

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// SmallDisk mounts a disk of some MiB on a directory, until the test ends. It skips the test where that is not
// permitted, but not for root in CI.
func SmallDisk(t testing.TB, dir string, mib int) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=0700", mib)); err != nil {
		if os.Getenv("CI") != "" && os.Geteuid() == 0 {
			t.Fatalf("mount a small disk: %v", err)
		}
		t.Skipf("a small disk cannot be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// FillDisk writes a file until only some MiB are free on the disk of a directory, and returns what removes the file.
func FillDisk(t testing.TB, dir string, leave int) (remove func()) {
	t.Helper()
	path := filepath.Join(dir, "fill")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, block := range []int{1 << 20, 4 << 10, 512} {
		for enough := false; !enough; {
			var fs syscall.Statfs_t
			if err := syscall.Statfs(dir, &fs); err != nil {
				t.Fatal(err)
			}
			if enough = fs.Bavail*uint64(fs.Bsize) < uint64(leave)<<20+uint64(block) && leave > 0; !enough {
				_, err := f.Write(make([]byte, block))
				enough = err != nil // the disk is full
			}
		}
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}
