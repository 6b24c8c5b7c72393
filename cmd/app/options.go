package app

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"pocketcoder/bridge/opencode/provider"
	"pocketcoder/bridge/push"
	"pocketcoder/bridge/ssh"
	"pocketcoder/cmd/datadir"
	"pocketcoder/events"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/permission"
	workspaces "pocketcoder/handlers/permission/workspace"
	"pocketcoder/handlers/policy"
	"pocketcoder/sandbox/isolation"
	"pocketcoder/sandbox/limit"
	"pocketcoder/web/ports"
)

type Options struct {
	Data            datadir.Dir
	HTTP            string
	PortsURL        string    // URL template of ports; empty for names below localhost
	URL             string    // public URL; empty for the address of the web server
	Admin           [2]string // email and password of the first administrator; empty for a setup link
	Workspace       string
	Projects        string // directory below which administrators may choose directories of projects; empty for none
	NATS            string
	Roles           Roles // of a node that shares NATS with others; nil for the whole system
	OpenCode        string
	Model           ModelOptions
	Proxied         bool // a proxy with TLS is in front
	MaxTurns        int
	MaxDelegates    int           // that run at a time, in all chats; 0 for the default
	DelegateSilence time.Duration // without an event, after which a delegate is reported; 0 for the default
	IdleAfter       time.Duration // without activity, after which a chat's background commands end; 0 for never
	Replicas        int
	Rules           []policy.Rule
	Network         permission.NetworkMode
	Egress          string // address of the egress proxy
	Isolation       string
	Expose          []string // further directories that the sandbox can read
	Limits          *WorkerLimits
	Relay           push.Relay
	Logger          *slog.Logger
	Stderr          io.Writer           // for the progress of the start, and the output of the worker
	Getenv          func(string) string // environment, which may configure a model provider for OpenCode

	OffloadDir   string        // directory for contents of archived chats; empty for none
	OffloadAfter time.Duration // since the last change of an archived chat

	EngineState string        // directory with OpenCode's files; empty for one in Data
	EngineIdle  time.Duration // without work, after which an engine stops
	MaxEngines  int           // that run at a time; 0 for no limit
	// push services, Bot API servers, mail servers and webhook targets may be at private addresses
	PushPrivate bool

	Metrics string // address at which Prometheus reads metrics without a login; empty for none

	SSH            string // address of the SSH server; empty for none
	AuthorizedKeys string // a second authorized_keys file
}

// engineMemory is what one engine takes, with a margin: OpenCode after a day of work, its language servers and the
// sandbox worker.
const engineMemory = 3 << 29 // 1.5 GiB

// DefaultMaxEngines returns how many engines fit into the memory of this machine, at least one.
func DefaultMaxEngines() int { return max(1, int(limit.TotalMemory()/engineMemory)) }

// Check returns an error that names the first invalid flag. It does not look at the machine.
func (o Options) Check() error {
	host, _, err := net.SplitHostPort(o.HTTP)
	if err != nil {
		return fmt.Errorf("--http %q: %w", o.HTTP, err)
	}
	if ip := net.ParseIP(host); !o.Proxied && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("--http %s is not a loopback address, and the server has no TLS of its own; put a proxy with TLS in front of it and set --behind-proxy", o.HTTP)
	}
	if _, _, err := net.SplitHostPort(o.Metrics); o.Metrics != "" && err != nil {
		return fmt.Errorf("--metrics %q: %w", o.Metrics, err)
	}
	if u, err := url.Parse(o.URL); err != nil || o.URL != "" &&
		(u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || strings.Trim(u.Path, "/") != "") {
		return fmt.Errorf("--url %q: want a URL without a path, such as https://code.example.org", o.URL)
	}
	if err := o.Model.check(); err != nil {
		return err
	}
	if o.PortsURL != "" {
		if err := ports.CheckPortsURL(o.PortsURL); err != nil {
			return fmt.Errorf("--ports-url: %w", err)
		}
	}
	if err := o.Limits.Check(); err != nil {
		return err
	}
	if o.EngineIdle <= 0 {
		return fmt.Errorf("--engine-idle %s: want a time above 0, such as 15m", o.EngineIdle)
	}
	if o.MaxEngines < 0 {
		return fmt.Errorf("--max-engines %d: want 0 for no limit, or a number above it", o.MaxEngines)
	}
	if err := isolation.ValidateLevel(o.Isolation); err != nil {
		return fmt.Errorf("--isolation: %w", err)
	}
	if err := o.checkNetwork(); err != nil {
		return err
	}
	if err := o.checkRoles(); err != nil {
		return err
	}
	if err := o.checkPush(); err != nil {
		return err
	}
	if err := o.checkSSH(); err != nil {
		return err
	}
	if (o.Admin[0] == "") != (o.Admin[1] == "") {
		return errors.New("POCKETCODER_ADMIN_EMAIL and POCKETCODER_ADMIN_PASSWORD go together: set both or neither")
	}
	return nil
}

