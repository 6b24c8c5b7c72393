package admin

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"pocketcoder/ops/natsconf"
)

// checkNATS checks the versions of the NATS servers, or of the embedded one if no system runs.
func checkNATS(ctx context.Context, o doctorOptions) check {
	c := check{Name: "nats", State: checkOK, For: "the log, and who may do what",
		Get: "upgrade nats-server (https://github.com/nats-io/nats-server/releases)"}
	fail := func(err error) check {
		c.State, c.Found = checkWrong, err.Error()
		return c
	}
	url := o.nats
	if r, err := o.data.Running(); err == nil {
		url = r.NATS
	}
	if url == "" {
		c.Found = natsconf.Embedded + ", embedded"
		if err := natsconf.CheckVersion(natsconf.Embedded); err != nil {
			return fail(err)
		}
		return c
	}
	if _, err := os.Stat(o.data.Path("keys")); err != nil {
		return fail(fmt.Errorf("no keys to ask %s with: %w", url, err))
	}
	keys, err := natsconf.LoadKeys(o.data.Path("keys"))
	if err != nil {
		return fail(err)
	}
	versions, err := natsconf.CheckServers(ctx, url, keys)
	if err != nil {
		return fail(err)
	}
	var servers []string
	for name, v := range versions {
		servers = append(servers, v+" "+name)
	}
	slices.Sort(servers)
	c.Found = strings.Join(servers, ", ") + ", at " + url
	return c
}
