package install

import "strings"

// OutputTail keeps the end of what a program prints, for an error to show: the last 4 KiB that were written. The zero
// value is empty.
type OutputTail struct{ kept []byte }

func (b *OutputTail) Write(p []byte) (int, error) {
	const most = 4 << 10 // bytes
	b.kept = append(b.kept, p...)
	b.kept = b.kept[max(0, len(b.kept)-most):]
	return len(p), nil
}

// Bytes returns what is kept. It is valid until the next write.
func (b *OutputTail) Bytes() []byte { return b.kept }

// String returns the last ten lines.
func (b *OutputTail) String() string {
	lines := strings.Split(strings.TrimSpace(string(b.kept)), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}