// CheckPlaces returns an error if the workspace is not a directory, or if commands could read the data directory. It
// resolves symlinks.
func (o Options) CheckPlaces() error {
	if err := o.checkAuthorizedKeys(); err != nil {
		return err
	}
	info, err := os.Stat(o.Workspace)
	if err != nil {
		return fmt.Errorf("--workspace: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("--workspace %s is not a directory", o.Workspace)
	}
	var real []string
	for _, path := range append([]string{string(o.Data), o.Workspace}, o.Expose...) {
		r, ok := workspaces.RealPath(path)
		if !ok {
			return fmt.Errorf("%s: cannot tell where this path leads", path)
		}
		real = append(real, r)
	}
	data, workspace, expose := real[0], real[1], real[2:]
	if rel, err := filepath.Rel(workspace, data); err == nil && filepath.IsLocal(rel) {
		return fmt.Errorf("--data %s lies in --workspace %s, where the assistant could read and write it; choose another of the two", o.Data, o.Workspace)
	}
	if rel, err := filepath.Rel(data, workspace); err == nil && filepath.IsLocal(rel) {
		return fmt.Errorf("--workspace %s lies in --data %s, which is for pocketcoder alone; choose another of the two",
			o.Workspace, o.Data)
	}
	if isolation.Visible(data, expose) {
		return fmt.Errorf("--data %s can be read in the sandbox, because it is among the system's programs or below --expose; choose another directory", o.Data)
	}
	if info, err := os.Stat(o.Projects); o.Projects != "" && (err != nil || !info.IsDir()) {
		return fmt.Errorf("--projects %s is not a directory", o.Projects)
	}
	engine := checkHidden("--opencode-state", o.EngineState, workspace, expose)
	if info, err := os.Stat(o.OffloadDir); o.OffloadDir != "" && (err != nil || !info.IsDir()) {
		return fmt.Errorf("--offload-dir %s is not a directory", o.OffloadDir)
	}
	return errors.Join(checkHidden("--offload-dir", o.OffloadDir, workspace, expose), engine)
}

// checkProject returns an error if commands in a directory, which has no symlinks, could read what is for PocketCoder
// alone, or if the commands of each project could read the directory.
func (o Options) checkProject(directory string) error {
	var exposed []string
	for _, dir := range o.Expose {
		if real, ok := workspaces.RealPath(dir); ok {
			exposed = append(exposed, real)
		}
	}
	if isolation.Visible(directory, exposed) {
		return errors.New("the commands of each project can read it, because it is among the system's programs or below --expose")
	}
	for _, dir := range []string{string(o.Data), o.EngineState, o.OffloadDir} {
		if dir == "" {
			continue
		}
		real, ok := workspaces.RealPath(dir)
		if !ok {
			return fmt.Errorf("cannot tell where %s leads", dir)
		}
		if within(directory, real) || within(real, directory) {
			return fmt.Errorf("it must neither contain nor lie in %s, which only PocketCoder may use", dir)
		}
	}
	return nil
}

// checkHidden returns an error if commands could read a path. It ignores an empty path.
func checkHidden(flag, path, workspace string, expose []string) error {
	if path == "" {
		return nil
	}
	real, ok := workspaces.RealPath(path)
	if !ok {
		return fmt.Errorf("%s %s: cannot tell where this path leads", flag, path)
	}
	for _, paths := range [][2]string{{workspace, real}, {real, workspace}} {
		if rel, err := filepath.Rel(paths[0], paths[1]); err == nil && filepath.IsLocal(rel) {
			return fmt.Errorf("%s %s must not be in --workspace %s, nor the workspace in it; choose another directory", flag,
				path, workspace)
		}
	}
	if isolation.Visible(real, expose) {
		return fmt.Errorf("%s %s can be read in the sandbox; choose another directory", flag, path)
	}
	return nil
}

// firstProject is the project of --workspace. Its engine has the same id.
const firstProject = chat.DefaultEngine

// Pool is the pool of the sandbox workers. Each serves one project.
const Pool = "default"

func (o Options) checkNetwork() error {
	switch o.Network {
	case permission.NetworkOff, permission.NetworkAsks, permission.NetworkOpen:
	default:
		return fmt.Errorf("--network %q: want off, ask or allow", o.Network)
	}
	if option := o.networkOption(); o.Isolation == string(isolation.Landlock) && option != "" {
		return fmt.Errorf("commands have no network at --isolation landlock, and %s needs one; use --isolation bwrap", option)
	}
	host, port, err := net.SplitHostPort(o.Egress)
	if err != nil {
		return fmt.Errorf("--egress %q: %w", o.Egress, err)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("--egress %q: want a port of 0 to 65535", o.Egress)
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		return fmt.Errorf("--egress %q: want one address of this machine, which only the workers can reach", o.Egress)
	}
	return nil
}

// sandboxNetwork is the network of commands that the sandbox keeps from the host's network; empty where it does not.
func (o Options) sandboxNetwork() permission.NetworkMode {
	switch o.Isolation {
	case string(isolation.None), string(isolation.Container):
		return ""
	}
	return o.Network
}

// networkOption returns the flag that gives commands network access, "" for none.
func (o Options) networkOption() string {
	if o.Network != permission.NetworkOff {
		return "--network " + string(o.Network)
	}
	for _, r := range o.Rules {
		if r.Permission == events.KindNetwork && r.Action != policy.Deny {
			return fmt.Sprintf("--allow '%s'", r)
		}
	}
	return ""
}

func (o Options) checkPush() error {
	u, err := url.Parse(o.Relay.URL)
	if err != nil || o.Relay.URL != "" && (u.Host == "" || u.Scheme != "https" && u.Scheme != "http") {
		return errors.New("--push-relay: want a URL such as https://relay.example.org/push")
	}
	return nil
}

// publicURL returns the URL under which people reach the web server, which listens at address.
func (o Options) publicURL(address string) string {
	if o.URL != "" {
		return strings.TrimSuffix(o.URL, "/")
	}
	return "http://" + address
}

// portTemplate returns the URL template of ports, when the web server listens at address. Behind a proxy it is empty
// unless the operator sets it, because only the operator knows which names lead here.
func (o Options) portTemplate(address string) string {
	if o.PortsURL != "" || o.Proxied {
		return o.PortsURL
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return ""
	}
	return "http://{port}.localhost:" + port
}

// hosts returns the names, besides loopback names, under which the web server is reached.
func (o Options) hosts() []string {
	if u, err := url.Parse(o.URL); err == nil && u.Hostname() != "" {
		return []string{u.Hostname()}
	}
	return nil
}

func (o Options) checkSSH() error {
	if o.Isolation == string(isolation.None) && (o.SSH != "" || o.AuthorizedKeys != "") {
		return errors.New("--ssh and --authorized-keys need an isolation level other than none: without isolation, every SSH key would open a shell of your user on this machine")
	}
	if o.SSH != "" {
		if _, _, err := net.SplitHostPort(o.SSH); err != nil {
			return fmt.Errorf("--ssh %q: %w", o.SSH, err)
		}
	}
	return nil
}

// checkAuthorizedKeys returns an error if the file has keys that PocketCoder did not write. It would overwrite them,
// and their owners could not log in any more.
func (o Options) checkAuthorizedKeys() error {
	if o.AuthorizedKeys == "" {
		return nil
	}
	if _, err := os.Stat(filepath.Dir(o.AuthorizedKeys)); err != nil {
		return fmt.Errorf("--authorized-keys: make its directory first: %w", err)
	}
	if err := ssh.CheckOwn(o.AuthorizedKeys); err != nil {
		return fmt.Errorf("--authorized-keys: %w; name a file of its own, such as ~/.ssh/authorized_keys_pocketcoder, and let your sshd read both: AuthorizedKeysFile .ssh/authorized_keys .ssh/authorized_keys_pocketcoder", err)
	}
	return nil
}

type ModelOptions struct {
	Name    string
	URL     string         // base URL of an OpenAI-compatible server; empty for a provider that OpenCode knows
	Key     string         // for URL
	Context int            // in tokens; 0 for the server's value
	Output  int            // tokens
	Price   provider.Price // of a million tokens of the model at URL, or of the demo model
	Demo    bool

	Catalogue string // path of the file with the providers and models that OpenCode knows; empty for OpenCode's own
}

// check returns an error that names the first invalid flag.
func (m ModelOptions) check() error {
	if m.Context < 0 || m.Output < 0 {
		return errors.New("--model-context and --model-output: want a number of tokens, or 0 for the default")
	}
	if m.URL == "" {
		if m.Context+m.Output > 0 || m.Price != (provider.Price{}) && !m.Demo {
			return errors.New("--model-context, --model-output and --model-price are for a model at --model-url, and --model-price also for --demo; OpenCode knows the values of its own providers")
		}
		if m.Name != "" && !strings.Contains(strings.Trim(m.Name, "/"), "/") {
			return fmt.Errorf("--model %q: want provider/model, such as anthropic/claude-sonnet-4-5, or --model-url for a server of your own", m.Name)
		}
		return nil
	}
	if err := provider.CheckBaseURL(m.URL); err != nil {
		return fmt.Errorf("--model-url: %w", err)
	}
	return nil
}
