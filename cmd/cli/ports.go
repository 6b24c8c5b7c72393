package cli

import (
	"context"
	"fmt"
	"strconv"

	"pocketcoder/cmd/client"
)

const portsUsage = `pocketcoder ports CHAT PORT: print the address of a web server that a chat's command runs.

  pocketcoder ports h2k0x9c3v7m1q5z 3000

The command must run in the background (it begins with "detach") and listen on 127.0.0.1 in the sandbox. The address works
once, for one browser, within ten minutes. Then that browser has access for 12 hours. Each port has an origin of its own,
so links, cookies and storage work. Without "up --ports-url" the address works on this machine only, or through
ssh -L 8090:127.0.0.1:8090 HOST.

Exit status: 0; 1 when it failed, 2 for wrong usage.
`

func Ports(ctx context.Context, env Environment, args []string) error {
	fs := NewFlags(env, "ports", portsUsage)
	at := ServerFlags(fs, env)
	rest, err := Parse(fs, args, 2)
	if err != nil {
		return err
	}
	if len(rest) != 2 {
		fs.Usage()
		return ErrUsage
	}
	port, err := strconv.Atoi(rest[1])
	if err != nil || port < 1 || port > 65535 {
		return WrongUsage(env, "ports: want a port from 1 to 65535, got %q", rest[1])
	}
	s, err := client.Connect(ctx, *at)
	if err != nil {
		return err
	}
	defer s.Close()
	address, err := s.OpenPort(ctx, rest[0], port)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(env.Stdout, address)
	return err
}
