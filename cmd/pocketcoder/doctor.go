package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"pocketcoder/sandbox/isolation"
)

const doctorUsage = `pocketcoder doctor: check what this machine has, and say how to get the rest.

  pocketcoder doctor
  pocketcoder doctor --json

Each line says ok; missing (it is needed); optional (it works without); or wrong (it is there and something is not right).
Exit status: 0; 1 when something is missing or wrong, 2 for wrong usage.
`

// checkState is how a dependency stands.
type checkState string

const (
	checkOK       checkState = "ok"
	checkMissing  checkState = "missing"
	checkOptional checkState = "optional"
	checkWrong    checkState = "wrong"
)

// check is one thing that was looked at.
type check struct {
	Name  string     `json:"name"`
	State checkState `json:"state"`
	Found string     `json:"found,omitempty"` // version and place, or what is wrong
	For   string     `json:"for"`             // what it is needed for
	Get   string     `json:"get,omitempty"`   // how to get it, or what to do, unless it is ok
}

// doctorOptions says what is looked at.
type doctorOptions struct {
	data      dataDir
	http      string
	opencode  string
	isolation string
	nats      string // "" is the embedded server
}

func runDoctor(ctx context.Context, env environment, args []string) error {
	fs := newFlags(env, "doctor", doctorUsage)
	data := dataFlag(fs, env)
	o := doctorOptions{}
	fs.StringVar(&o.http, "http", or(env, "POCKETCODER_HTTP", "127.0.0.1:8090"), "`address` of the web server (POCKETCODER_HTTP)")
	fs.StringVar(&o.opencode, "opencode", env.getenv("POCKETCODER_OPENCODE"), "`path` of OpenCode (POCKETCODER_OPENCODE)")
	fs.StringVar(&o.nats, "nats", env.getenv("POCKETCODER_NATS"), "`URL` of an external NATS (POCKETCODER_NATS)")
	fs.StringVar(&o.isolation, "isolation", or(env, "POCKETCODER_ISOLATION", isolation.Auto), isolationHelp)
	asJSON := fs.Bool("json", false, "print a JSON list")
	if _, err := parse(fs, args, 0); err != nil {
		return err
	}
	if err := isolation.Known(o.isolation); err != nil {
		return wrongUsage(env, "doctor: --isolation: %v", err)
	}
	o.data = dataDir(absolute(*data))
	checks := doctor(ctx, o)
	print := printChecks
	if *asJSON {
		print = func(w io.Writer, checks []check) error { return printJSON(w, checks) }
	}
	if err := print(env.stdout, checks); err != nil {
		return err
	}
	for _, c := range checks {
		if c.State == checkMissing || c.State == checkWrong {
			return exitCode(1)
		}
	}
	return nil
}

// doctor looks at everything, in the order in which it is needed.
func doctor(ctx context.Context, o doctorOptions) []check {
	node, npm := checkNode(ctx)
	engine, search := checkOpenCode(ctx, o, npm.State == checkOK), checkRipgrep(ctx, o, npm.State == checkOK)
	if engine.State == checkOK && search.State == checkOK { // nothing is left to install
		node, npm = node.dispensable(), npm.dispensable()
	}
	return []check{
		node, npm, engine, search,
		checkProgram(ctx, checkOptional, "git", "--version", "OpenCode's snapshots: what a turn changed, and undoing it", "apt install git"),
		checkTmux(ctx),
		checkSSHD(),
		checkIsolation(o.isolation),
		checkNATS(ctx, o),
		checkData(o.data),
		checkDisk(o.data),
		checkHTTP(ctx, o),
	}
}

func printChecks(w io.Writer, checks []check) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range checks {
		found := c.Found
		if found == "" {
			found = "not found"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n\t\tfor %s\n", c.State, c.Name, oneLine(found, 200), c.For)
		if c.State != checkOK && c.Get != "" {
			fmt.Fprintf(t, "\t\t→ %s\n", c.Get)
		}
	}
	return t.Flush()
}
