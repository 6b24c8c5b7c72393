package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"pocketcoder/bridge/push/service"
	"pocketcoder/handlers"
	"pocketcoder/handlers/policy"
	"pocketcoder/sandbox/isolation"
	"pocketcoder/web/ports"
)

const upUsage = `pocketcoder up: start everything on this machine.

It finds OpenCode and ripgrep or installs them with npm, starts the log (embedded NATS), OpenCode, the bridge to it, the
read models and the sandbox worker, says what runs where, and runs until Ctrl-C.

The built-in demo model answers if no model is configured: no provider's key in the environment, no login stored by OpenCode,
no --model and no --model-url. If the configured model cannot be used, up stops and lists the models that can.

  pocketcoder up
  pocketcoder up --workspace ~/src/project --allow 'bash: git status*'
  ANTHROPIC_API_KEY=… pocketcoder up --model anthropic/claude-sonnet-4-5
  pocketcoder up --model-url http://127.0.0.1:11434/v1 --model qwen3-coder:30b --model-context 32768

Then, in another terminal:  pocketcoder chat

On a new system it shows a one-time link that creates the first administrator, with a QR code when --url is an address that a
phone can reach. With POCKETCODER_ADMIN_EMAIL and POCKETCODER_ADMIN_PASSWORD it creates that administrator itself.
`

// upGroups are the flags of up as -h shows them.
var upGroups = []flagGroup{
	{"Basics", []string{"workspace", "data", "http", "url", "allow", "model", "model-url", "model-context", "demo"}},
	{"Models and turns", []string{"model-output", "model-price", "max-turns", "opencode"}},
	{"Network", []string{"network", "egress", "behind-proxy", "ports-url", "nats", "replicas"}},
	{"Sandbox", []string{"isolation", "expose"}},
	{"Limits of commands", []string{"memory", "processes", "file-size", "cpu-time", "open-files", "timeout"}},
	{"Notifications", []string{"push-relay", "push-allow-private"}},
	{"SSH", []string{"ssh", "authorized-keys"}},
}

// upOptions is what a person may choose.
type upOptions struct {
	data      dataDir
	http      string
	portsURL  string    // template of the addresses of ports; empty for a name below localhost
	url       string    // under which people reach the web server; empty for its address
	admin     [2]string // email and password of the first administrator; empty for a setup link
	workspace string
	nats      string
	opencode  string
	model     modelOptions
	proxied   bool // a proxy with TLS is in front
	maxTurns  int
	replicas  int
	rules     []policy.Rule
	network   handlers.NetworkMode
	egress    string // address of the egress proxy
	isolation string
	expose    paths
	limits    *commandLimits
	relay     service.Relay
	logger    *slog.Logger

	pushPrivate bool // push services may be at private addresses

	ssh            string // address of the SSH server; empty for none
	authorizedKeys string // a second authorized_keys file
}

// rules is a flag that may be given several times.
type rules []policy.Rule

func (r *rules) String() string { return "" }

func (r *rules) Set(s string) error {
	rule, err := policy.ParseRule(s)
	*r = append(*r, rule)
	return err
}

