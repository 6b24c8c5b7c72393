package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/printable"
	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/note"
	"pocketcoder/handlers/policy/display"
)

const noteUsage = `pocketcoder note: the notes of agents. An agent remembers with them what it has learned.

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

type noteCommand struct {
	*client.System
	env    Environment
	asJSON bool
}

// Note is the command note.
func Note(ctx context.Context, env Environment, args []string) error {
	n := noteCommand{env: env}
	fs := NewFlags(env, "note", noteUsage)
	data := DataFlag(fs, env)
	fs.BoolVar(&n.asJSON, "json", false, "list, versions: print a JSON list")
	return RunVerb(ctx, env, fs, args, data, map[string]Verb{
		"list": Takes(1, 1, n.list), "show": Takes(2, 3, n.show), "edit": Takes(2, 2, n.edit), "write": Takes(3, 3, n.write),
		"versions": Takes(2, 2, n.versions), "restore": Takes(3, 3, n.restore), "delete": Takes(2, 2, n.delete),
	}, func(s *client.System) { n.System = s })
}

func (n *noteCommand) list(ctx context.Context, args []string) error {
	all, err := client.Call[[]note.Listed](ctx, n.System, "note.list", note.List{Agent: args[0]})
	if err != nil {
		return err
	}
	return PrintList(n.env, n.asJSON, all, "the agent has no notes", "NAME\tBYTES", func(l note.Listed) []string {
		return []string{printable.OneLine(l.Name, 64), strconv.Itoa(l.Size)}
	})
}

func (n *noteCommand) read(ctx context.Context, args []string) (note.Content, error) {
	q := note.Read{Of: note.Of{Agent: args[0], Name: args[1]}}
	if len(args) > 2 {
		version, err := noteVersion(args[2])
		if err != nil {
			return note.Content{}, err
		}
		q.Version = version
	}
	return client.Call[note.Content](ctx, n.System, "note.read", q)
}

// noteVersion returns the version that a person wrote.
func noteVersion(text string) (uint64, error) {
	version, err := strconv.ParseUint(text, 10, 64)
	if err != nil || version == 0 {
		return 0, handlers.Refuse(handlers.Invalid, "%.40q is not a version; list them with: pocketcoder note versions AGENT NOTE", text)
	}
	return version, nil
}

// show makes a note safe for a terminal. A file or another program gets it unchanged.
func (n *noteCommand) show(ctx context.Context, args []string) error {
	c, err := n.read(ctx, args)
	if err != nil {
		return err
	}
	if n.env.Interactive {
		c.Content = display.Exact(c.Content)
	}
	_, err = io.WriteString(n.env.Stdout, c.Content)
	return err
}

// edit opens a note in an editor. A new note begins empty. A refused text is kept.
func (n *noteCommand) edit(ctx context.Context, args []string) error {
	all, err := client.Call[[]note.Listed](ctx, n.System, "note.list", note.List{Agent: args[0]})
	if err != nil {
		return err
	}
	now := note.Content{}
	if slices.ContainsFunc(all, func(l note.Listed) bool { return l.Name == args[1] }) {
		if now, err = n.read(ctx, args); err != nil {
			return err
		}
	}
	text, path, err := Edit(ctx, n.env, "note.md", now.Content)
	if err != nil {
		return err
	}
	if err := n.save(ctx, args, text); err != nil {
		return fmt.Errorf("%w (your text is in %s)", err, path)
	}
	return os.RemoveAll(filepath.Dir(path))
}

func (n *noteCommand) write(ctx context.Context, args []string) error {
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

func (n *noteCommand) save(ctx context.Context, args []string, text string) error {
	return n.Do(ctx, "note.save", note.Save{Command: client.NewCommand(),
		Of: note.Of{Agent: args[0], Name: args[1]}, Content: text})
}

func (n *noteCommand) versions(ctx context.Context, args []string) error {
	emails, err := n.Emails(ctx)
	if err != nil {
		return err
	}
	all, err := client.Call[[]note.Version](ctx, n.System, "note.versions", note.Of{Agent: args[0], Name: args[1]})
	if err != nil {
		return err
	}
	return PrintList(n.env, n.asJSON, all, "", "VERSION\tTIME\tBYTES\tBY", func(v note.Version) []string {
		size := strconv.Itoa(v.Size)
		if v.Deleted {
			size = "deleted"
		}
		return []string{strconv.FormatUint(v.Version, 10), v.Time.Local().Format(time.DateTime), size, noteAuthor(v, emails)}
	})
}

// noteAuthor names the author of a version. The system writes the versions of files.
func noteAuthor(v note.Version, emails map[string]string) string {
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

func (n *noteCommand) restore(ctx context.Context, args []string) error {
	version, err := noteVersion(args[2])
	if err != nil {
		return err
	}
	return n.Do(ctx, "note.restore", note.Restore{Command: client.NewCommand(),
		Of: note.Of{Agent: args[0], Name: args[1]}, Version: version})
}

func (n *noteCommand) delete(ctx context.Context, args []string) error {
	return n.Do(ctx, "note.delete", note.Delete{Command: client.NewCommand(),
		Of: note.Of{Agent: args[0], Name: args[1]}})
}
