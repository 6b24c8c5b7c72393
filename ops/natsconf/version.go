package natsconf

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

const Embedded = server.VERSION

// oldest are the first versions without the holes this configuration would suffer from, one for each line that got the
// repairs; there is no 2.13. Each has what the streams need, atomic batches and asynchronous persistence (both since
// 2.12). Among the repairs: queue subscriptions that got around a denied subject (NATS advisory 2026-18), trace
// headers that published to a forbidden subject (CVE-2026-33249), restores into another stream (GHSA-9983-vrx2-fg9c),
// routes that got around authentication (2026-16), and 2026-26, the last of them.
var oldest = []release{{2, 12, 12}, {2, 14, 3}}

// release is a version: major, minor, patch.
type release [3]int

func (r release) String() string { return fmt.Sprintf("%d.%d.%d", r[0], r[1], r[2]) }

// CheckVersion refuses servers that are too old, and versions that are not releases: the version of a pre-release does
// not tell whether it has the repairs.
func CheckVersion(version string) error {
	v, err := parseRelease(version)
	if err != nil {
		return fmt.Errorf("nats-server %q: %w", version, err)
	}
	newest := oldest[len(oldest)-1]
	for _, o := range oldest {
		if v[0] == o[0] && v[1] == o[1] && v[2] >= o[2] {
			return nil
		}
	}
	if v[0] > newest[0] || v[0] == newest[0] && v[1] > newest[1] {
		return nil
	}
	return fmt.Errorf("nats-server %s is too old: security advisories (CVE-2026-33249, NATS 2026-18, 2026-26 and others) ask for %s or newer, or %s or newer of 2.12",
		version, newest, oldest[0])
}

// parseRelease reads MAJOR.MINOR.PATCH, with or without build metadata (+…).
func parseRelease(version string) (r release, err error) {
	numbers, _, _ := strings.Cut(version, "+")
	parts := strings.Split(numbers, ".")
	if strings.Contains(numbers, "-") {
		return r, fmt.Errorf("a pre-release; run a release, %s or newer", oldest[len(oldest)-1])
	}
	if len(parts) != len(r) {
		return r, fmt.Errorf("not a version")
	}
	for i, p := range parts {
		n, err := strconv.ParseUint(p, 10, 31)
		if err != nil {
			return r, fmt.Errorf("not a version")
		}
		r[i] = int(n)
	}
	return r, nil
}

// serversAnswer limits the wait for the servers of a cluster. A server that has just died still counts as active.
const serversAnswer = time.Second

// CheckServers returns the versions, by server name, of the servers at url and of the cluster behind it that answer
// within a second. The error names one that CheckVersion refuses.
func CheckServers(ctx context.Context, url string, keys Keys) (map[string]string, error) {
	options, err := keys.Options(Sys, "pocketcoder version check")
	if err != nil {
		return nil, err
	}
	nc, err := nats.Connect(url, options...)
	if err != nil {
		return nil, fmt.Errorf("check versions of NATS at %s: %w", url, err)
	}
	defer nc.Close()
	versions := map[string]string{nc.ConnectedServerName(): nc.ConnectedServerVersion()}
	if err := askServers(ctx, nc, versions); err != nil {
		return nil, fmt.Errorf("check versions of NATS at %s: %w", url, err)
	}
	for name, v := range versions {
		if err := CheckVersion(v); err != nil {
			return versions, fmt.Errorf("server %s at %s: %w", name, url, err)
		}
	}
	return versions, nil
}

// askServers adds the versions of the cluster's servers, until all active servers have answered.
func askServers(ctx context.Context, nc *nats.Conn, versions map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, serversAnswer)
	defer cancel()
	inbox := nc.NewInbox()
	answers, err := nc.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	if err := nc.PublishRequest("$SYS.REQ.SERVER.PING", inbox, nil); err != nil {
		return err
	}
	for active := len(versions) + 1; len(versions) < active; {
		m, err := answers.NextMsgWithContext(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		var stats server.ServerStatsMsg
		if err := json.Unmarshal(m.Data, &stats); err != nil {
			return fmt.Errorf("read a server's answer: %w", err)
		}
		versions[stats.Server.Name] = stats.Server.Version
		active = stats.Stats.ActiveServers
	}
	return nil
}
