package push

import (
	"net/netip"
	"testing"
)

func TestOnlyAddressesOfTheInternetArePublic(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"93.184.216.34": true, "2606:2800:220:1::1": true, "172.32.0.1": true, "192.169.0.1": true, "100.63.255.255": true,
		"127.0.0.1": false, "127.8.8.8": false, "::1": false, "0.0.0.0": false, "0.1.2.3": false, "::": false,
		"10.1.2.3": false, "172.16.0.1": false, "172.31.255.255": false, "192.168.1.1": false, "fd00:ec2::254": false, "fc00::1": false,
		"169.254.169.254": false, "fe80::1": false, "100.64.0.1": false, "100.100.100.200": false, "192.0.0.192": false, "198.18.0.1": false,
		"224.0.0.1": false, "ff02::1": false, "255.255.255.255": false, "240.0.0.1": false,
		"64:ff9b::7f00:1": false, "2002:7f00:1::": false, "2001::1": false, "fec0::1": false, "::127.0.0.1": false, "::ffff:10.0.0.1": false,
	} {
		if got := public(netip.MustParseAddr(text).Unmap()); got != want {
			t.Errorf("%s is public: %v", text, got)
		}
	}
}
