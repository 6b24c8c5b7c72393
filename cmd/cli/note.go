package cli

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"pocketcoder/cmd/client"
	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/agent"
	"pocketcoder/handlers/policy/display"
	"pocketcoder/handlers/project"
)

const noteUsage = `
  pocketcoder note list AGENT                     list the notes of an agent
  pocketcoder note show AGENT NOTE [VERSION]      print a note
  pocketcoder note edit AGENT NOTE                change a note in $VISUAL or $EDITOR, or write a new one
  pocketcoder note set AGENT NOTE FILE            replace a note by a file; - is stdin
  pocketcoder note versions AGENT NOTE            list the versions of a note, the newest first
  pocketcoder note restore AGENT NOTE VERSION     make an earlier version the current one
  pocketcoder note delete AGENT NOTE              delete a note; its versions can be restored

A note belongs to an agent and a project. Without --project, it is of the first project.
`

// Notes is the command note. A note is named by its agent, its project and its name.
var Notes = Group{Name: "note", Usage: noteUsage, Former: map[string]string{"write": "set"},
	Own: func(r *Records, fs *flag.FlagSet) map[string]Verb {
		n := &noteCommand{Records: r}
		fs.StringVar(&n.project, "project", "", "`name` or id of the project of the notes (default: the first project)")
		return map[string]Verb{"list": Takes(1, 1, n.list), "show": Takes(2, 3, n.show), "edit": Takes(2, 2, n.edit),
			"set": Takes(3, 3, n.write), "versions": Takes(2, 2, n.versions), "restore": Takes(3, 3, n.restore),
			"delete": Takes(2, 2, n.delete)}
	}}

type noteCommand struct {
	*Records
	project string // as a person names it, "" for the first project
}

// at returns a path with the project of the notes in its query.
func (n *noteCommand) at(ctx context.Context, path string) (string, error) {
	if n.project == "" {
		return path, nil
	}
	id, err := n.related(ctx, project.Collection, n.project)
	return path + "?" + url.Values{"project": {id}}.Encode(), err
}

// readNotes returns the answer of a path about notes.
func readNotes[T any](ctx context.Context, n *noteCommand, path string) (answer T, err error) {
	if path, err = n.at(ctx, path); err != nil {
		return answer, err
	}
	return client.Read[T](ctx, n.System, path)
}

func (n *noteCommand) send(ctx context.Context, method, path string, body any) error {
	path, err := n.at(ctx, path)
	if err != nil {
		return err
	}
	return n.Send(ctx, method, path, body, nil)
}

func (n *noteCommand) list(ctx context.Context, args []string) error {
	all, err := readNotes[[]agent.ListedNote](ctx, n, notesOf(args[0]))
	if err != nil {
		return err
	}
	return PrintList(n.Env, n.AsJSON, all, "the agent has no notes", "NAME\tBYTES", func(l agent.ListedNote) []string {
		return []string{display.OneLine(l.Name, 64), strconv.Itoa(l.Size)}
	})
}

func (n *noteCommand) read(ctx context.Context, args []string) (agent.NoteContent, error) {
	path := notePath(args)
	if len(args) > 2 {
		version, err := noteVersion(args[2])
		if err != nil {
			return agent.NoteContent{}, err
		}
		path = versionsOf(args) + "/" + version
	}
	return readNotes[agent.NoteContent](ctx, n, path)
}

// noteVersion returns the version that a person wrote.
func noteVersion(text string) (string, error) {
	version, err := strconv.ParseUint(text, 10, 64)
	if err != nil || version == 0 {
		return "", handlers.Refuse(handlers.Invalid, "%.40q is not a version; list them with: pocketcoder note versions AGENT NOTE", text)
	}
	return text, nil
}

func notesOf(agent string) string {
	return "/api/pocketcoder/agents/" + url.PathEscape(agent) + "/notes"
}

// notePath returns the path of the note that the arguments AGENT and NOTE name.
func notePath(args []string) string { return notesOf(args[0]) + "/" + url.PathEscape(args[1]) }

// versionsOf returns the path of the versions of a note.
func versionsOf(args []string) string {
	return "/api/agents/" + url.PathEscape(args[0]) + "/notes/" + url.PathEscape(args[1]) + "/versions"
}

// show makes a note safe for a terminal. A file or another program gets it unchanged.
func (n *noteCommand) show(ctx context.Context, args []string) error {
	c, err := n.read(ctx, args)
	if err != nil {
		return err
	}
	if n.Env.Interactive {
		c.Content = display.Exact(c.Content)
	}
	_, err = io.WriteString(n.Env.Stdout, c.Content)
	return err
}

// edit opens a note in an editor. A new note begins empty. A refused text is kept.
func (n *noteCommand) edit(ctx context.Context, args []string) error {
	all, err := readNotes[[]agent.ListedNote](ctx, n, notesOf(args[0]))
	if err != nil {
		return err
	}
	now := agent.NoteContent{}
	if slices.ContainsFunc(all, func(l agent.ListedNote) bool { return l.Name == args[1] }) {
		if now, err = n.read(ctx, args); err != nil {
			return err
		}
	}
	text, path, err := Edit(ctx, n.Env, "note.md", now.Content)
	if err != nil {
		return err
	}
	if err := n.save(ctx, args, text); err != nil {
		return fmt.Errorf("%w (your text is in %s)", err, path)
	}
	return os.RemoveAll(filepath.Dir(path))
}

func (n *noteCommand) write(ctx context.Context, args []string) error {
	from := n.Env.Stdin
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
	return n.send(ctx, http.MethodPut, notePath(args), map[string]string{"content": text})
}

func (n *noteCommand) versions(ctx context.Context, args []string) error {
	emails, err := n.Emails(ctx)
	if err != nil {
		return err
	}
	all, err := readNotes[[]agent.NoteVersion](ctx, n, versionsOf(args))
	if err != nil {
		return err
	}
	return PrintList(n.Env, n.AsJSON, all, "", "VERSION\tTIME\tBYTES\tBY", func(v agent.NoteVersion) []string {
		size := strconv.Itoa(v.Size)
		if v.Deleted {
			size = "deleted"
		}
		return []string{strconv.FormatUint(v.Version, 10), v.Time.Local().Format(time.DateTime), size, noteAuthor(v, emails)}
	})
}

// noteAuthor names the author of a version. The system writes the versions of files.
func noteAuthor(v agent.NoteVersion, emails map[string]string) string {
	if v.Actor == events.ActorSystem {
		return "a file of the agent"
	}
	for id, email := range emails {
		if v.Actor == events.UserActor(id) {
			return display.OneLine(email, 60)
		}
	}
	return display.OneLine(v.Actor, 60)
}

func (n *noteCommand) restore(ctx context.Context, args []string) error {
	version, err := noteVersion(args[2])
	if err != nil {
		return err
	}
	return n.send(ctx, http.MethodPost, versionsOf(args)+"/"+version+"/restore", nil)
}

func (n *noteCommand) delete(ctx context.Context, args []string) error {
	return n.send(ctx, http.MethodDelete, notePath(args), nil)
}
