package cli

import (
	"context"
	"strings"

	"pocketcoder/cmd/app"
)

const serveUsage = `pocketcoder serve: run one node of several that share an external NATS.

  pocketcoder serve --nats nats://nats1:4222,nats://nats2:4222 --replicas 3 --opencode-state /shared/opencode

Roles:

  engine    OpenCode, permissions, commands and notifications. One node at a time runs them. The others wait, and the
            first of them takes over about 6 s after that node has died, or at once after it was stopped.
  web       the web server with the API. Any number of nodes.

Every node answers the command line on its machine.

Each node has a data directory of its own, with the same keys. Before the first start of a node, copy the directory keys
of the first node to it. Nodes with the role engine need the same workspace and the same --opencode-state. Without that
state, the node that takes over starts a new OpenCode session for each chat, which does not know the conversation. A node
that runs the engine and cannot renew its lease for 4 s ends. A service manager must start it again.

Do not run "up --nats" on the same NATS servers: it takes no lease, so both would run the engine.

The other flags are those of up.
`

// serveGroups are the flags of serve as -h shows them.
var serveGroups = append([]flagGroup{{"Nodes", []string{"nats", "roles", "replicas", "opencode-state", "data",
	"workspace", "http"}}}, upGroups...)

type roleList app.Roles

func (r *roleList) String() string { return strings.Join(*r, ",") }

func (r *roleList) Set(list string) error {
	roles, err := app.ParseRoles(list)
	*r = roleList(roles)
	return err
}

func Serve(ctx context.Context, env Environment, args []string) error {
	fs, o := NewFlags(env, "serve", serveUsage), app.Options{}
	if err := (*roleList)(&o.Roles).Set(Variable(env, "POCKETCODER_ROLES", "engine,web")); err != nil {
		return WrongUsage(env, "serve: POCKETCODER_ROLES: %v", err)
	}
	fs.Var((*roleList)(&o.Roles), "roles", "comma-separated `list` of the roles of this node: engine, web (POCKETCODER_ROLES)")
	fs.StringVar(&o.EngineState, "opencode-state", env.Getenv("POCKETCODER_OPENCODE_STATE"),
		"`directory` with OpenCode's sessions, which the nodes with the role engine share; default opencode in the data directory (POCKETCODER_OPENCODE_STATE)")
	if err := systemFlags(&o, env, fs, serveUsage, serveGroups, args); err != nil {
		return err
	}
	return runSystem(ctx, o)
}
