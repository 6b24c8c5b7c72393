package app

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/matryer/is"
)

func TestOnlyItsOwnerOpensTheSocketOfTheAPI(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	dir, err := os.MkdirTemp("", "socket")
	is.NoErr(err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	is.NoErr(os.Chmod(dir, 0o755))
	path := filepath.Join(dir, "run", "api.sock")
	for range 2 { // the second replaces what the first has left
		l, err := listenLocal(path)
		is.NoErr(err)
		t.Cleanup(func() { l.Close() })
	}
	for name, mode := range map[string]os.FileMode{filepath.Dir(path): 0o700, path: 0o600} {
		info, err := os.Stat(name)
		is.NoErr(err)
		is.Equal(info.Mode().Perm(), mode)
	}
	conn, err := net.Dial("unix", path)
	is.NoErr(err)
	conn.Close()
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	is.NoErr(os.Chmod(filepath.Dir(path), 0o755)) // even if the directory were open
	refused := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
		if err == nil {
			err = syscall.Setfsuid(65534)
		}
		if err == nil {
			err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: path})
		}
		refused <- err
	}()
	is.Equal(<-refused, syscall.EACCES) // another user
}
