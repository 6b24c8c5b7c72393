package eventstest

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"pocketcoder/events/log"
	"pocketcoder/events/secret"
	"pocketcoder/ops/expect"
)

// Cluster is three servers and a log with three replicas.
type Cluster struct {
	*log.Log
	Servers []*server.Server
	Conn    *nats.Conn // of Log; it connects to each server that runs
	t       testing.TB
}

// OpenCluster starts a cluster and opens a fresh log. Options are those of the log.
func OpenCluster(t testing.TB) *Cluster {
	t.Helper()
	c, name := &Cluster{t: t}, nuid.Next()
	var routes []*url.URL
	for range 3 {
		routes = append(routes, &url.URL{Scheme: "nats", Host: expect.Address(t)})
	}
	urls := ""
	for i, route := range routes {
		port, err := strconv.Atoi(route.Port())
		if err != nil {
			t.Fatal(err)
		}
		s, err := server.NewServer(&server.Options{
			ServerName: fmt.Sprint(name, i), Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: expect.MemoryDir(t), NoSigs: true, NoLog: true,
			Cluster: server.ClusterOpts{Name: name, Host: "127.0.0.1", Port: port}, Routes: routes,
		})
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
		c.Servers = append(c.Servers, s)
	}
	for _, s := range c.Servers {
		if !s.ReadyForConnections(time.Minute) {
			t.Fatal("nats-server is not ready after a minute")
		}
		urls += s.ClientURL() + ","
	}
	var err error
	if c.Conn, err = nats.Connect(urls, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond),
		nats.Timeout(10*time.Second)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Conn.Close)
	options := log.DefaultOptions
	options.Replicas = len(c.Servers)
	expect.Eventually(t, "the cluster opens the log", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		c.Log, err = log.Open(ctx, c.Conn, options, secret.NewRedactor())
		return err == nil
	})
	return c
}

// Leader returns the server that leads EVENTS.
func (c *Cluster) Leader() *server.Server {
	c.t.Helper()
	js, err := jetstream.New(c.Conn)
	if err != nil {
		c.t.Fatal(err)
	}
	var leader *server.Server
	expect.Eventually(c.t, "EVENTS has a leader", func() bool {
		ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
		defer cancel()
		s, err := js.Stream(ctx, "EVENTS")
		for _, one := range c.Servers {
			if err == nil && s.CachedInfo().Cluster != nil && one.Name() == s.CachedInfo().Cluster.Leader {
				leader = one
			}
		}
		return leader != nil
	})
	return leader
}

// StepDown makes the leader of EVENTS step down, and returns when a server has agreed. It asks again without an answer:
// a server that has just lost the leadership gives none.
func (c *Cluster) StepDown() {
	c.t.Helper()
	expect.Eventually(c.t, "the leader of EVENTS steps down", func() bool {
		answer, err := c.Conn.Request("$JS.API.STREAM.LEADER.STEPDOWN.EVENTS", nil, time.Second)
		return err == nil && strings.Contains(string(answer.Data), `"success":true`)
	})
}
