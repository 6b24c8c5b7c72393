package natsconf_test

import (
	"bufio"
	"fmt"
	"maps"
	"net"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
	"pocketcoder/ops/natsconf"
)

func TestServersWithKnownHolesAreRefused(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{ // what the refusal says; "" is none
		"2.12.12":       "",
		"2.12.13":       "",
		"2.12.12+build": "",
		"2.14.3":        "",
		"2.14.30":       "",
		"2.15.0":        "",
		"2.15.2":        "",
		"2.100.0":       "",
		"3.0.0":         "",

		"1.4.1":           "too old",
		"2.9.25":          "too old",
		"2.11.99":         "too old",
		"2.12.0":          "too old",
		"2.12.11":         "too old: security advisories (CVE-2026-33249, NATS 2026-18, 2026-26 and others) ask for 2.14.3 or newer, or 2.12.12 or newer of 2.12",
		"2.13.50":         "too old", // this version does not exist
		"2.14.0":          "too old",
		"2.14.2":          "too old",
		"2.12.12-RC.1":    "pre-release",
		"2.14.3-RC.1":     "pre-release",
		"2.15.0-preview1": "pre-release",
		"2.16.0-dev":      "pre-release",
		"2.15.2-beta+x":   "pre-release",

		"":                 "not a version",
		"2.15":             "not a version",
		"v2.15.2":          "not a version",
		"2.15.2.1":         "not a version",
		"2.15.x":           "not a version",
		"2.15.+2":          "not a version",
		"2.15.-2":          "pre-release",
		"2.15. 2":          "not a version",
		"2.15.99999999999": "not a version",
		"latest":           "not a version",
		"2.15.2\n":         "not a version",
	} {
		switch err := natsconf.CheckVersion(version); {
		case want == "" && err != nil:
			t.Errorf("%q: %v", version, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: %v, not %q", version, err, want)
		}
	}
}

func TestEveryServerOfAClusterIsChecked(t *testing.T) {
	t.Parallel()
	inEachUse(t, func(t *testing.T, n *testServer) {
		is := is.New(t)
		want := map[string]string{}
		for _, s := range n.servers {
			want[s.Name()] = natsconf.Embedded
		}
		expect.Eventually(t, "the servers know each other", func() bool {
			got, err := natsconf.CheckServers(t.Context(), n.ClientURL(), n.keys)
			is.NoErr(err)
			return maps.Equal(got, want)
		})
		other := newTestServer(t)
		_, err := natsconf.CheckServers(t.Context(), n.ClientURL(), other.keys)
		is.True(err != nil && strings.Contains(err.Error(), "Authorization Violation"))
	})
}

func TestAnOldServerIsRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := oldServer(t)
	_, err := natsconf.CheckServers(t.Context(), url, newTestServer(t).keys)
	is.True(err != nil)
	is.True(strings.HasPrefix(err.Error(), "server old at "+url+": nats-server 2.14.2 is too old"))
}

// oldServer says of itself what nats-server 2.14.2 says, and nothing else.
func oldServer(t *testing.T) (url string) {
	t.Helper()
	is := is.New(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	is.NoErr(err)
	t.Cleanup(func() { l.Close() })
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, `INFO {"server_name":"old","version":"2.14.2","proto":1,"headers":true,"max_payload":1048576,"nonce":"x"}`+"\r\n")
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			if lines.Text() == "PING" {
				fmt.Fprint(conn, "PONG\r\n")
			}
		}
	}()
	return "nats://" + l.Addr().String()
}
