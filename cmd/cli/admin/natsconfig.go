package admin

import (
	"context"
	"fmt"
	"os"
	"strings"

	"pocketcoder/cmd/app"
	"pocketcoder/cmd/cli"
	"pocketcoder/cmd/datadir"
	"pocketcoder/ops/natsconf"
)

const natsConfigUsage = `pocketcoder admin nats-config: print the configuration of an external NATS server.

It has the same accounts and rights as the embedded server, with the public keys of the data directory. Give each
server of a cluster a name and the addresses of the others.

  pocketcoder admin nats-config --name n1 --listen 0.0.0.0:4222 --store /data > nats.conf
  pocketcoder admin nats-config --name n1 --listen 0.0.0.0:4222 --store /data --cluster pc --cluster-listen 0.0.0.0:6222 \
      --cluster-secret secret.txt --route n2:6222 --route n3:6222 > n1.conf
`

func runNATSConfig(_ context.Context, env cli.Environment, args []string) error {
	fs := cli.NewFlags(env, "admin nats-config", natsConfigUsage)
	data := cli.DataFlag(fs, env)
	name := fs.String("name", "pocketcoder", "`name` of the server, unique in a cluster")
	listen := fs.String("listen", "127.0.0.1:4222", "`address` for clients")
	store := fs.String("store", "/data", "absolute `directory` of the server's files")
	cluster := fs.String("cluster", "", "`name` of the cluster; empty for a single server")
	clusterListen := fs.String("cluster-listen", "0.0.0.0:6222", "`address` for the other servers")
	secretFile := fs.String("cluster-secret", "",
		"`file` with the secret that the servers share; or set POCKETCODER_CLUSTER_SECRET")
	var routes []string
	fs.Func("route", "`address` of another server of the cluster; may be repeated", func(s string) error {
		routes = append(routes, s)
		return nil
	})
	if _, err := cli.Parse(fs, args, 0); err != nil {
		return err
	}
	d := datadir.Dir(datadir.Absolute(*data))
	if err := d.Prepare(); err != nil { // "up" refuses a directory that holds only keys
		return err
	}
	keys, err := natsconf.LoadKeys(d.Path("keys"))
	if err != nil {
		return err
	}
	c := app.NATSConfig(d, keys)
	c.Name, c.Listen, c.StoreDir = *name, *listen, *store
	if *cluster != "" {
		secret := env.Getenv("POCKETCODER_CLUSTER_SECRET")
		if *secretFile != "" {
			text, err := os.ReadFile(*secretFile)
			if err != nil {
				return fmt.Errorf("--cluster-secret: %w", err)
			}
			secret = strings.TrimSpace(string(text))
		}
		c.Cluster = &natsconf.Cluster{Name: *cluster, Listen: *clusterListen, Routes: routes, Secret: secret}
	}
	text, err := c.Text()
	if err != nil {
		return err
	}
	fmt.Fprint(env.Stdout, text)
	return nil
}
