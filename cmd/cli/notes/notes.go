// Package notes holds the command "pocketcoder note": it lists the notes of an agent, shows and changes one, and
// restores earlier versions.
//
// It must not know where the files of the notes are.
package notes

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"pocketcoder/cmd/cli"
	"pocketcoder/cmd/client"
	"pocketcoder/cmd/printable"
	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/notes"
)

const usage = `pocketcoder note: the notes of agents. An agent remembers with them what it has learned.

  pocketcoder note list AGENT                     list the notes of an agent
  pocketcoder note show AGENT NOTE [VERSION]      print a note
  pocketcoder note edit AGENT NOTE                change a note in $VISUAL or $EDITOR, or write a new one
  pocketcoder note write AGENT NOTE FILE          replace a note by a file; - is stdin
  pocketcoder note versions AGENT NOTE            list the versions of a note, the newest first
  pocketcoder note restore AGENT NOTE VERSION     make an earlier version the current one
  pocketcoder note delete AGENT NOTE              delete a note; its versions can be restored

The system must be running.

Exit status: 0; 1 when it failed, 2 for wrong usage.
`

type command struct {
	*client.System
	env    cli.Environment
	asJSON bool
}

// Run is the command note.
func Run(ctx context.Context, env cli.Environment, args []string) error {
	n := command{env: env}
	fs := cli.NewFlags(env, "note", usage)
	data := cli.DataFlag(fs, env)
	fs.BoolVar(&n.asJSON, "json", false, "list, versions: print a JSON list")
	return cli.RunVerb(ctx, env, fs, args, data, map[string]cli.Verb{
		"list": cli.Takes(1, 1, n.list), "show": cli.Takes(2, 3, n.show), "edit": cli.Takes(2, 2, n.edit), "write": cli.Takes(3, 3, n.write),
		"versions": cli.Takes(2, 2, n.versions), "restore": cli.Takes(3, 3, n.restore), "delete": cli.Takes(2, 2, n.delete),
	}, func(s *client.System) { n.System = s })
}

func (n *command) list(ctx context.Context, args []string) error {
	all, err := client.Call[[]notes.Listed](ctx, n.System, "note.list", notes.List{Agent: args[0]})
	if err != nil {
		return err
	}
	return cli.PrintList(n.env, n.asJSON, all, "the agent has no notes", "NAME\tBYTES", func(l notes.Listed) []string {
		return []string{printable.OneLine(l.Name, 64), strconv.Itoa(l.Size)}
	})
}

func (n *command) read(ctx context.Context, args []string) (notes.Content, error) {
	q := notes.Read{Of: notes.Of{Agent: args[0], Name: args[1]}}
	if len(args) > 2 {
		version, err := versionIn(args[2])
		if err != nil {
			return notes.Content{}, err
		}
		q.Version = version
	}
	return client.Call[notes.Content](ctx, n.System, "note.read", q)
}

// versionIn returns the version that a person wrote.
func versionIn(text string) (uint64, error) {
	version, err := strconv.ParseUint(text, 10, 64)
	if err != nil || version == 0 {
		return 0, handlers.Refuse(handlers.Invalid, "%.40q is not a version; list them with: pocketcoder note versions AGENT NOTE", text)
	}
	return version, nil
}

// show makes a note safe for a terminal. A file or another program gets it unchanged.
func (n *command) show(ctx context.Context, args []string) error {
	c, err := n.read(ctx, args)
	if err != nil {
		return err
	}
	if n.env.Interactive {
		c.Content = printable.Visible(c.Content)
	}
	_, err = io.WriteString(n.env.Stdout, c.Content)
	return err
}

// edit opens a note in an editor. A new note begins empty. A refused text is kept.
func (n *command) edit(ctx context.Context, args []string) error {
	all, err := client.Call[[]notes.Listed](ctx, n.System, "note.list", notes.List{Agent: args[0]})
	if err != nil {
		return err
	}
	now := notes.Content{}
	if slices.ContainsFunc(all, func(l notes.Listed) bool { return l.Name == args[1] }) {
		if now, err = n.read(ctx, args); err != nil {
			return err
		}
	}
	text, path, err := cli.Edit(ctx, n.env, "note.md", now.Content)
	if err != nil {
		return err
	}
	if err := n.save(ctx, args, text); err != nil {
		return fmt.Errorf("%w (your text is in %s)", err, path)
	}
	return os.RemoveAll(filepath.Dir(path))
}

func (n *command) write(ctx context.Context, args []string) error {
	from := n.env.Stdin
	if args[2] != "-" {
		f, err := os.Open(args[2])
		if err != nil {
			return err
		}
		defer f.Close()
		from = f
	}
	text, err := io.ReadAll(io.LimitReader(from, 1<<19)) // more than a note may have
	if err != nil {
		return err
	}
	return n.save(ctx, args, string(text))
}

func (n *command) save(ctx context.Context, args []string, text string) error {
	return n.Do(ctx, "note.save", notes.Save{Command: client.NewCommand(),
		Of: notes.Of{Agent: args[0], Name: args[1]}, Content: text})
}

func (n *command) versions(ctx context.Context, args []string) error {
	emails, err := n.Emails(ctx)
	if err != nil {
		return err
	}
	all, err := client.Call[[]notes.Version](ctx, n.System, "note.versions", notes.Of{Agent: args[0], Name: args[1]})
	if err != nil {
		return err
	}
	return cli.PrintList(n.env, n.asJSON, all, "", "VERSION\tTIME\tBYTES\tBY", func(v notes.Version) []string {
		size := strconv.Itoa(v.Size)
		if v.Deleted {
			size = "deleted"
		}
		return []string{strconv.FormatUint(v.Version, 10), v.Time.Local().Format(time.DateTime), size, author(v, emails)}
	})
}

// author names the author of a version. The system writes the versions of files.
func author(v notes.Version, emails map[string]string) string {
	if v.Actor == events.ActorSystem {
		return "a file of the agent"
	}
	for id, email := range emails {
		if v.Actor == events.UserActor(id) {
			return printable.OneLine(email, 60)
		}
	}
	return printable.OneLine(v.Actor, 60)
}

func (n *command) restore(ctx context.Context, args []string) error {
	version, err := versionIn(args[2])
	if err != nil {
		return err
	}
	return n.Do(ctx, "note.restore", notes.Restore{Command: client.NewCommand(),
		Of: notes.Of{Agent: args[0], Name: args[1]}, Version: version})
}

func (n *command) delete(ctx context.Context, args []string) error {
	return n.Do(ctx, "note.delete", notes.Delete{Command: client.NewCommand(),
		Of: notes.Of{Agent: args[0], Name: args[1]}})
}
