package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"time"

	"pocketcoder/cmd/app"
	"pocketcoder/cmd/datadir"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/policy"
	"pocketcoder/sandbox/isolation"
)

const upUsage = `pocketcoder up: start everything on this machine.

  pocketcoder up
  pocketcoder up --workspace ~/src/project --allow 'bash: git status*'
  ANTHROPIC_API_KEY=… pocketcoder up --model anthropic/claude-sonnet-4-5
  pocketcoder up --model-url http://127.0.0.1:11434/v1 --model qwen3-coder:30b --model-context 32768

Then, in another terminal:  pocketcoder chat

It starts the log (embedded NATS), OpenCode, the sandbox and the web server, prints what runs where, and stops everything on
Ctrl-C. It installs OpenCode and ripgrep with npm, unless it finds them.

The demo model answers if no model is configured: no key of a provider in the environment, no login that OpenCode stored, no
--model and no --model-url. If the configured model cannot be used, up stops and lists the models that can.

The first start prints a one-time link that creates the first administrator, with a QR code if a phone can reach --url.
POCKETCODER_ADMIN_EMAIL and POCKETCODER_ADMIN_PASSWORD create that administrator without the link.
`

// upGroups are the flags of up as -h shows them.
var upGroups = []flagGroup{
	{"Basics", []string{"workspace", "data", "http", "url", "allow", "model", "model-url", "model-context", "demo"}},
	{"Models and turns", []string{"model-output", "model-price", "model-catalogue", "max-turns", "max-delegates", "delegate-silence", "opencode"}},
	{"Network", []string{"network", "egress", "behind-proxy", "ports-url", "nats", "replicas", "metrics"}},
	{"Sandbox", []string{"isolation", "expose", "idle-after"}},
	{"Limits of commands", []string{"memory", "processes", "file-size", "cpu-time", "open-files", "timeout"}},
	{"Notifications", []string{"push-relay", "push-allow-private"}},
	{"SSH", []string{"ssh", "authorized-keys"}},
	{"Old chats", []string{"offload-dir", "offload-after"}},
}