func upFlags(env environment, args []string) (upOptions, error) {
	fs := newFlags(env, "up", upUsage)
	data := dataFlag(fs, env)
	o := upOptions{}
	fs.StringVar(&o.http, "http", or(env, "POCKETCODER_HTTP", "127.0.0.1:8090"), "`address` of the web server, loopback (POCKETCODER_HTTP)")
	fs.StringVar(&o.url, "url", env.getenv("POCKETCODER_URL"), "`URL` under which phones and browsers reach the web server, such as https://code.example.org (POCKETCODER_URL)")
	fs.StringVar(&o.portsURL, "ports-url", env.getenv("POCKETCODER_PORTS_URL"), "`URL` template for ports of commands, such as https://{port}.ports.example.org, for a proxy that passes the Host header on; default http://{port}.localhost, for this machine only (POCKETCODER_PORTS_URL)")
	behind := fs.Bool("behind-proxy", env.getenv("POCKETCODER_BEHIND_PROXY") != "", "allow an address that is not loopback: a proxy in front speaks TLS (POCKETCODER_BEHIND_PROXY)")
	fs.StringVar(&o.workspace, "workspace", or(env, "POCKETCODER_WORKSPACE", "."), "`directory` the assistant works in (POCKETCODER_WORKSPACE)")
	fs.StringVar(&o.nats, "nats", env.getenv("POCKETCODER_NATS"), "`URL` of an external NATS with JetStream, instead of the embedded one (POCKETCODER_NATS)")
	fs.StringVar(&o.opencode, "opencode", env.getenv("POCKETCODER_OPENCODE"), "`path` of OpenCode, instead of finding or installing it (POCKETCODER_OPENCODE)")
	fs.IntVar(&o.replicas, "replicas", 1, "servers that keep a copy of the log: 3 with a cluster of three, 1 or 3 or 5")
	fs.IntVar(&o.maxTurns, "max-turns", 8, "turns that may run at once, across chats, of which one account gets at most three quarters; 0 is no limit")
	fs.StringVar(&o.isolation, "isolation", or(env, "POCKETCODER_ISOLATION", isolation.Auto), isolationHelp)
	fs.Var(&o.expose, "expose", exposeHelp)
	err := o.model.flags(fs, env)
	if err != nil {
		return o, wrongUsage(env, "up: %v", err)
	}
	if o.limits, err = limitFlags(fs, env); err != nil {
		return o, wrongUsage(env, "up: %v", err)
	}
	o.networkFlags(fs, env)
	o.pushFlags(fs, env)
	o.sshFlags(fs, env)
	var allow rules
	fs.Var(&allow, "allow", "`rule` that allows without asking, such as \"bash: git status*\"; may be repeated")
	args, all := helpAll(args)
	groupFlags(env, fs, upUsage, all, upGroups)
	if _, err := parse(fs, args, 0); err != nil {
		return o, err
	}
	o.proxied = *behind
	o.admin = [2]string{env.getenv("POCKETCODER_ADMIN_EMAIL"), env.getenv("POCKETCODER_ADMIN_PASSWORD")}
	o.data, o.rules = dataDir(absolute(*data)), append(allow, policy.Defaults...)
	o.workspace = absolute(o.workspace)
	o.logger = slog.New(slog.NewTextHandler(env.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if err := o.check(); err != nil {
		return o, wrongUsage(env, "up: %v", err)
	}
	if err := o.checkAuthorizedKeys(); err != nil {
		return o, err
	}
	return o, o.checkPlaces()
}

// check names the flag whose value is wrong, whatever there is on this machine.
func (o upOptions) check() error {
	host, _, err := net.SplitHostPort(o.http)
	if err != nil {
		return fmt.Errorf("--http %q: %w", o.http, err)
	}
	if ip := net.ParseIP(host); !o.proxied && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("--http %s is not a loopback address: everybody who reaches it would talk to it without TLS; put a proxy with TLS in front and say --behind-proxy", o.http)
	}
	if u, err := url.Parse(o.url); err != nil || o.url != "" && (u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || strings.Trim(u.Path, "/") != "") {
		return fmt.Errorf("--url %q: want a URL without a path, such as https://code.example.org", o.url)
	}
	if err := o.model.check(); err != nil {
		return err
	}
	if o.portsURL != "" {
		if err := ports.CheckPortsURL(o.portsURL); err != nil {
			return fmt.Errorf("--ports-url: %w", err)
		}
	}
	if err := o.limits.check(); err != nil {
		return err
	}
	if err := isolation.Known(o.isolation); err != nil {
		return fmt.Errorf("--isolation: %w", err)
	}
	if err := o.checkNetwork(); err != nil {
		return err
	}
	if err := o.checkPush(); err != nil {
		return err
	}
	if err := o.checkSSH(); err != nil {
		return err
	}
	if (o.admin[0] == "") != (o.admin[1] == "") {
		return errors.New("POCKETCODER_ADMIN_EMAIL and POCKETCODER_ADMIN_PASSWORD go together: set both or neither")
	}
	return nil
}

// checkPlaces refuses a workspace that is none, and a data directory that commands could look into, whatever links lead there.
func (o upOptions) checkPlaces() error {
	info, err := os.Stat(o.workspace)
	if err != nil {
		return fmt.Errorf("--workspace: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("--workspace %s is not a directory", o.workspace)
	}
	var real []string
	for _, path := range append([]string{string(o.data), o.workspace}, o.expose...) {
		r, ok := handlers.RealPath(path)
		if !ok {
			return fmt.Errorf("%s: cannot tell where this path leads", path)
		}
		real = append(real, r)
	}
	data, workspace, expose := real[0], real[1], real[2:]
	if rel, err := filepath.Rel(workspace, data); err == nil && filepath.IsLocal(rel) {
		return fmt.Errorf("--data %s lies in --workspace %s, where the assistant could read and write it; choose another of the two", o.data, o.workspace)
	}
	if rel, err := filepath.Rel(data, workspace); err == nil && filepath.IsLocal(rel) {
		return fmt.Errorf("--workspace %s lies in --data %s, which is for pocketcoder alone; choose another of the two", o.workspace, o.data)
	}
	if isolation.Visible(data, expose) {
		return fmt.Errorf("--data %s can be read in the sandbox, because it is among the system's programs or below --expose; choose another directory", o.data)
	}
	return nil
}

// absolute makes a path absolute. It fails only when the current directory is gone, and then opening the path says so.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

func runUp(ctx context.Context, env environment, args []string) error {
	o, err := upFlags(env, args)
	if err != nil {
		return err
	}
	err = up(ctx, env, o, func(running) {})
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// engine is the id of the one OpenCode of this process, and pool that of its sandbox workers.
const (
	engine = handlers.DefaultEngine
	pool   = "default"
)

var _ flag.Value = (*rules)(nil)
