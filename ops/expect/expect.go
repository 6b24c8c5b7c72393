// Package expect has assertions for tests that print the compared values, and helpers that many tests need: files,
// programs and a buffer. It also has the seed of random tests. The seed is fixed, so that a run of the same code has
// the same result. With -random.seed=0, which "task fuzz" sets, each run has a new seed. For everything else, tests
// use matryer/is.
package expect

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Contains fails the test unless a text contains another.
func Contains(t testing.TB, text, want string) {
	t.Helper()
	if !strings.Contains(text, want) {
		t.Fatalf("the text does not contain %q:\n%s", want, text)
	}
}

// Lacks fails the test if a text contains another.
func Lacks(t testing.TB, text, unwanted string) {
	t.Helper()
	if strings.Contains(text, unwanted) {
		t.Fatalf("the text contains %q:\n%s", unwanted, text)
	}
}

// addresses holds the addresses that Address has returned to the tests of this process.
var addresses sync.Map

// Address returns a loopback address on which nothing listens. Its port is below 32768: from there on the kernel gives
// ports to connections, by default, and one that is free now may be taken soon. No address is returned twice, because
// a test may listen at its address much later.
func Address(t testing.TB) string {
	t.Helper()
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", 10_000+rand.N(20_000))
		if _, taken := addresses.LoadOrStore(address, true); taken {
			continue
		}
		if l, err := net.Listen("tcp", address); err == nil {
			l.Close()
			return address
		}
	}
	t.Fatal("no port is free")
	return ""
}

// patience is how long Eventually waits. A machine with much to do takes its time: no test ends sooner because of it.
// A run of tests of which many fail is given less.
var patience = flag.Duration("patience", 2*time.Minute, "how long a test waits for what it expects")

// Eventually waits until a condition holds. It fails the test after two minutes, or -patience, with what was expected.
// It looks less and less often, up to 20 times a second: a look may be a request.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	pause := time.Millisecond
	for end := time.Now().Add(*patience); !ok(); time.Sleep(pause) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", *patience, what)
		}
		pause = min(pause*3/2, 50*time.Millisecond)
	}
}

// WriteFile writes a file that may be executed, and the directories above it.
func WriteFile(t testing.TB, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
}

// MakeRepository creates an empty git repository in dir without running git.
func MakeRepository(t testing.TB, dir string) {
	t.Helper()
	for _, d := range []string{"objects", "refs/heads"} {
		if err := os.MkdirAll(filepath.Join(dir, ".git", d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	WriteFile(t, filepath.Join(dir, ".git", "HEAD"), "ref: refs/heads/main\n")
	WriteFile(t, filepath.Join(dir, ".git", "config"), "[core]\n\trepositoryformatversion = 0\n")
}

// ReadFile returns what a file holds, "" when there is none.
func ReadFile(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return string(b)
}

// MemoryDir returns a temporary directory in /dev/shm, or on disk if less than 1 GiB is free there. It is for files
// that need not survive a crash of the machine: on a disk, each write waits for the disk. The workspace of a test of
// rules or isolation cannot be there, because nothing below /dev may be a workspace.
func MemoryDir(t testing.TB) string {
	t.Helper()
	const memory = "/dev/shm"
	var free unix.Statfs_t
	if unix.Statfs(memory, &free) != nil || free.Bavail*uint64(free.Bsize) < 1<<30 {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(memory, "pocketcoder-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// Run runs the tests of a package in which most tests wait, and returns the exit code. Up to six parallel tests run at
// once, unless -parallel says another number. The default is the number of processors, which is too few. TestMain calls
// it in place of m.Run.
func Run(m *testing.M) int {
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	return m.Run()
}

// Background runs a function until stop is called or the test ends. Cleanups that the test has registered before run
// after the function has returned.
func Background(t testing.TB, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = run(ctx) }()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

// Slow leaves a test out under -short, and says what takes so long.
func Slow(t testing.TB, what string) {
	t.Helper()
	if testing.Short() {
		t.Skip("left out under -short: it " + what)
	}
}

// Long leaves a test out unless CI is set: it runs before a change goes in, and nightly. It says what takes so long.
func Long(t testing.TB, what string) {
	t.Helper()
	Slow(t, what)
	if os.Getenv("CI") == "" {
		t.Skip("left out unless CI is set: it " + what)
	}
}

// Program returns the path of a program. Without it the test is skipped, but fails in CI, where everything must be
// tested.
func Program(t testing.TB, name string) (path string) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil && os.Getenv("CI") != "" {
		t.Fatalf("%s is needed", name)
	}
	if err != nil {
		t.Skipf("%s is not on PATH", name)
	}
	return path
}

// Buffer holds what several goroutines write. Its zero value is empty.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
