package admin

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"

	"pocketcoder/cmd/cli"
	"pocketcoder/cmd/client"
	"pocketcoder/handlers/mcpserver"
	"pocketcoder/handlers/policy/display"
	"pocketcoder/handlers/record"
	"pocketcoder/web/routes"
)

const mcpUsage = `
  pocketcoder mcp add lab 'npx -y @example/lab@1.2.3'       a command, which runs in the sandbox
  pocketcoder mcp add docs https://example.org/mcp          a remote server
  pocketcoder mcp add lab '/opt/lab --stdio' --env API_TOKEN with a secret; repeat --env for more
  pocketcoder mcp add lab /opt/lab --host api.example.org   with a host that it may reach; repeat --host for more
  pocketcoder mcp add lab /opt/lab --memory 512MiB          with limits below those of every command
  pocketcoder mcp secret lab API_TOKEN < token.txt          store the secret: the first line of stdin
  pocketcoder mcp list                                      the servers and their states
  pocketcoder mcp set lab --host api.example.org            replace its hosts; with --host "" it has no network
  pocketcoder mcp set lab --processes 64                    change one of its limits
  pocketcoder mcp show lab                                  its definition, changes since the approval, last call and connections
  pocketcoder mcp approve lab 1f2e3d4c                      run it, with the definition that show printed
  pocketcoder mcp deny lab                                  refuse a server that an agent requested
  pocketcoder mcp revoke lab                                stop it

add creates a pending server. An approved server becomes pending again when its hosts, its limits, its version or one of
its tools change. Then show prints the difference, and approve accepts it. approve refuses a server whose definition has
changed since show printed it. Write a host as in a network rule: api.example.org, *.example.org or git.example.org:22.
With a URL, --env names an HTTP header, such as Authorization. The model may call the tools of an approved server. Each
call still needs a permission, as for any tool.
`

// MCP is the command mcp.
var MCP = cli.Group{Name: "mcp", Usage: mcpUsage, Flags: map[string]string{"environment": "env", "hosts": "host"},
	Own: func(r *cli.Records, _ *flag.FlagSet) map[string]cli.Verb {
		m := mcpCommand{r}
		return map[string]cli.Verb{"add": cli.Takes(2, 2, m.add), "secret": cli.Takes(2, 2, m.secret),
			"hosts": cli.Former(cli.Takes(1, 1, m.replace("hosts", []string{}))), "limits": cli.Former(cli.Takes(1, 1, m.replace("limits", mcpserver.Limits{}))),
			"list": cli.Takes(0, 0, m.list), "show": cli.Takes(1, 1, m.show), "approve": cli.Takes(1, 2, m.approve),
			"deny": cli.Takes(1, 1, m.decide(mcpserver.Denied)), "revoke": cli.Takes(1, 1, m.decide(mcpserver.Revoked))}
	}}

type mcpCommand struct{ *cli.Records }

func (m mcpCommand) add(ctx context.Context, args []string) error {
	definition := "command"
	if strings.HasPrefix(args[1], "http://") || strings.HasPrefix(args[1], "https://") {
		definition = "url"
	}
	set, err := m.Fields(ctx)
	if err != nil {
		return err
	}
	fields := map[string]any{"environment": []string{}, "hosts": []string{}, "limits": mcpserver.Limits{}}
	maps.Copy(fields, set)
	fields["name"], fields[definition], fields["status"] = args[0], args[1], mcpserver.Pending
	_, err = m.Create(ctx, mcpserver.Collection, fields)
	return err
}

// replace returns the former verb that replaces a field by what the flags set.
func (m mcpCommand) replace(field string, empty any) func(context.Context, []string) error {
	return func(ctx context.Context, args []string) error {
		set, err := m.Fields(ctx)
		if _, given := set[field]; !given && err == nil {
			set[field] = empty
		}
		if err != nil {
			return err
		}
		return m.change(ctx, args[0], set)
	}
}

// change changes fields of a server.
func (m mcpCommand) change(ctx context.Context, name string, fields map[string]any) error {
	server, err := m.find(ctx, name)
	if err != nil {
		return err
	}
	return m.Update(ctx, mcpserver.Collection, server.ID, fields)
}

func (m mcpCommand) find(ctx context.Context, name string) (mcpserver.Stored, error) {
	return cli.FindAs[mcpserver.Stored](ctx, m.Records, name)
}

func (m mcpCommand) decide(status string) func(context.Context, []string) error {
	return func(ctx context.Context, args []string) error {
		return m.change(ctx, args[0], map[string]any{"status": status})
	}
}

// shortDefinition is how much of a definition is shown and must be given at least, in characters.
const shortDefinition = 8

