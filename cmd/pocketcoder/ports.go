package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"pocketcoder/handlers"
	"pocketcoder/web/ports"
)

const portsUsage = `pocketcoder ports CHAT PORT: print the address of a web server that a chat's command runs.

  pocketcoder ports h2k0x9c3v7m1q5z 3000

The command runs in the background (it begins with "detach") and listens on 127.0.0.1 in the sandbox. The address lets one
browser in, once, within ten minutes; the browser then has access for 12 hours. Each port has an origin of its own, so that
links, cookies and storage work. Without --ports-url the address works on this machine, or through
ssh -L 8090:127.0.0.1:8090 HOST.

Exit status: 0; 1 when it failed, 2 for wrong usage.
`

func runPorts(ctx context.Context, env environment, args []string) error {
	fs := newFlags(env, "ports", portsUsage)
	data := dataFlag(fs, env)
	rest, err := parse(fs, args, 2)
	if err != nil {
		return err
	}
	if len(rest) != 2 {
		fs.Usage()
		return errUsage
	}
	port, err := strconv.Atoi(rest[1])
	if err != nil || port < 1 || port > 65535 {
		return wrongUsage(env, "ports: want a port from 1 to 65535, got %q", rest[1])
	}
	s, err := connect(ctx, dataDir(*data))
	if err != nil {
		return err
	}
	defer s.close()
	a, err := handlers.Give(ctx, s.nc, "port.open", ports.OpenPort{Command: newCommand(), Chat: rest[0], Port: port})
	if err != nil {
		return err
	}
	var address string
	if err := json.Unmarshal(a.Result, &address); err != nil {
		return fmt.Errorf("read the address of the port: %w", err)
	}
	_, err = fmt.Fprintln(env.stdout, address)
	return err
}
