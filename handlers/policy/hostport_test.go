package policy_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers/policy"
)

func TestAnAddressIsReadAsProgramsReadIt(t *testing.T) {
	for text, want := range map[string]string{
		"api.example.org":           "api.example.org:443",
		"API.Example.org.:80":       "api.example.org:80",
		"xn--80ak6aa92e.com:443":    "xn--80ak6aa92e.com:443",
		"LOCALHOST.:443":            "localhost:443",
		"_acme.example.com:8443":    "_acme.example.com:8443",
		"127.1:443":                 "127.0.0.1:443",
		"0x7f000001:443":            "127.0.0.1:443",
		"2130706433:443":            "127.0.0.1:443",
		"0177.0.0x0.1:443":          "127.0.0.1:443",
		"127.0.0.1.:443":            "127.0.0.1:443",
		"8.8.8.8:53":                "8.8.8.8:53",
		"0:80":                      "0.0.0.0:80",
		"[::ffff:127.0.0.1]:443":    "127.0.0.1:443",
		"[0:0:0:0:0:ffff:7f00:1]:1": "127.0.0.1:1",
		"[2606:2800:220:1:0::1]:22": "[2606:2800:220:1::1]:22",
		"[::1]":                     "[::1]:443",
	} {
		t.Run(text, func(t *testing.T) {
			is := is.New(t)
			a, err := policy.ParseAddress(text)
			is.NoErr(err)
			is.Equal(a.String(), want)
		})
	}
}

func TestAnAddressThatCannotBeTrustedIsRefused(t *testing.T) {
	for _, text := range []string{
		"", ":443", "evil\x00.google.com:443", "evil.com\r\nHost: x:443", "a b.com:443", "evil.com\u200b:443",
		"a@evil.com:443", "evil.com/x:443",
		"evil.com:", "evil.com:0", "evil.com:65536", "evil.com:+80", "evil.com:http", "evil..com:443", ".evil.com:443",
		"evil.com..:443", "-evil.com:443",
		"\u0430pple.com:443", "\u212aernel.org:443", "ｇoogle.com:443", "google。com:443", "example.4:443", "256.1.1.1:443",
		"1.2.3.4.5:443", "0x:443", "08.0.0.1:443",
		"4294967296:443", "[fe80::1%25eth0]:443", "[::1:443", "::1:443", "[127.0.0.1]:443", "*.example.com:443",
		"%6cocalhost:443",
		strings.Repeat("a", 64) + ".com:443", strings.Repeat("a.", 130) + "com:443",
	} {
		t.Run(text, func(t *testing.T) {
			_, err := policy.ParseAddress(text)
			is.New(t).True(err != nil)
		})
	}
}

func TestOnlyAddressesOfTheInternetArePublic(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"93.184.216.34": true, "2606:2800:220:1::1": true, "172.32.0.1": true, "192.169.0.1": true, "100.63.255.255": true,
		"127.0.0.1": false, "127.8.8.8": false, "::1": false, "0.0.0.0": false, "0.1.2.3": false, "::": false,
		"10.1.2.3": false, "172.16.0.1": false, "172.31.255.255": false, "192.168.1.1": false, "fd00:ec2::254": false, "fc00::1": false,
		"169.254.169.254": false, "fe80::1": false, "100.64.0.1": false, "100.100.100.200": false, "192.0.0.192": false, "198.18.0.1": false,
		"224.0.0.1": false, "ff02::1": false, "255.255.255.255": false, "240.0.0.1": false, "::ffff:0:127.0.0.1": false,
		"64:ff9b::7f00:1": false, "2002:7f00:1::": false, "2001::1": false, "fec0::1": false, "::127.0.0.1": false, "::ffff:10.0.0.1": false,
	} {
		if got := policy.IsPublic(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s is public: %v", text, got)
		}
	}
}