// approve approves a server with the definition that was shown. Without one it shows the server.
func (m mcpCommand) approve(ctx context.Context, args []string) error {
	server, err := m.find(ctx, args[0])
	if err != nil {
		return err
	}
	switch now := server.Definition; {
	case now == "": // another gateway runs it
	case len(args) == 1:
		if err := m.show(ctx, args); err != nil {
			return err
		}
		return fmt.Errorf("nothing is approved yet; to approve this definition: pocketcoder mcp approve %s %s", server.Name,
			now[:shortDefinition])
	case len(args[1]) < shortDefinition || !strings.HasPrefix(now, args[1]):
		return fmt.Errorf("the definition of the MCP server %s is not %q; show it with: pocketcoder mcp show %[1]s",
			server.Name, args[1])
	}
	return m.Update(ctx, mcpserver.Collection, server.ID, map[string]any{"status": mcpserver.Approved,
		record.ShownDefinition: server.Definition})
}

func (m mcpCommand) secret(ctx context.Context, args []string) error {
	line, err := bufio.NewReader(m.Env.Stdin).ReadString('\n')
	if err != nil && err != io.EOF {
		return fmt.Errorf("read the value: %w", err)
	}
	path := "/api/mcp/" + url.PathEscape(args[0]) + "/secrets/" + url.PathEscape(args[1])
	return m.Send(ctx, http.MethodPut, path, map[string]string{"value": strings.TrimRight(line, "\r\n")}, nil)
}

func (m mcpCommand) list(ctx context.Context, _ []string) error {
	all, err := m.MCPServers(ctx)
	if err != nil {
		return err
	}
	const empty = "no MCP servers; add one with: pocketcoder mcp add NAME COMMAND"
	const header = "NAME\tSTATE\tTOOLS\tRUNS\tPROBLEM"
	return cli.PrintList(m.Env, m.AsJSON, all, empty, header, func(s mcpserver.Stored) []string {
		problem := s.Problem
		if s.Difference != "" {
			problem = "it has changed; see: pocketcoder mcp show " + s.Name
		}
		return []string{display.OneLine(s.Name, 24), s.State(), fmt.Sprint(len(s.Tools)),
			display.OneLine(s.Command+s.URL, 50), display.OneLine(problem, 60)}
	})
}

func (m mcpCommand) show(ctx context.Context, args []string) error {
	s, err := m.find(ctx, args[0])
	if err != nil {
		return err
	}
	if m.AsJSON {
		return cli.PrintJSON(m.Env.Stdout, s)
	}
	var b strings.Builder
	for _, line := range [][2]string{
		{"name", s.Name}, {"state", s.State()}, {"reason", s.Reason}, {"command", s.Command}, {"program", strings.Join(s.Programs, ", ")}, {"url", s.URL},
		{"environment", strings.Join(s.Environment, " ")}, {"hosts", strings.Join(s.Hosts, " ")},
		{"limits", strings.Join(s.Limits.Lines(), ", ")}, {"version", s.Version}, {"problem", s.Problem},
		{"definition", s.Definition},
	} {
		if line[1] != "" {
			fmt.Fprintf(&b, "%-12s %s\n", line[0], display.VisibleLine(line[1]))
		}
	}
	for _, t := range s.Tools {
		fmt.Fprintf(&b, "\n%s  %s\n  %s\n  %s\n", display.VisibleLine(s.OfferedName(t.Name)), t.SHA256,
			display.VisibleLine(t.Description), display.VisibleLine(string(t.InputSchema)))
	}
	if s.NotOffered != "" {
		fmt.Fprintf(&b, "\nNot offered:\n%s\n", display.Exact(s.NotOffered))
	}
	if s.Difference != "" {
		fmt.Fprintf(&b, "\nChanged since the approval:\n%s\n", display.Exact(s.Difference))
	}
	if err := m.printState(ctx, &b, s.ID); err != nil {
		return err
	}
	_, err = io.WriteString(m.Env.Stdout, b.String())
	return err
}

// printState prints the last call of a server, and the hosts that it reached or was refused.
func (m mcpCommand) printState(ctx context.Context, to *strings.Builder, id string) error {
	state, err := client.Read[routes.MCPState](ctx, m.System, "/api/mcp/"+id)
	if err != nil {
		return err
	}
	if c := state.LastCall; c != nil {
		fmt.Fprintf(to, "\nLast call:\n%s %s %s (%d ms): %s\n", c.Called, display.VisibleLine(c.Tool), c.State,
			c.DurationMS, display.VisibleLine(c.Result))
	}
	if len(state.Connections) > 0 {
		fmt.Fprint(to, "\nConnections of the last seven days:\n")
	}
	for _, c := range state.Connections {
		what := "allowed"
		if !c.Allowed {
			what = "refused"
		}
		fmt.Fprintf(to, "%s %s %s:%d: %s\n", c.Last, what, display.VisibleLine(c.Host), c.Port,
			display.VisibleLine(c.Reason))
	}
	return nil
}
