package admin

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"pocketcoder/cmd/cli"
	"pocketcoder/cmd/client"
	"pocketcoder/cmd/printable"
	"pocketcoder/handlers/mcpserver"
	"pocketcoder/handlers/policy/display"
	"pocketcoder/handlers/record"
	"pocketcoder/web/mcpstate"
)

const mcpUsage = `pocketcoder mcp: the MCP servers whose tools the model may call. Each call still asks for a permission, as for any tool.

  pocketcoder mcp add lab 'npx -y @example/lab@1.2.3'       a command, which runs in the sandbox
  pocketcoder mcp add docs https://example.org/mcp          a remote server
  pocketcoder mcp add lab '/opt/lab --stdio' --env API_TOKEN with a secret; repeat --env for more
  pocketcoder mcp add lab /opt/lab --host api.example.org   with a host that it may reach; repeat --host for more
  pocketcoder mcp add lab /opt/lab --memory 512MiB          with limits below those of every command
  pocketcoder mcp secret lab API_TOKEN < token.txt          store the secret: the first line of stdin
  pocketcoder mcp list                                      the servers and their states
  pocketcoder mcp hosts lab --host api.example.org          replace its hosts; without --host it has no network
  pocketcoder mcp limits lab --processes 64                 replace its limits; without a flag it has none of its own
  pocketcoder mcp show lab                                  its definition, changes since the approval, last call and connections
  pocketcoder mcp approve lab 1f2e3d4c                      run it, with the definition that show printed
  pocketcoder mcp deny lab                                  refuse a server that an agent requested
  pocketcoder mcp revoke lab                                stop it

add creates a pending server. An approved server becomes pending again when its hosts, its limits, its version or one of
its tools change. Then show prints the difference, and approve accepts it. approve refuses a server whose definition has changed
since show printed it. Write a host as in a network rule: api.example.org, *.example.org or git.example.org:22. With a
URL, --env names an HTTP header, such as Authorization.

Exit status: 0; 1 when it failed, 2 for wrong usage.
`

type mcpCommand struct {
	*client.System
	env         cli.Environment
	environment names
	hosts       names
	limits      mcpserver.Limits
	reason      string
	asJSON      bool
}

// names is a flag that may be repeated.
type names []string

func (n *names) String() string { return strings.Join(*n, " ") }

func (n *names) Set(name string) error {
	*n = append(*n, name)
	return nil
}

func MCP(ctx context.Context, env cli.Environment, args []string) error {
	m := mcpCommand{env: env, environment: names{}, hosts: names{}}
	fs := cli.NewFlags(env, "mcp", mcpUsage)
	at := cli.ServerFlags(fs, env)
	fs.Var(&m.environment, "env", "add: `name` of a variable of its environment; may be repeated")
	fs.Var(&m.hosts, "host", "add, hosts: `host` that its command may reach; may be repeated")
	fs.StringVar(&m.limits.Memory, "memory", "", "add, limits: memory of its command, as `SIZE` such as 512MiB")
	fs.Int64Var(&m.limits.Processes, "processes", 0, "add, limits: `number` of processes and threads of its command")
	fs.StringVar(&m.limits.CPUTime, "cpu-time", "", "add, limits: processor time of its command, as `DURATION` such as 30m")
	fs.StringVar(&m.reason, "reason", "", "add: the purpose of the server, as `text`")
	fs.BoolVar(&m.asJSON, "json", false, "list, show: print JSON")
	return cli.RunVerb(ctx, env, fs, args, at, map[string]cli.Verb{
		"add": cli.Takes(2, 2, m.add), "secret": cli.Takes(2, 2, m.secret), "hosts": cli.Takes(1, 1, m.set("hosts", &m.hosts)),
		"limits": cli.Takes(1, 1, m.set("limits", &m.limits)), "list": cli.Takes(0, 0, m.list), "show": cli.Takes(1, 1, m.show),
		"approve": cli.Takes(1, 2, m.approve), "deny": cli.Takes(1, 1, m.decide(mcpserver.Denied)),
		"revoke": cli.Takes(1, 1, m.decide(mcpserver.Revoked)),
	}, func(s *client.System) { m.System = s })
}

func (m *mcpCommand) add(ctx context.Context, args []string) error {
	definition := "command"
	if strings.HasPrefix(args[1], "http://") || strings.HasPrefix(args[1], "https://") {
		definition = "url"
	}
	_, err := m.Create(ctx, mcpserver.Collection, map[string]any{"name": args[0], definition: args[1],
		"environment": m.environment, "hosts": m.hosts, "limits": m.limits, "reason": m.reason,
		"status": mcpserver.Pending})
	return err
}

// set replaces a field of a server with the value that the flags set.
func (m *mcpCommand) set(field string, value any) func(context.Context, []string) error {
	return func(ctx context.Context, args []string) error {
		server, err := m.find(ctx, args[0])
		if err != nil {
			return err
		}
		return m.save(ctx, server.ID, map[string]any{field: value})
	}
}