// systemFlags reads the flags of up and serve.
func systemFlags(o *app.Options, env Environment, fs *flag.FlagSet, usage string, groups []flagGroup,
	args []string) error {
	data := DataFlag(fs, env)
	addressFlags(o, fs, env)
	fs.StringVar(&o.Workspace, "workspace", Variable(env, "POCKETCODER_WORKSPACE", "."),
		"`directory` the assistant works in (POCKETCODER_WORKSPACE)")
	fs.StringVar(&o.NATS, "nats", env.Getenv("POCKETCODER_NATS"),
		"`URL` of an external NATS with JetStream, instead of the embedded one (POCKETCODER_NATS)")
	fs.StringVar(&o.OpenCode, "opencode", env.Getenv("POCKETCODER_OPENCODE"),
		"`path` of OpenCode, instead of finding or installing it (POCKETCODER_OPENCODE)")
	fs.IntVar(&o.Replicas, "replicas", 1, "number of servers with a copy of the log: 1, 3 or 5; 3 for a cluster of three")
	fs.DurationVar(&o.IdleAfter, "idle-after", 30*time.Minute, "`time` without activity after which the background commands of a chat end; 0 disables it")
	fs.StringVar(&o.Isolation, "isolation", Variable(env, "POCKETCODER_ISOLATION", isolation.Auto), IsolationHelp)
	turnFlags(o, fs)
	exposeFlag(fs, &o.Expose)
	err := modelFlags(&o.Model, fs, env)
	if err != nil {
		return WrongUsage(env, "%s: %v", fs.Name(), err)
	}
	if o.Limits, err = limitFlags(fs, env); err != nil {
		return WrongUsage(env, "%s: %v", fs.Name(), err)
	}
	networkFlags(o, fs, env)
	pushFlags(o, fs, env)
	sshFlags(o, fs, env)
	if err := offloadFlags(o, fs, env); err != nil {
		return WrongUsage(env, "%s: %v", fs.Name(), err)
	}
	var allow []policy.Rule
	fs.Func("allow", "`rule` that allows without asking, such as \"bash: git status*\"; may be repeated",
		func(s string) error {
			rule, err := policy.ParseRule(s)
			allow = append(allow, rule)
			return err
		})
	args, all := helpAll(args)
	groupFlags(fs, usage, all, groups)
	if _, err := Parse(fs, args, 0); err != nil {
		return err
	}
	o.Stderr, o.Getenv = env.Stderr, env.Getenv
	o.Admin = [2]string{env.Getenv("POCKETCODER_ADMIN_EMAIL"), env.Getenv("POCKETCODER_ADMIN_PASSWORD")}
	o.Data, o.Rules = datadir.Dir(datadir.Absolute(*data)), append(allow, policy.Defaults...)
	o.Workspace = datadir.Absolute(o.Workspace)
	for _, dir := range []*string{&o.OffloadDir, &o.EngineState} {
		if *dir != "" {
			*dir = datadir.Absolute(*dir)
		}
	}
	o.Logger = slog.New(slog.NewTextHandler(env.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if err := o.Check(); err != nil {
		return WrongUsage(env, "%s: %v", fs.Name(), err)
	}
	return o.CheckPlaces()
}

// addressFlags adds the flags of the web server.
func addressFlags(o *app.Options, fs *flag.FlagSet, env Environment) {
	fs.StringVar(&o.HTTP, "http", Variable(env, "POCKETCODER_HTTP", "127.0.0.1:8090"),
		"`address` of the web server, loopback (POCKETCODER_HTTP)")
	fs.StringVar(&o.URL, "url", env.Getenv("POCKETCODER_URL"),
		"`URL` under which phones and browsers reach the web server, such as https://code.example.org "+
			"(POCKETCODER_URL)")
	fs.StringVar(&o.PortsURL, "ports-url", env.Getenv("POCKETCODER_PORTS_URL"),
		"`URL` template for ports of commands, such as https://{port}.ports.example.org, "+
			"for a proxy that keeps the Host header; default http://{port}.localhost, for this machine only (POCKETCODER_PORTS_URL)")
	fs.BoolVar(&o.Proxied, "behind-proxy", env.Getenv("POCKETCODER_BEHIND_PROXY") != "",
		"allow an address that is not loopback, because a proxy in front of it speaks TLS (POCKETCODER_BEHIND_PROXY)")
	fs.StringVar(&o.Metrics, "metrics", env.Getenv("POCKETCODER_METRICS"),
		"`address` at which Prometheus reads /metrics, without a login; none when empty (POCKETCODER_METRICS)")
}

// turnFlags adds the limits of turns and delegates.
func turnFlags(o *app.Options, fs *flag.FlagSet) {
	fs.IntVar(&o.MaxTurns, "max-turns", 8, "maximum number of turns that run at once; one account gets at most three quarters "+
		"of them; 0 disables the limit")
	fs.IntVar(&o.MaxDelegates, "max-delegates", 32, "maximum number of delegates that run at once, in all chats")
	fs.DurationVar(&o.DelegateSilence, "delegate-silence", 10*time.Minute,
		"`time` without an event after which a running delegate is reported to its parent")
	FormerFlag(fs, "max-workers", "max-delegates")
	FormerFlag(fs, "worker-silence", "delegate-silence")
}

func Up(ctx context.Context, env Environment, args []string) error {
	o := app.Options{}
	if err := systemFlags(&o, env, NewFlags(env, "up", upUsage), upUsage, upGroups, args); err != nil {
		return err
	}
	return runSystem(ctx, o)
}

// runSystem runs a system until it is stopped.
func runSystem(ctx context.Context, o app.Options) error {
	s, err := app.New(ctx, o)
	if err == nil {
		err = s.Run(ctx, func(datadir.Running) {})
	}
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// networkFlags adds the flags about the network of commands.
func networkFlags(o *app.Options, fs *flag.FlagSet, env Environment) {
	fs.StringVar((*string)(&o.Network), "network", Variable(env, "POCKETCODER_NETWORK", string(permission.NetworkOff)),
		"default network access of commands: off, ask (a person decides per host) or allow (all public hosts on ports 80 and 443); rules come first (POCKETCODER_NETWORK)")
	fs.StringVar(&o.Egress, "egress", Variable(env, "POCKETCODER_EGRESS", "127.0.0.1:0"),
		"`address` of the egress proxy of commands and OpenCode; only workers should be able to reach it (POCKETCODER_EGRESS)")
}

// pushFlags adds the flags about notifications. The relay's secret has no flag, because other users of the machine can
// see flags.
func pushFlags(o *app.Options, fs *flag.FlagSet, env Environment) {
	fs.StringVar(&o.Relay.URL, "push-relay", env.Getenv("POCKETCODER_PUSH_RELAY"),
		"`URL` of the relay that forwards notifications to Firebase; its secret is in POCKETCODER_PUSH_RELAY_SECRET (POCKETCODER_PUSH_RELAY)")
	fs.BoolVar(&o.PushPrivate, "push-allow-private", env.Getenv("POCKETCODER_PUSH_ALLOW_PRIVATE") != "",
		"allow push services, Bot API servers, mail servers and webhook targets at private and loopback addresses, with http too (POCKETCODER_PUSH_ALLOW_PRIVATE)")
	o.Relay.Secret = env.Getenv("POCKETCODER_PUSH_RELAY_SECRET")
}

// sshFlags adds the flags of SSH access to the viewer.
func sshFlags(o *app.Options, fs *flag.FlagSet, env Environment) {
	fs.StringVar(&o.SSH, "ssh", env.Getenv("POCKETCODER_SSH"),
		"`address` of an SSH server that runs \"attach\" for the keys of \"pocketcoder key\", such as 0.0.0.0:2222; any address is allowed; none when empty (POCKETCODER_SSH)")
	fs.StringVar(&o.AuthorizedKeys, "authorized-keys", env.Getenv("POCKETCODER_AUTHORIZED_KEYS"),
		"`file` to write the keys to as well, for an sshd of your own on this machine; not one with keys of yours (POCKETCODER_AUTHORIZED_KEYS)")
}

const defaultOffloadAfter = 90 * 24 * time.Hour

// offloadFlags adds the flags about the contents of archived chats.
func offloadFlags(o *app.Options, fs *flag.FlagSet, env Environment) (err error) {
	o.OffloadAfter = defaultOffloadAfter
	if text := env.Getenv("POCKETCODER_OFFLOAD_AFTER"); text != "" {
		if o.OffloadAfter, err = time.ParseDuration(text); err != nil {
			return fmt.Errorf("POCKETCODER_OFFLOAD_AFTER: %w", err)
		}
	}
	fs.StringVar(&o.OffloadDir, "offload-dir", env.Getenv("POCKETCODER_OFFLOAD_DIR"),
		"`directory` to which outputs, changed files and diffs of archived chats are moved, and from which they are read; none when empty (POCKETCODER_OFFLOAD_DIR)")
	fs.DurationVar(&o.OffloadAfter, "offload-after", o.OffloadAfter,
		"time without a change after which the contents of an archived chat are moved (POCKETCODER_OFFLOAD_AFTER)")
	return nil
}
