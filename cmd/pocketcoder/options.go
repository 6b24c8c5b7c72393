package main

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

	"pocketcoder/bridge/opencode"
	"pocketcoder/bridge/push/service"
	"pocketcoder/bridge/ssh"
	"pocketcoder/handlers"
	"pocketcoder/handlers/policy"
	"pocketcoder/sandbox/isolation"
	"pocketcoder/web/ports"
)

// upOptions say what the system works on, and how it is reached.
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
	expose    []string // directories that the sandbox shows besides the workspace and the system's programs
	limits    *commandLimits
	relay     service.Relay
	logger    *slog.Logger
	stderr    io.Writer           // where the progress of the start is shown, and what the worker prints
	getenv    func(string) string // finds the model provider that is set up for OpenCode

	pushPrivate bool // push services may be at private addresses

	ssh            string // address of the SSH server; empty for none
	authorizedKeys string // a second authorized_keys file
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
	if err := o.checkAuthorizedKeys(); err != nil {
		return err
	}
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

// engine is the id of the one OpenCode of this process, and pool that of its sandbox workers.
const (
	engine = handlers.DefaultEngine
	pool   = "default"
)

func (o upOptions) checkNetwork() error {
	switch o.network {
	case handlers.NetworkOff, handlers.NetworkAsks, handlers.NetworkOpen:
	default:
		return fmt.Errorf("--network %q: want off, ask or allow", o.network)
	}
	if option := o.networkOption(); o.isolation == string(isolation.Landlock) && option != "" {
		return fmt.Errorf("commands have no network at --isolation landlock, and %s needs one; use --isolation bwrap", option)
	}
	host, port, err := net.SplitHostPort(o.egress)
	if err != nil {
		return fmt.Errorf("--egress %q: %w", o.egress, err)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("--egress %q: want a port of 0 to 65535", o.egress)
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		return fmt.Errorf("--egress %q: name the one address at which workers reach it, and nobody else should", o.egress)
	}
	return nil
}

// sandboxNetwork is the network of commands that the sandbox keeps from the host's network; empty where it does not.
func (o upOptions) sandboxNetwork() handlers.NetworkMode {
	switch o.isolation {
	case string(isolation.None), string(isolation.Container):
		return ""
	}
	return o.network
}

// networkOption returns the flag that lets commands reach a host, or an empty string.
func (o upOptions) networkOption() string {
	if o.network != handlers.NetworkOff {
		return "--network " + string(o.network)
	}
	for _, r := range o.rules {
		if r.Permission == "network" && r.Action != policy.Deny {
			return fmt.Sprintf("--allow '%s'", r)
		}
	}
	return ""
}

func (o upOptions) checkPush() error {
	u, err := url.Parse(o.relay.URL)
	if err != nil || o.relay.URL != "" && (u.Host == "" || u.Scheme != "https" && u.Scheme != "http") {
		return errors.New("--push-relay: want a URL such as https://relay.example.org/push")
	}
	return nil
}

// reached is the URL under which people reach the web server, which listens at address.
func (o upOptions) reached(address string) string {
	if o.url != "" {
		return strings.TrimSuffix(o.url, "/")
	}
	return "http://" + address
}

// portTemplate is the template of the addresses of ports, when the web server listens at address. Behind a proxy there is none
// unless the operator names one: only the operator knows which names lead here.
func (o upOptions) portTemplate(address string) string {
	if o.portsURL != "" || o.proxied {
		return o.portsURL
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return ""
	}
	return "http://{port}.localhost:" + port
}

// hosts are the names besides those of loopback under which the web server is asked.
func (o upOptions) hosts() []string {
	if u, err := url.Parse(o.url); err == nil && u.Hostname() != "" {
		return []string{u.Hostname()}
	}
	return nil
}

func (o upOptions) checkSSH() error {
	if o.isolation == string(isolation.None) && (o.ssh != "" || o.authorizedKeys != "") {
		return errors.New("--ssh and --authorized-keys do not go with --isolation none: whoever has a key would have a shell of yours on this machine")
	}
	if o.ssh != "" {
		if _, _, err := net.SplitHostPort(o.ssh); err != nil {
			return fmt.Errorf("--ssh %q: %w", o.ssh, err)
		}
	}
	return nil
}

// checkAuthorizedKeys refuses a file that has somebody else's keys: they would be lost, and with them the way in.
func (o upOptions) checkAuthorizedKeys() error {
	if o.authorizedKeys == "" {
		return nil
	}
	if _, err := os.Stat(filepath.Dir(o.authorizedKeys)); err != nil {
		return fmt.Errorf("--authorized-keys: make its directory first: %w", err)
	}
	if err := ssh.Ours(o.authorizedKeys); err != nil {
		return fmt.Errorf("--authorized-keys: %w; name a file of its own, such as ~/.ssh/authorized_keys_pocketcoder, and let your sshd read both: AuthorizedKeysFile .ssh/authorized_keys .ssh/authorized_keys_pocketcoder", err)
	}
	return nil
}

// modelOptions say which model answers.
type modelOptions struct {
	name    string
	url     string         // base URL of an OpenAI-compatible server; empty for a provider that OpenCode knows
	key     string         // for url
	context int            // tokens, 0 for what the server says
	output  int            // tokens
	price   opencode.Price // of a million tokens
	demo    bool
}

// check names the flag whose value is wrong.
func (m modelOptions) check() error {
	if m.context < 0 || m.output < 0 {
		return errors.New("--model-context and --model-output: want a number of tokens, or 0 for the default")
	}
	if m.url == "" {
		if m.context+m.output > 0 || m.price != (opencode.Price{}) {
			return errors.New("--model-context, --model-output and --model-price are for a model at --model-url; OpenCode knows the values of its own providers")
		}
		if m.name != "" && !strings.Contains(strings.Trim(m.name, "/"), "/") {
			return fmt.Errorf("--model %q: want provider/model, such as anthropic/claude-sonnet-4-5, or --model-url for a server of your own", m.name)
		}
		return nil
	}
	if err := opencode.CheckBaseURL(m.url); err != nil {
		return fmt.Errorf("--model-url: %w", err)
	}
	return nil
}
