package inside

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/matryer/is"
	"golang.org/x/sys/unix"
)

// What runs inside may be the command itself: all it can send are its own TCP sockets.
func TestNothingButATCPSocketIsTaken(t *testing.T) {
	t.Parallel()
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	udp, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		fds  []int
		want string
	}{
		"a file":        {[]int{int(file.Fd())}, "no TCP socket"},
		"a unix socket": {fds[:1], "no TCP socket"},
		"a UDP socket":  {[]int{udp}, "no TCP socket"},
		"several":       {[]int{tcp, tcp}, "something else"},
		"no descriptor": {nil, "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			link, theirs, err := Open()
			is.NoErr(err)
			t.Cleanup(link.Close)
			var rights []byte
			if c.fds != nil {
				rights = unix.UnixRights(c.fds...)
			}
			is.NoErr(unix.Sendmsg(int(theirs.Fd()), []byte{byte(unix.ECONNREFUSED)}, rights, nil, 0))
			defer theirs.Close()
			_, err = link.Dial(80)
			is.True(err != nil)
			if err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func TestAProgramThatHasEndedIsSaidToHave(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	link, theirs, err := Open()
	is.NoErr(err)
	theirs.Close()
	_, err = link.Dial(80)
	is.True(err != nil)
	is.True(strings.Contains(err.Error(), "has ended"))
	link.Close()
	_, err = link.Dial(80)
	is.True(err != nil)
}

func TestWrongStartsAreSaid(t *testing.T) {
	is := is.New(t)
	var stderr bytes.Buffer
	is.Equal(Run(nil, &stderr), 126)
	is.Equal(stderr.String(), "sandbox: no command\n")
}
