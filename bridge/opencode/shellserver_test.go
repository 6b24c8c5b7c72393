package opencode

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode/shellsocket"
)

func TestOnlyTheOwnerReachesTheSocketAndAnOldOneIsReplaced(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	path := filepath.Join(t.TempDir(), "run", "shell.sock")
	is.NoErr(os.Mkdir(filepath.Dir(path), 0o755))
	for range 2 { // the first leaves its socket, as a crash does
		listener, err := ListenForShells(path)
		is.NoErr(err)
		conn, err := net.Dial("unix", path)
		is.NoErr(err)
		is.NoErr(conn.Close())
		is.NoErr(listener.Close())
	}
	info, err := os.Stat(filepath.Dir(path))
	is.NoErr(err)
	is.Equal(info.Mode().Perm(), os.FileMode(0o700))
}

func TestAConnectionThatIsNoShellGetsNoCommandAndDelaysNoStop(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	path := filepath.Join(t.TempDir(), "shell.sock")
	listener, err := ListenForShells(path)
	is.NoErr(err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	// without Exec a request would panic
	server := ShellServer{Listener: listener, Logger: slog.New(slog.DiscardHandler)}
	go func() { ended <- server.Serve(ctx) }()
	silent, err := net.Dial("unix", path)
	is.NoErr(err)
	defer silent.Close()
	for name, c := range map[string]struct{ sent, want string }{
		"another frame":    {"c\x00\x00\x00\x00", "not run: pocketcoder-shell and PocketCoder have different versions; build both from the same source"},
		"half a request":   {"r\x00\x00\x00\x03a\x00b", "not run: pocketcoder-shell and PocketCoder have different versions; build both from the same source"},
		"a frame too long": {"r\xff\xff\xff\xff", ""},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			conn, err := net.Dial("unix", path)
			is.NoErr(err)
			defer conn.Close()
			_, err = conn.Write([]byte(c.sent))
			is.NoErr(err)
			kind, body, err := shellsocket.NewReader(conn, shellsocket.MaxOutput).Next()
			if c.want == "" {
				is.True(err != nil) // closed
				return
			}
			is.NoErr(err)
			is.Equal(kind, shellsocket.Finished)
			is.Equal(string(body), "\x7e"+c.want)
		})
	}
	cancel()
	is.NoErr(<-ended)
	_, err = silent.Read(make([]byte, 1))
	is.Equal(err, io.EOF)
}
