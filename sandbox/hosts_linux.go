package sandbox

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"pocketcoder/sandbox/proc"
)

// loopback are the addresses of localhost, each followed by the others that take connections to it: the kernel gives a
// connection to the first of them that somebody listens on.
var loopback = [][]netip.Addr{
	{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv4Unspecified(), netip.IPv6Unspecified()},
	{netip.IPv6Loopback(), netip.IPv6Unspecified()},
}

// hosts are the addresses of the machine's localhost where a connection to port comes to the command. That it listens
// on the port is not enough: another chat's may on another address, or on the same (SO_REUSEPORT).
func (t *tree) hosts(port int) (hosts []string) {
	all := listeners(port)
	if len(all) == 0 {
		return nil
	}
	own := sockets(t.alive())
	for _, takers := range loopback {
		first := slices.IndexFunc(takers, func(a netip.Addr) bool { return all[a] != nil })
		if first >= 0 && !slices.ContainsFunc(all[takers[first]], func(socket string) bool { return !own[socket] }) {
			hosts = append(hosts, takers[0].String())
		}
	}
	return hosts
}

// listeners are the sockets of this network that listen on port, by address, named as descriptors are:
// "socket:[inode]".
func listeners(port int) map[netip.Addr][]string {
	found := map[netip.Addr][]string{}
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		table, _ := os.ReadFile(file) // there is none for a protocol that the machine has not
		for line := range strings.Lines(string(table)) {
			// proc_pid_net(5): the second is the local address, the fourth the state, the tenth the inode
			fields := strings.Fields(line)
			if len(fields) < 10 || fields[3] != "0A" {
				continue
			}
			if address, ok := strings.CutSuffix(fields[1], fmt.Sprintf(":%04X", port)); ok {
				a := readAddress(address)
				found[a] = append(found[a], "socket:["+fields[9]+"]")
			}
		}
	}
	return found
}

// readAddress reads an address as the kernel prints it: words of four bytes, each as a number in the machine's byte
// order.
func readAddress(words string) netip.Addr {
	b, _ := hex.DecodeString(words)
	for i := 0; i+4 <= len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	address, _ := netip.AddrFromSlice(b)
	return address.Unmap()
}

// sockets are those that processes have open.
func sockets(pids []int) map[string]bool {
	found := map[string]bool{}
	for _, pid := range pids {
		dir := proc.Path(pid, "fd/")
		descriptors, _ := os.ReadDir(dir) // of one that has ended there are none
		for _, fd := range descriptors {
			if target, _ := os.Readlink(dir + fd.Name()); strings.HasPrefix(target, "socket:") {
				found[target] = true
			}
		}
	}
	return found
}
