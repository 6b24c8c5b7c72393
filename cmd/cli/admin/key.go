package admin

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"pocketcoder/cmd/cli"
	"pocketcoder/handlers/policy/display"
	"pocketcoder/handlers/sshkey"
)

const keyUsage = `
  pocketcoder key add ~/.ssh/id_ed25519.pub                  the public key of this machine
  pocketcoder key add laptop.pub --name laptop --for 720h    of another device, for 30 days
  ssh-add -L | pocketcoder key add -                         one line from stdin

With "up --ssh", a key opens the viewer (attach). With several accounts, add needs --user. A key belongs to one account.
delete also closes its connections.
`

// Key is the command key.
var Key = cli.Group{Name: "key", Usage: keyUsage, Former: map[string]string{"remove": "delete"},
	Flags:  map[string]string{"device_name": "name", "expires_at": "for"},
	Stored: func() any { return &[]sshkey.Registered{} },
	Own: func(r *cli.Records, _ *flag.FlagSet) map[string]cli.Verb {
		return map[string]cli.Verb{"add": cli.Takes(1, 1, func(ctx context.Context, args []string) error {
			return addKey(ctx, r, args[0])
		})}
	}}

// maxKeyFile limits the size of a public key file, in bytes.
const maxKeyFile = 64 << 10

func addKey(ctx context.Context, r *cli.Records, path string) error {
	line, err := readKey(r.Env, path)
	if err != nil {
		return fmt.Errorf("read the key: %w", err)
	}
	if strings.Contains(line, "PRIVATE KEY") {
		return errors.New("read the key: this is a private key, which stays on its device; name the file that ends in .pub")
	}
	owner, err := cli.Owner(ctx, r.System, r.Given["user"])
	if err != nil {
		return err
	}
	key, err := sshkey.Parse(line)
	if err != nil {
		return err
	}
	fields, err := r.Fields(ctx)
	if err != nil {
		return err
	}
	fields["user"], fields["public_key"], fields["is_active"] = owner.ID, line, true
	if r.Given["device_name"] == "" {
		fields["device_name"] = key.Comment
	}
	id, err := r.Create(ctx, sshkey.Collection, fields)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(r.Env.Stdout, "Key %s logs in as %s.\n", id, display.OneLine(owner.Email, 60))
	return err
}

func readKey(env cli.Environment, path string) (string, error) {
	in := env.Stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return "", err
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxKeyFile))
	return strings.TrimSpace(string(text)), err
}
