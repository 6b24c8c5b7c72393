package egress_test

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"runtime"
	"testing"
	"unsafe"

	"github.com/matryer/is"
	"golang.org/x/sys/unix"

	"pocketcoder/bridge/egress"
	"pocketcoder/ops/expect"
)

func TestAPublicAddressOfThisMachineIsNotDialled(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a network with other addresses")
	}
	is := is.New(t)
	const own = "8.8.4.4"
	dial := func(guarded bool) error {
		dialer := net.Dialer{}
		if guarded {
			dialer.Control = egress.Guard(egress.Public)
		}
		conn, err := dialer.Dial("tcp", own+":1")
		if err == nil {
			conn.Close()
		}
		return err
	}
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // until its end: the thread's network is not the others'
		failed <- withAddress(own)
		failed <- dial(false)
		failed <- dial(true)
	}()
	is.NoErr(<-failed)
	is.True(errors.Is(<-failed, unix.ECONNREFUSED)) // the connection reaches this machine
	err := <-failed
	forbidden := egress.ForbiddenError{}
	is.True(errors.As(err, &forbidden))
	expect.Contains(t, err.Error(), own+" is an address of this machine")
}

// withAddress gives this thread a network of its own, in which the loopback interface has one more address.
func withAddress(address string) error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// struct ifreq of netdevice(7): a name, and a struct sockaddr_in or the flags.
	request := struct {
		name [unix.IFNAMSIZ]byte
		data [24]byte
	}{name: [unix.IFNAMSIZ]byte{'l', 'o', ':', '1'}}
	binary.NativeEndian.PutUint16(request.data[:], unix.AF_INET)
	copy(request.data[4:], net.ParseIP(address).To4())
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCSIFADDR,
		uintptr(unsafe.Pointer(&request))); errno != 0 {
		return errno
	}
	request.name, request.data = [unix.IFNAMSIZ]byte{'l', 'o'}, [24]byte{}
	binary.NativeEndian.PutUint16(request.data[:], unix.IFF_UP)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCSIFFLAGS,
		uintptr(unsafe.Pointer(&request))); errno != 0 {
		return errno
	}
	return nil
}
