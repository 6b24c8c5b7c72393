package opencode

import (
	"os"
	"sync"

	"pocketcoder/bridge/opencode/install"
)

const logSize = 10 << 20 // bytes of the log file; the one before it is kept as .1

// logFile is a log of bounded size that remembers its last lines.
type logFile struct {
	mu   sync.Mutex
	path string
	file *os.File
	size int64
	tail install.OutputTail
}

func openLog(path string) (*logFile, error) {
	l := &logFile{path: path}
	return l, l.open()
}

func (l *logFile) open() error {
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return err
	}
	l.file, l.size = f, info.Size()
	return nil
}

// Write always succeeds: a log file that cannot be written must not stop OpenCode.
func (l *logFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tail.Write(p)
	if l.size > logSize {
		l.file.Close()
		os.Rename(l.path, l.path+".1")
		if l.open() != nil {
			l.size = 0 // the closed file takes nothing; the next attempt follows after logSize bytes
		}
	}
	l.file.Write(p)
	l.size += int64(len(p))
	return len(p), nil
}

func (l *logFile) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tail.String()
}

func (l *logFile) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file.Close()
}
