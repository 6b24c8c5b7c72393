// Package limit bounds the resources of a command: memory, processes, processor time, the size of its files and the
// number of open files.
//
// Resource limits of the kernel bound each process (Apply). Where the worker can make a cgroup of version 2, the cgroup
// bounds memory and processes of the whole command and counts its processor time (Groups). Elsewhere a Sampler checks
// the command's processes several times a second, so a command can exceed a limit between two samples.
//
// It must not know what runs a command, nor which processes belong to it.
package limit

import (
	"fmt"
	"math"
	"runtime"
	"strconv"
	"strings"
	"time"

	"pocketcoder/sandbox/wire"
)

// Limits bound one command, all its processes together unless a comment says otherwise. 0 is no limit. A command that
// exceeds a limit is ended, and its Result names the limit. Limits have no effect on macOS.
type Limits struct {
	Memory    Size          // anonymous and shared memory, and its own tmpfs; not the page cache
	Processes int64         // including threads, as the kernel counts
	FileSize  Size          // of each file that it writes
	CPUTime   time.Duration // processor time, not elapsed time
	// of each process. At the limit open(2) fails; the Result names the limit if the command then fails
	OpenFiles int64
}

// Default limits prevent accidents: they are far above what builds and tests need, and below what makes a machine
// unusable.
func Default() Limits {
	// enough to compile and link large C++ and Rust programs. A machine with less memory keeps a quarter of it
	memory := Size(4 << 30)
	if machine := TotalMemory(); machine > 0 {
		memory = min(memory, machine/4*3)
	}
	return Limits{
		Memory: memory,
		// a build on 64 processors has some hundreds of processes
		Processes: 1024,
		// large for a build, small compared to a disk, which a runaway log fills within minutes
		FileSize:  4 << 30,
		CPUTime:   time.Duration(runtime.NumCPU()) * time.Hour, // the whole machine for an hour
		OpenFiles: 4096,                                        // four times the default of most Linux systems
	}
}

// Lowered returns l with the limits of one command where these are lower.
func (l Limits) Lowered(own wire.Limits) Limits {
	l.Memory = smaller(l.Memory, Size(own.Memory))
	l.Processes = smaller(l.Processes, own.Processes)
	l.CPUTime = smaller(l.CPUTime, time.Duration(own.CPUTimeMS)*time.Millisecond)
	return l
}

// smaller returns the smaller of two limits. 0 means no limit.
func smaller[T ~int64](a, b T) T {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// IsLimit reports whether a reason is that a command reached one of its Limits.
func IsLimit(r wire.Reason) bool {
	switch r {
	case wire.Memory, wire.Processes, wire.FileSize, wire.CPUTime, wire.OpenFiles:
		return true
	}
	return false
}

// Size is a number of bytes. As a flag it is written as 512MiB, 4GiB, 1.5GB or plain bytes.
type Size int64

var sizeUnits = []struct {
	name  string
	bytes float64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6},
	{"KB", 1e3}, {"B", 1}, {"", 1}}

// ParseSize parses a size. The units are those of IEC 80000-13, in any case: KiB is 1024 bytes, KB is 1000.
func ParseSize(s string) (Size, error) {
	number := strings.TrimRight(s, "BIKMGTbikmgt")
	unit := s[len(number):]
	for _, u := range sizeUnits {
		if !strings.EqualFold(u.name, unit) {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || strings.ContainsAny(number, "xXpPeEnN_+") {
			break
		}
		if bytes := n * u.bytes; bytes >= 0 && bytes < math.MaxInt64 {
			return Size(bytes), nil
		}
		return 0, fmt.Errorf("size %q is out of range", s)
	}
	return 0, fmt.Errorf("size %q is not a number with a unit, such as 512MiB or 4GiB", s)
}

func (s *Size) Set(text string) (err error) {
	*s, err = ParseSize(text)
	return err
}

// String returns the shortest text that ParseSize reads as exactly s.
func (s Size) String() string {
	for _, u := range sizeUnits[:4] {
		if unit := Size(u.bytes); s != 0 && s%unit == 0 {
			return strconv.FormatInt(int64(s/unit), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// Validate returns an error about the first invalid limit. The lower bounds allow a shell to start.
func (l Limits) Validate() error {
	switch {
	case l.Memory < 0 || l.Memory > 0 && l.Memory < 1<<20:
		return fmt.Errorf("limit memory of %s is out of range: at least 1MiB, or 0 for none", l.Memory)
	case l.Processes < 0:
		return fmt.Errorf("limit processes of %d is negative", l.Processes)
	case l.FileSize < 0:
		return fmt.Errorf("limit file-size of %s is negative", l.FileSize)
	case l.CPUTime < 0 || l.CPUTime > 0 && l.CPUTime < time.Second:
		return fmt.Errorf("limit cpu-time of %s is out of range: at least 1s, or 0 for none", l.CPUTime)
	case l.OpenFiles < 0 || l.OpenFiles > 0 && l.OpenFiles < 16:
		return fmt.Errorf("limit open-files of %d is out of range: at least 16, or 0 for none", l.OpenFiles)
	}
	return nil
}
