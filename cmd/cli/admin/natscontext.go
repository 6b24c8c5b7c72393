package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"pocketcoder/cmd/cli"
	"pocketcoder/cmd/datadir"
	"pocketcoder/events"
	"pocketcoder/events/atomicfile"
	"pocketcoder/ops/natsconf"
)

const natsContextUsage = `pocketcoder admin nats-context: create a context with which the nats CLI reads the log.

It writes a context with read-only rights to nats/context/NAME.json in $XDG_CONFIG_HOME (~/.config). The context has the
address of the running system. Run the command again after a start on another port.

  pocketcoder admin nats-context
  pocketcoder admin nats-context --name work
  pocketcoder admin nats-context --print        show it, write nothing

Exit status: 0; 1 when nothing runs or it failed, 2 for wrong usage.
`

// natsContext is a context file of the nats CLI (ADR-21), with the fields that are needed.
type natsContext struct {
	Description string `json:"description"`
	URL         string `json:"url"`
	NKey        string `json:"nkey"` // path of the seed
	InboxPrefix string `json:"inbox_prefix"`
	APIPrefix   string `json:"jetstream_api_prefix"`
}

func runNATSContext(ctx context.Context, env cli.Environment, args []string) error {
	fs := cli.NewFlags(env, "admin nats-context", natsContextUsage)
	data := cli.DataFlag(fs, env)
	name := fs.String("name", "pocketcoder", "`name` of the context")
	show := fs.Bool("print", false, "print the context instead of writing it")
	if _, err := cli.Parse(fs, args, 0); err != nil {
		return err
	}
	if _, err := events.ParseID(*name); err != nil {
		return cli.WrongUsage(env, "nats-context: --name: %v", err)
	}
	d := datadir.Dir(datadir.Absolute(*data))
	r, err := d.Running()
	if err != nil {
		return err
	}
	keys, err := natsconf.LoadKeys(d.Path("keys"))
	if err != nil {
		return err
	}
	c := observerContext(d, r, keys)
	if *show {
		return cli.PrintJSON(env.Stdout, c)
	}
	path, err := c.write(env, *name)
	if err != nil {
		return fmt.Errorf("write nats context: %w", err)
	}
	return c.next(env.Stdout, *name, path)
}

// observerContext returns the context of the read-only identity.
func observerContext(d datadir.Dir, r datadir.Running, keys natsconf.Keys) natsContext {
	return natsContext{
		Description: "PocketCoder at " + string(d) + ", read only",
		URL:         r.NATS,
		NKey:        keys.SeedFile(natsconf.Observer),
		InboxPrefix: natsconf.InboxPrefix(natsconf.Observer),
		APIPrefix:   natsconf.ReaderAPI,
	}
}

func (c natsContext) write(env cli.Environment, name string) (path string, err error) {
	config := env.Getenv("XDG_CONFIG_HOME")
	if config == "" {
		home := env.Getenv("HOME")
		if home == "" {
			return "", errors.New("neither XDG_CONFIG_HOME nor HOME is set")
		}
		config = filepath.Join(home, ".config")
	}
	path = filepath.Join(config, "nats", "context", name+".json")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	body, err := cli.Indented(c)
	if err != nil {
		return "", err
	}
	return path, atomicfile.Write(path, body)
}

// next prints example commands.
func (c natsContext) next(w io.Writer, name, path string) error {
	_, err := fmt.Fprintf(w, `wrote %s

With the nats CLI (https://github.com/nats-io/natscli):

  nats --context %[2]s sub 'evt.chat.*.opencode.permission.>'    each permission request, live
  nats --context %[2]s sub 'evt.>'                               everything
  nats --context %[2]s stream view EVENTS                        what is stored
`, path, name)
	return err
}
