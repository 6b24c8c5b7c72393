package admin

import (
	"bufio"
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"pocketcoder/cmd/cli"
	"pocketcoder/cmd/client"
	"pocketcoder/events/atomicfile"
	"pocketcoder/handlers/agent"
	"pocketcoder/handlers/policy/display"
)

const agentUsage = `
  pocketcoder agent list                  list the agents
  pocketcoder agent show NAME             print an agent as a Markdown file in OpenCode's format
  pocketcoder agent export NAME FILE      write an agent to a file
  pocketcoder agent add FILE              create an agent from a file, or replace the agent with its name; - is stdin
  pocketcoder agent edit NAME             change an agent in $VISUAL or $EDITOR

If the agent exists, add shows what would change, and asks. With --yes or from stdin it does not ask. edit never asks. The
system must run. A file has front matter and a prompt:

  ---
  name: Reviewer
  description: Reviews changes before they are committed
  model: anthropic/claude-sonnet-4-5
  permission:
    edit: deny
    bash:
      "*": ask
      git diff*: allow
  ---

  Review every line. Report bugs first.

/agent NAME in "pocketcoder chat" chooses an agent for a chat. A delegate gets the agent that its parent names.
`

// Agent is the command agent.
var Agent = cli.Group{Name: "agent", Usage: agentUsage,
	Own: func(r *cli.Records, fs *flag.FlagSet) map[string]cli.Verb {
		a := agentCommand{Records: r}
		fs.BoolVar(&a.yes, "yes", false, "add: replace an agent without asking")
		return map[string]cli.Verb{"list": cli.Takes(0, 0, a.list), "show": cli.Takes(1, 1, a.show),
			"export": cli.Takes(1, 2, a.export), "add": cli.Takes(1, 1, a.add), "edit": cli.Takes(1, 1, a.edit)}
	}}

type agentCommand struct {
	*cli.Records
	yes bool
}

func (a *agentCommand) list(ctx context.Context, _ []string) error {
	all, err := client.Read[[]agent.Listed](ctx, a.System, "/api/agents")
	if err != nil {
		return err
	}
	const empty = "no agent is stored; create one with: pocketcoder agent add FILE"
	return cli.PrintList(a.Env, a.AsJSON, all, empty, "NAME\tMODEL\tRULES\tDESCRIPTION\tID",
		func(l agent.Listed) []string {
			return []string{display.OneLine(l.Name, 40), display.OneLine(cmp.Or(l.Model, "-"), 40), fmt.Sprint(l.Rules),
				display.OneLine(l.Description, 60), l.ID}
		})
}

// file returns the file of an agent.
func (a *agentCommand) file(ctx context.Context, name string) (string, error) {
	var text strings.Builder
	err := a.Download(ctx, "/api/agents/"+url.PathEscape(name)+"/export", &text)
	return text.String(), err
}

func (a *agentCommand) show(ctx context.Context, args []string) error {
	e, err := a.file(ctx, args[0])
	if err == nil {
		_, err = io.WriteString(a.Env.Stdout, a.shown(e))
	}
	return err
}

// shown makes a text safe for a terminal. A file or another program gets it unchanged.
func (a *agentCommand) shown(text string) string {
	if a.Env.Interactive {
		return display.Exact(text)
	}
	return text
}

func (a *agentCommand) export(ctx context.Context, args []string) error {
	if len(args) == 1 {
		return a.show(ctx, args)
	}
	e, err := a.file(ctx, args[0])
	if err != nil {
		return err
	}
	return atomicfile.Write(args[1], []byte(e))
}

// maxAgentFile bounds a file that is imported, in bytes.
const maxAgentFile = 1 << 20

func (a *agentCommand) add(ctx context.Context, args []string) error {
	var from io.Reader = a.Env.Stdin
	name := ""
	if args[0] != "-" {
		f, err := os.Open(args[0])
		if err != nil {
			return err
		}
		defer f.Close()
		from, name = f, strings.TrimSuffix(filepath.Base(args[0]), ".md")
	}
	text, err := io.ReadAll(io.LimitReader(from, maxAgentFile+1))
	if err != nil {
		return err
	}
	if len(text) > maxAgentFile {
		return fmt.Errorf("%s has more than %d KiB, which is the limit of a file", args[0], maxAgentFile>>10)
	}
	return a.importFile(ctx, agentImport{Text: string(text), Name: name}, a.yes || args[0] == "-")
}

// agentImport is a file to import. See the route.
type agentImport struct {
	Text  string  `json:"text"`
	Name  string  `json:"name,omitempty"`
	Base  *string `json:"base,omitempty"`
	Check bool    `json:"check,omitempty"`
}

func (a *agentCommand) send(ctx context.Context, c agentImport) (done agent.Imported, err error) {
	return done, a.Send(ctx, http.MethodPost, "/api/agents/import", c, &done)
}

// importFile checks a file, shows what it changes in an agent that exists, and imports it. yes does not ask.
func (a *agentCommand) importFile(ctx context.Context, c agentImport, yes bool) error {
	c.Check = true
	checked, err := a.send(ctx, c)
	if err != nil {
		return err
	}
	for _, note := range checked.Notes {
		fmt.Fprintln(a.Env.Stderr, "note:", display.VisibleLine(note))
	}
	name := display.OneLine(checked.Name, 100)
	if checked.Diff == "" {
		_, err := fmt.Fprintf(a.Env.Stdout, "agent %s is already as in the file\n", name)
		return err
	}
	if !checked.New {
		fmt.Fprint(a.Env.Stdout, display.Exact(checked.Diff))
		if !yes && !a.confirm(name) {
			return cli.ExitCode(1)
		}
	}
	c.Check, c.Base = false, &checked.Before
	done, err := a.send(ctx, c)
	if err != nil {
		return err
	}
	verb := map[bool]string{true: "created", false: "changed"}[checked.New]
	_, err = fmt.Fprintf(a.Env.Stdout, "%s agent %s (%s)\n", verb, name, done.Record)
	return err
}

func (a *agentCommand) confirm(name string) bool {
	if !a.Env.Interactive {
		fmt.Fprintln(a.Env.Stderr, "the agent exists, and nothing was changed; to replace it, add --yes")
		return false
	}
	fmt.Fprintf(a.Env.Stdout, "Change agent %s? [y/N] ", name)
	answer, _ := bufio.NewReader(a.Env.Stdin).ReadString('\n') // no answer is no
	return strings.EqualFold(strings.TrimSpace(answer), "y")
}

// edit opens the file of an agent in an editor, and imports it. A refused file is kept, so that the person's text is
// not lost.
func (a *agentCommand) edit(ctx context.Context, args []string) error {
	e, err := a.file(ctx, args[0])
	if err != nil {
		return err
	}
	text, path, err := cli.Edit(ctx, a.Env, "agent.md", e)
	if err != nil {
		return err
	}
	c := agentImport{Text: text, Name: args[0], Base: &e}
	if err := a.importFile(ctx, c, true); err != nil {
		return fmt.Errorf("%w (your text is in %s)", err, path)
	}
	return os.RemoveAll(filepath.Dir(path))
}
