package natsconf_test

import (
	"errors"
	"flag"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"
	"github.com/nats-io/nats-server/v2/server"

	"pocketcoder/ops/expect"
	"pocketcoder/ops/natsconf"
)

var update = flag.Bool("update", false, "accept the configuration as it is now")

func TestConfigurationText(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	keys, err := natsconf.LoadKeys(t.TempDir())
	is.NoErr(err)
	one := natsconf.Config{
		Name: "one", Listen: "127.0.0.1:0", StoreDir: "/var/lib/pocketcoder/nats", Keys: keys.Public,
		Pools: []string{"local"},
	}
	three := one
	three.Name, three.Listen = "nats-1", "0.0.0.0:4222"
	three.Pools = []string{"x", "y"}
	three.Cluster = &natsconf.Cluster{Name: "pocketcoder", Listen: "0.0.0.0:6222",
		Routes: []string{"nats-2:6222", "nats-3:6222"}, Secret: "s3cret"}
	for name, c := range map[string]natsconf.Config{"one": one, "three": three} {
		got, err := c.Text()
		is.NoErr(err)
		opts := &server.Options{}
		is.NoErr(opts.ProcessConfigString(got))
		is.True(opts.SyncAlways) // an acknowledged event survives power loss
		for id, key := range keys.Public {
			got = strings.ReplaceAll(got, key, "<nkey of "+string(id)+">")
		}
		golden := filepath.Join("testdata", name+".conf")
		if *update {
			is.NoErr(os.WriteFile(golden, []byte(got), 0o644))
		}
		want, err := os.ReadFile(golden)
		is.NoErr(err)
		is.Equal(got, string(want)) // accept with -update
	}
}

func TestBadConfigurationIsNamed(t *testing.T) {
	keys, err := natsconf.LoadKeys(t.TempDir())
	is.New(t).NoErr(err)
	for want, change := range map[string]func(*natsconf.Config){
		"server name":       func(c *natsconf.Config) { c.Name = "a b" },
		"address":           func(c *natsconf.Config) { c.Listen = "127.0.0.1" },
		`address "x\"`:      func(c *natsconf.Config) { c.Listen = `x":1` },
		"store directory":   func(c *natsconf.Config) { c.StoreDir = `/a"b` },
		"key of worker":     func(c *natsconf.Config) { c.Keys = maps.Clone(c.Keys); delete(c.Keys, natsconf.Worker) },
		"pool \"*\"":        func(c *natsconf.Config) { c.Pools = []string{"*"} },
		"a pool":            func(c *natsconf.Config) { c.Pools = nil },
		"cluster name":      func(c *natsconf.Config) { c.Cluster = &natsconf.Cluster{Name: "x", Listen: "h:1"} },
		"cluster: address ": func(c *natsconf.Config) { c.Cluster = &natsconf.Cluster{Name: "x", Secret: "y"} },
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			c := natsconf.Config{Name: "n", StoreDir: "/x", Keys: keys.Public, Pools: []string{"p"}}
			change(&c)
			_, err := c.Text()
			is.True(err != nil)
			expect.Contains(t, err.Error(), want)
		})
	}
}

func TestKeysStayTheSameAndPrivate(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	dir := filepath.Join(t.TempDir(), "keys")
	first, err := natsconf.LoadKeys(dir)
	is.NoErr(err)
	reloaded, err := natsconf.LoadKeys(dir)
	is.NoErr(err)
	is.Equal(first, reloaded)
	info, err := os.Stat(dir)
	is.NoErr(err)
	is.Equal(info.Mode().Perm(), os.FileMode(0o700))
	files, err := os.ReadDir(dir)
	is.NoErr(err)
	is.Equal(len(files), len(natsconf.Identities)) // and no half-written one
	for _, id := range natsconf.Identities {
		info, err := os.Stat(first.SeedFile(id))
		is.NoErr(err)
		is.Equal(info.Mode().Perm(), os.FileMode(0o600))
	}

	is.NoErr(os.Chmod(first.SeedFile(natsconf.Worker), 0o640))
	_, err = natsconf.LoadKeys(dir)
	is.True(err != nil && strings.Contains(err.Error(), "worker"))
	is.NoErr(os.Chmod(first.SeedFile(natsconf.Worker), 0o600))
	is.NoErr(os.WriteFile(first.SeedFile(natsconf.Core), []byte("nonsense"), 0o600))
	_, err = natsconf.LoadKeys(dir)
	is.True(err != nil && strings.Contains(err.Error(), "core.nk"))
}

func TestStartSaysWhatStoodInTheWay(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	n := start(t)

	_, err := natsconf.Start(t.Context(), n.config)
	is.True(errors.Is(err, natsconf.ErrInUse))

	taken, err := net.Listen("tcp", "127.0.0.1:0")
	is.NoErr(err)
	defer taken.Close()
	c := n.config
	c.StoreDir, c.Listen = t.TempDir(), taken.Addr().String()
	_, err = natsconf.Start(t.Context(), c)
	is.True(errors.Is(err, natsconf.ErrAddressInUse))
	expect.Contains(t, err.Error(), "address already in use")

	file := filepath.Join(t.TempDir(), "file")
	is.NoErr(os.WriteFile(file, nil, 0o600))
	c.StoreDir = file
	_, err = natsconf.Start(t.Context(), c)
	is.True(err != nil)
	expect.Contains(t, err.Error(), "not a directory")

	c.StoreDir, c.Listen = t.TempDir(), "127.0.0.1:0"
	s, err := natsconf.Start(t.Context(), c)
	is.NoErr(err) // a failed start leaves nothing behind
	s.Close()
	s, err = natsconf.Start(t.Context(), c)
	is.NoErr(err) // and a closed one lets go of its store
	s.Close()
}
