package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"pocketcoder/cmd/cli"
	"pocketcoder/cmd/client"
	"pocketcoder/cmd/printable"
	"pocketcoder/cmd/program"
	"pocketcoder/events"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/sshkey"
)

const keyUsage = `pocketcoder key: manage the SSH keys of accounts. With "up --ssh", a key opens the viewer (attach).

  pocketcoder key add ~/.ssh/id_ed25519.pub                  the public key of this machine
  pocketcoder key add laptop.pub --name laptop --for 720h    of another device, for 30 days
  ssh-add -L | pocketcoder key add -                         one line from stdin
  pocketcoder key list
  pocketcoder key remove KEY                                 and close its connections

With several accounts, add needs --user. A key belongs to one account.

Exit status: 0; 1 when it failed, 2 for wrong usage.
`

type keyCommand struct {
	*client.System
	env      cli.Environment
	user     string // an email
	name     string
	validFor time.Duration
	asJSON   bool
}

func Key(ctx context.Context, env cli.Environment, args []string) error {
	k := keyCommand{env: env}
	fs := cli.NewFlags(env, "key", keyUsage)
	at := cli.ServerFlags(fs, env)
	fs.StringVar(&k.user, "user", "", "add: `email` of the account that logs in with the key")
	fs.StringVar(&k.name, "name", "", "add: `name` of the device; the key's comment when empty")
	fs.DurationVar(&k.validFor, "for", 0, "add: `time` until the key expires, such as 720h; 0 is never")
	fs.BoolVar(&k.asJSON, "json", false, "list: print a JSON list")
	return cli.RunVerb(ctx, env, fs, args, at, map[string]cli.Verb{
		"add": cli.Takes(1, 1, k.add), "list": cli.Takes(0, 0, k.list), "remove": cli.Takes(1, 1, k.remove),
	}, func(s *client.System) { k.System = s })
}

// maxKeyFile limits the size of a public key file, in bytes.
const maxKeyFile = 64 << 10

func (k *keyCommand) add(ctx context.Context, args []string) error {
	line, err := k.read(args[0])
	if err != nil {
		return fmt.Errorf("read the key: %w", err)
	}
	if strings.Contains(line, "PRIVATE KEY") {
		return errors.New("read the key: this is a private key, which stays on its device; name the file that ends in .pub")
	}
	owner, err := owner(ctx, k.System, k.user)
	if err != nil {
		return err
	}
	key, err := sshkey.Parse(line)
	if err != nil {
		return err
	}
	fields := map[string]any{"user": owner.ID, "public_key": line, "device_name": cmp.Or(k.name, key.Comment),
		"is_active": true}
	if k.validFor > 0 {
		fields["expires_at"] = record.FormatTime(time.Now().Add(k.validFor))
	}
	id, err := k.Create(ctx, sshkey.Collection, fields)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(k.env.Stdout, "Key %s logs in as %s.\n", id, printable.OneLine(owner.Email, 60))
	return err
}

func (k *keyCommand) read(path string) (string, error) {
	in := k.env.Stdin
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

func (k *keyCommand) list(ctx context.Context, _ []string) error {
	all, emails, err := ownedBy[sshkey.Registered](ctx, k.System, sshkey.Collection, "id")
	if err != nil {
		return err
	}
	empty := fmt.Sprintf("no SSH keys; add one with: %s key add ~/.ssh/id_ed25519.pub", program.Name())
	return cli.PrintList(k.env, k.asJSON, all, empty, "ID\tDEVICE\tACCOUNT\tSTATE\tEXPIRES\tLAST USED\tFINGERPRINT",
		func(one sshkey.Registered) []string {
			return []string{
				one.ID, printable.OneLine(one.Name, 40), printable.OneLine(emails[one.User], 60), activity(one.Active),
				recordMinute(one.ExpiresAt), recordMinute(one.LastUsed), printable.OneLine(one.Fingerprint, 60),
			}
		})
}

// recordMinute shows the time of a record in local time.
func recordMinute(text string) string {
	at, err := time.Parse(events.TimeFormat, text)
	if err != nil {
		return "never"
	}
	return minute(at)
}

func (k *keyCommand) remove(ctx context.Context, args []string) error {
	return k.Delete(ctx, sshkey.Collection, args[0])
}
