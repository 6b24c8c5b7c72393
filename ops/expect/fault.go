package expect

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

var writeFaults = flag.Bool("faults.write", false, "write what tests see of faults into docs/faults.md")

// Fault counts how often a test causes a fault, and what the test then sees. It is for the row of docs/faults.md that
// names the test.
type Fault struct {
	mu    sync.Mutex
	names []string
	seen  []int
	times int
}

// CountFault returns the counts for the row of a test. names are what is counted. The test fails at its end if there
// is no such row. With -faults.write the counts are written into the row.
func CountFault(t testing.TB, names ...string) *Fault {
	t.Helper()
	f := &Fault{names: names, seen: make([]int, len(names))}
	t.Cleanup(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if t.Failed() || f.times == 0 {
			return
		}
		if err := f.note(t.Name()); err != nil {
			t.Error(err)
		}
	})
	return f
}

// Tried adds a time that the fault was caused.
func (f *Fault) Tried() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.times++
}

// Saw adds counts, in the order of the names.
func (f *Fault) Saw(counts ...int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, n := range counts {
		f.seen[i] += n
	}
}

// note finds the row and writes it. Tests of other packages write other rows at the same time.
func (f *Fault) note(test string) error {
	path, err := faultsFile()
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", path, err)
	}
	body, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	lines := strings.Split(string(body), "\n")
	for i, line := range lines {
		cells := strings.Split(line, "|") // before the first and after the last one is nothing
		if len(cells) != 7 || !strings.Contains(cells[5], " -run '^"+test+"$'") {
			continue
		}
		if !*writeFaults {
			return nil
		}
		cells[3], cells[4] = fmt.Sprintf(" %d ", f.times), " "+f.text()+" "
		lines[i] = strings.Join(cells, "|")
		return os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o644)
	}
	return fmt.Errorf("%s has no row for %s", path, test)
}

func (f *Fault) text() string {
	counts := make([]string, len(f.names))
	for i, name := range f.names {
		counts[i] = fmt.Sprintf("%d %s", f.seen[i], name)
	}
	return strings.Join(counts, ", ")
}

// faultsFile returns the path of docs/faults.md in the repository of the working directory.
func faultsFile() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		path := filepath.Join(dir, "docs", "faults.md")
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			return path, err
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no directory above this one has docs/faults.md")
		}
		dir = filepath.Dir(dir)
	}
	return "", err
}
