// Package natsconf defines who may do what in NATS: it makes the identities' keys, the text of the
// server's configuration, and the embedded server itself. The same text configures an external cluster.
//
// Promises: every connection authenticates with an nkey, in-process ones too, and there is no anonymous user. Each
// account sees only what this table says, because it imports everything from other accounts as a service or a stream:
//
//	identity  account  may
//	core      APP      everything in APP: the streams, exec.run.>, exec.shell and the requests between nodes
//	observer  OPS      read EVENTS, DELTAS and BLOBS
//	worker    SBX      answer exec.run.<pool>
//	sys       SYS      the server's own events and statistics
//
// allow_responses is used nowhere: with it, a responder may publish to any reply subject that the requester chose, and
// so forge events (measured). For the same reason the observer has its own account. A request that crosses accounts
// gets a reply subject made by the server, while one inside APP could name evt.… as its reply subject, and JetStream
// itself would store its answer there as an event (measured, nats-server 2.15.2).
//
// The observer cannot create consumers. A push consumer delivers stored events to any subject that APP has a
// subscription to, and the observer's subscription to an imported subject is one, so EVENTS would store them again
// (measured, too). The same request also changes the filter of a consumer of core.
//
// A server older than the last security repairs that matter here is refused (see CheckVersion), the embedded one too.
//
// It must not know what the events mean or who runs which part; it takes the names of pools as given.
package natsconf

import (
	"context"
	_ "embed"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"text/template"
	"time"
	"unicode"

	"github.com/nats-io/nkeys"

	"pocketcoder/sandbox/wire"
)

// Identity is one kind of process that connects to NATS, with one nkey.
type Identity string

const (
	Core     Identity = "core"     // handlers, bridge, projections, web
	Observer Identity = "observer" // the nats CLI
	Worker   Identity = "worker"   // the sandbox worker
	Sys      Identity = "sys"      // the system account
)

// Identities are all of them, in the order of the configuration.
var Identities = []Identity{Core, Observer, Worker, Sys}

// ReaderAPI is the JetStream API prefix of the observer, instead of $JS.API: its account has no JetStream of its own,
// and what it imports of APP's stands here.
const ReaderAPI = "READ.API"

// InboxPrefix is the only prefix under which an identity may subscribe to replies.
func InboxPrefix(id Identity) string { return "_INBOX_" + strings.ToUpper(string(id)) }

// Config configures a server.
type Config struct {
	Name       string              // of the server: one token, unique in a cluster
	Listen     string              // host:port for clients, port 0 for any; "" for in-process connections only
	StoreDir   string              // absolute; JetStream's files
	Keys       map[Identity]string // public nkeys, of Keys.Public
	Pools      []string            // of sandbox workers
	Cluster    *Cluster            // nil for one server
	Bulk       bool                // syncs no write to disk; the caller syncs all files once the server is closed
	StopWithin time.Duration       // how long Close waits; 0 for 10 s
	Log        *slog.Logger        // receives warnings and errors of the embedded server; nil drops them

	// Check is called before the embedded server opens its files, with the directory of the streams; nil checks nothing.
	Check func(ctx context.Context, streams string) error
}

// Cluster joins servers. Name and Secret are the same on each of them.
type Cluster struct {
	Name   string
	Listen string   // host:port for the other servers
	Routes []string // host:port of the other servers
	Secret string   // one token; servers need it to join
}

//go:embed nats.conf.tmpl
var text string

var confTemplate = template.Must(template.New("nats.conf").Funcs(template.FuncMap{
	"inbox":   InboxPrefix,
	"run":     wire.RunSubject,
	"control": wire.ControlSubject,
	"caller":  wire.CallerSubject,
	"reads":   reads,
	"readAPI": func() string { return ReaderAPI },
}).Parse(text))

// readable are the streams that the observer reads; OBJ_BLOBS is behind the bucket BLOBS.
var readable = []string{"EVENTS", "DELTAS", "OBJ_BLOBS"}

// reads returns the requests of the JetStream API that change nothing.
func reads() []string {
	list := []string{"INFO", "STREAM.NAMES", "STREAM.LIST"}
	for _, s := range readable {
		list = append(list, "STREAM.INFO."+s, "STREAM.MSG.GET."+s, "DIRECT.GET."+s, "DIRECT.GET."+s+".>",
			"CONSUMER.NAMES."+s, "CONSUMER.LIST."+s, "CONSUMER.INFO."+s+".*")
	}
	return list
}

// Text returns the configuration in nats-server's format.
func (c Config) Text() (string, error) {
	if err := c.validate(); err != nil {
		return "", fmt.Errorf("write NATS configuration: %w", err)
	}
	c.Listen = anyPort(c.Listen)
	keys := map[string]string{}
	for id, key := range c.Keys {
		keys[string(id)] = key
	}
	var b strings.Builder
	if err := confTemplate.Execute(&b, struct {
		Config
		Keys map[string]string // what a template can look up
	}{c, keys}); err != nil {
		return "", fmt.Errorf("write NATS configuration: %w", err)
	}
	return b.String(), nil
}

// anyPort replaces port 0 with nats-server's notation for it.
func anyPort(listen string) string {
	if host, ok := strings.CutSuffix(listen, ":0"); ok {
		return host + ":-1"
	}
	return listen
}

// validate returns the first error of the configuration. Valid values can be quoted in the configuration as they are.
func (c Config) validate() error {
	if !wire.IsToken(c.Name) {
		return fmt.Errorf("server name %q is not 1 to 64 letters, digits, _ or -", c.Name)
	}
	if c.Listen != "" {
		if err := checkAddress(c.Listen); err != nil {
			return err
		}
	}
	if !filepath.IsAbs(c.StoreDir) || strings.ContainsAny(c.StoreDir, `"\`) ||
		strings.ContainsFunc(c.StoreDir, unicode.IsControl) {
		return fmt.Errorf("store directory %q is not an absolute path without quotes, backslashes and control characters",
			c.StoreDir)
	}
	for _, id := range Identities {
		if !nkeys.IsValidPublicUserKey(c.Keys[id]) {
			return fmt.Errorf("public key of %s is missing or not a user nkey", id)
		}
	}
	for _, name := range c.Pools {
		if !wire.IsToken(name) {
			return fmt.Errorf("pool %q is not 1 to 64 letters, digits, _ or -", name)
		}
	}
	if len(c.Pools) == 0 {
		return fmt.Errorf("a pool is needed")
	}
	if c.Cluster != nil {
		return c.Cluster.validate()
	}
	return nil
}

func (c Cluster) validate() error {
	if !wire.IsToken(c.Name) || !wire.IsToken(c.Secret) {
		return fmt.Errorf("cluster name or secret is not 1 to 64 letters, digits, _ or -")
	}
	for _, a := range append([]string{c.Listen}, c.Routes...) {
		if err := checkAddress(a); err != nil {
			return fmt.Errorf("cluster: %w", err)
		}
	}
	return nil
}

func checkAddress(a string) error {
	host, port, err := net.SplitHostPort(a)
	if err != nil || host == "" || port == "" || strings.ContainsFunc(a, func(r rune) bool {
		return !(r == '.' || r == ':' || r == '[' || r == ']' || wire.IsToken(string(r)))
	}) {
		return fmt.Errorf("address %q is not host:port", a)
	}
	return nil
}