// save changes fields of a server.
func (m *mcpCommand) save(ctx context.Context, id string, fields map[string]any) error {
	return m.Update(ctx, mcpserver.Collection, id, fields)
}

func (m *mcpCommand) find(ctx context.Context, name string) (mcpserver.Stored, error) {
	all, err := m.MCPServers(ctx)
	if err != nil {
		return mcpserver.Stored{}, err
	}
	i := slices.IndexFunc(all, func(s mcpserver.Stored) bool { return s.Name == name || s.ID == name })
	if i < 0 {
		return mcpserver.Stored{}, fmt.Errorf("no MCP server has the name %q; list them with: pocketcoder mcp list", name)
	}
	return all[i], nil
}

func (m *mcpCommand) decide(status string) func(context.Context, []string) error {
	return func(ctx context.Context, args []string) error {
		server, err := m.find(ctx, args[0])
		if err != nil {
			return err
		}
		return m.save(ctx, server.ID, map[string]any{"status": status})
	}
}

// shortDefinition is how much of a definition is shown and must be given at least, in characters.
const shortDefinition = 8

// approve approves a server with the definition that was shown. Without one it shows the server.
func (m *mcpCommand) approve(ctx context.Context, args []string) error {
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
	return m.save(ctx, server.ID, map[string]any{"status": mcpserver.Approved,
		record.ShownDefinition: server.Definition})
}

func (m *mcpCommand) secret(ctx context.Context, args []string) error {
	line, err := bufio.NewReader(m.env.Stdin).ReadString('\n')
	if err != nil && err != io.EOF {
		return fmt.Errorf("read the value: %w", err)
	}
	path := "/api/mcp/" + url.PathEscape(args[0]) + "/secrets/" + url.PathEscape(args[1])
	return m.Send(ctx, http.MethodPut, path, map[string]string{"value": strings.TrimRight(line, "\r\n")}, nil)
}

func (m *mcpCommand) list(ctx context.Context, _ []string) error {
	all, err := m.MCPServers(ctx)
	if err != nil {
		return err
	}
	const empty = "no MCP servers; add one with: pocketcoder mcp add NAME COMMAND"
	const header = "NAME\tSTATE\tTOOLS\tRUNS\tPROBLEM"
	return cli.PrintList(m.env, m.asJSON, all, empty, header, func(s mcpserver.Stored) []string {
		problem := s.Problem
		if s.Difference != "" {
			problem = "it has changed; see: pocketcoder mcp show " + s.Name
		}
		return []string{printable.OneLine(s.Name, 24), s.State(), fmt.Sprint(len(s.Tools)),
			printable.OneLine(s.Command+s.URL, 50), printable.OneLine(problem, 60)}
	})
}

func (m *mcpCommand) show(ctx context.Context, args []string) error {
	s, err := m.find(ctx, args[0])
	if err != nil {
		return err
	}
	if m.asJSON {
		return cli.PrintJSON(m.env.Stdout, s)
	}
	var b strings.Builder
	for _, line := range [][2]string{
		{"name", s.Name}, {"state", s.State()}, {"reason", s.Reason}, {"command", s.Command}, {"program", strings.Join(s.Programs, ", ")}, {"url", s.URL},
		{"environment", strings.Join(s.Environment, " ")}, {"hosts", strings.Join(s.Hosts, " ")},
		{"limits", strings.Join(s.Limits.Lines(), ", ")}, {"version", s.Version}, {"problem", s.Problem},
		{"definition", s.Definition},
	} {
		if line[1] != "" {
			fmt.Fprintf(&b, "%-12s %s\n", line[0], printable.VisibleLine(line[1]))
		}
	}
	for _, t := range s.Tools {
		fmt.Fprintf(&b, "\n%s  %s\n  %s\n  %s\n", printable.VisibleLine(s.OfferedName(t.Name)), t.SHA256,
			printable.VisibleLine(t.Description), printable.VisibleLine(string(t.InputSchema)))
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
	_, err = io.WriteString(m.env.Stdout, b.String())
	return err
}

// printState prints the last call of a server, and the hosts that it reached or was refused.
func (m *mcpCommand) printState(ctx context.Context, to *strings.Builder, id string) error {
	state, err := client.Read[mcpstate.State](ctx, m.System, "/api/mcp/"+id)
	if err != nil {
		return err
	}
	if c := state.LastCall; c != nil {
		fmt.Fprintf(to, "\nLast call:\n%s %s %s (%d ms): %s\n", c.Called, printable.VisibleLine(c.Tool), c.State,
			c.DurationMS, printable.VisibleLine(c.Result))
	}
	if len(state.Connections) > 0 {
		fmt.Fprint(to, "\nConnections of the last seven days:\n")
	}
	for _, c := range state.Connections {
		what := "allowed"
		if !c.Allowed {
			what = "refused"
		}
		fmt.Fprintf(to, "%s %s %s:%d: %s\n", c.Last, what, printable.VisibleLine(c.Host), c.Port,
			printable.VisibleLine(c.Reason))
	}
	return nil
}
