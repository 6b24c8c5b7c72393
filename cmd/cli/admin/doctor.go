package admin

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"pocketcoder/cmd/cli"
	"pocketcoder/cmd/datadir"
	"pocketcoder/handlers/policy/display"
	"pocketcoder/sandbox/isolation"
)

const doctorUsage = `pocketcoder doctor: check what this machine provides, and say how to install what is missing.

  pocketcoder doctor
  pocketcoder doctor --json

Each line says ok, missing (required), optional (not required) or wrong (present but not usable).
Exit status: 0; 1 when something is missing or wrong, 2 for wrong usage.
`

type checkState string

const (
	checkOK       checkState = "ok"
	checkMissing  checkState = "missing"
	checkOptional checkState = "optional"
	checkWrong    checkState = "wrong"
)

type check struct {
	Name  string     `json:"name"`
	State checkState `json:"state"`
	Found string     `json:"found,omitempty"` // version and path, or what is wrong
	For   string     `json:"for"`             // purpose
	Get   string     `json:"get,omitempty"`   // how to install or fix it; not shown if ok
}

type doctorOptions struct {
	data      datadir.Dir
	http      string
	opencode  string
	isolation string
	nats      string // "" for the embedded server
}

func Doctor(ctx context.Context, env cli.Environment, args []string) error {
	fs := cli.NewFlags(env, "doctor", doctorUsage)
	data := cli.DataFlag(fs, env)
	o := doctorOptions{}
	fs.StringVar(&o.http, "http", cli.Variable(env, "POCKETCODER_HTTP", "127.0.0.1:8090"),
		"`address` of the web server (POCKETCODER_HTTP)")
	fs.StringVar(&o.opencode, "opencode", env.Getenv("POCKETCODER_OPENCODE"), "`path` of OpenCode (POCKETCODER_OPENCODE)")
	fs.StringVar(&o.nats, "nats", env.Getenv("POCKETCODER_NATS"), "`URL` of an external NATS (POCKETCODER_NATS)")
	fs.StringVar(&o.isolation, "isolation", cli.Variable(env, "POCKETCODER_ISOLATION", isolation.Auto), cli.IsolationHelp)
	asJSON := fs.Bool("json", false, "print a JSON list")
	if _, err := cli.Parse(fs, args, 0); err != nil {
		return err
	}
	if err := isolation.ValidateLevel(o.isolation); err != nil {
		return cli.WrongUsage(env, "doctor: --isolation: %v", err)
	}
	o.data = datadir.Dir(datadir.Absolute(*data))
	checks := doctor(ctx, o)
	print := printChecks
	if *asJSON {
		print = func(w io.Writer, checks []check) error { return cli.PrintJSON(w, checks) }
	}
	if err := print(env.Stdout, checks); err != nil {
		return err
	}
	for _, c := range checks {
		if c.State == checkMissing || c.State == checkWrong {
			return cli.ExitCode(1)
		}
	}
	return nil
}

// doctor runs all checks, in the order of a start.
func doctor(ctx context.Context, o doctorOptions) []check {
	node, npm := checkNode(ctx)
	engine, search := checkOpenCode(ctx, o, npm.State == checkOK), checkRipgrep(ctx, o, npm.State == checkOK)
	if engine.State == checkOK && search.State == checkOK { // nothing is left to install
		node, npm = node.optionalIfMissing(), npm.optionalIfMissing()
	}
	return []check{
		node, npm, engine, search,
		checkProgram(ctx, checkOptional, "git", "--version", "OpenCode's snapshots: what a turn changed, and undoing it",
			"apt install git"),
		checkTmux(ctx),
		checkSSHD(),
		checkIsolation(o.isolation),
		checkLimits(),
		checkNATS(ctx, o),
		checkData(o.data),
		checkDisk(o.data),
		checkQuarantine(o.data),
		checkHTTP(ctx, o),
		checkLosses(o.data),
		checkEvents(ctx, o.data),
		checkConsumers(ctx, o.data),
	}
}

func printChecks(w io.Writer, checks []check) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range checks {
		found := cmp.Or(c.Found, "not found")
		first, more, _ := strings.Cut(found, "\n")
		fmt.Fprintf(t, "%s\t%s\t%s\n", c.State, c.Name, display.OneLine(first, 200))
		for line := range strings.Lines(more) {
			fmt.Fprintf(t, "\t\t%s\n", display.OneLine(line, 200))
		}
		fmt.Fprintf(t, "\t\tfor %s\n", c.For)
		if c.State != checkOK && c.Get != "" {
			fmt.Fprintf(t, "\t\t→ %s\n", c.Get)
		}
	}
	return t.Flush()
}
