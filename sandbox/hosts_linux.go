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

// loopback are the addresses of localhost, each with the other addresses that accept connections to it. The kernel
// passes a connection to the first of them with a listener.
var loopback = [][]netip.Addr{
	{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv4Unspecified(), netip.IPv6Unspecified()},
	{netip.IPv6Loopback(), netip.IPv6Unspecified()},
}

// hosts returns the addresses of localhost at which a connection to port reaches the command. The command may listen on
// the port and still not get the connection, because a command of another chat may listen on another address, or on the
// same one (SO_REUSEPORT).
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

// listeners returns the sockets that listen on port, by address, named as descriptors are: "socket:[inode]".
func listeners(port int) map[netip.Addr][]string {
	found := map[netip.Addr][]string{}
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		table, _ := os.ReadFile(file) // missing if the machine lacks the protocol
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

// readAddress parses an address as the kernel prints it: words of four bytes, each a number in the machine's byte
// order.
func readAddress(words string) netip.Addr {
	b, _ := hex.DecodeString(words)
	for i := 0; i+4 <= len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	address, _ := netip.AddrFromSlice(b)
	return address.Unmap()
}

// sockets returns the open sockets of processes.
func sockets(pids []int) map[string]bool {
	found := map[string]bool{}
	for _, pid := range pids {
		dir := proc.Path(pid, "fd/")
		descriptors, _ := os.ReadDir(dir) // missing if the process has ended
		for _, fd := range descriptors {
			if target, _ := os.Readlink(dir + fd.Name()); strings.HasPrefix(target, "socket:") {
				found[target] = true
			}
		}
	}
	return found
}
