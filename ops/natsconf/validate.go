package natsconf

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/nats-io/nkeys"

	"pocketcoder/sandbox/wire"
)

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
