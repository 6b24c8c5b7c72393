package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats-server/v2/server"

	"pocketcoder/cmd/cli"
	"pocketcoder/cmd/datadir"
	"pocketcoder/events"
	"pocketcoder/events/atomicfile"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

// natsCluster is three NATS servers with the configurations that the command line prints.
type natsCluster struct {
	urls    string
	configs []string // their files
	servers []*server.Server
}

// startNATSCluster starts a cluster that accepts the keys of p.
func startNATSCluster(t *testing.T, p *process) *natsCluster {
	t.Helper()
	is := is.New(t)
	var addresses []string
	for range 6 { // for clients, and for the other servers
		addresses = append(addresses, expect.Address(t))
	}
	// in memory: a disk that stalls for 4 s, as it can while others write, ends the node with the engine
	dir := expect.MemoryDir(t)
	secret := filepath.Join(dir, "secret")
	is.NoErr(os.WriteFile(secret, []byte("s3cret"), 0o600))
	c := &natsCluster{servers: make([]*server.Server, 3)}
	for i := range c.servers {
		name := "nats" + strconv.Itoa(i+1)
		conf, stderr, code := p.cli(t, "", "admin", "nats-config", "--name", name, "--listen", addresses[i], "--store",
			filepath.Join(dir, name),
			"--cluster", "test", "--cluster-listen", addresses[i+3], "--cluster-secret", secret,
			"--route", addresses[3], "--route", addresses[4], "--route", addresses[5])
		t.Log(stderr)
		is.Equal(code, 0)
		file := filepath.Join(dir, name+".conf")
		is.NoErr(os.WriteFile(file, []byte(conf), 0o600))
		c.configs, c.urls = append(c.configs, file), c.urls+",nats://"+addresses[i]
		c.start(t, i)
		t.Cleanup(func() { c.stop(i) })
	}
	c.urls = c.urls[1:]
	expect.Eventually(t, "the cluster has a leader", func() bool {
		return slices.ContainsFunc(c.servers, func(s *server.Server) bool {
			return s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == 3
		})
	})
	return c
}

func (c *natsCluster) start(t *testing.T, i int) {
	t.Helper()
	is := is.New(t)
	o, err := server.ProcessConfigFile(c.configs[i])
	is.NoErr(err)
	o.NoSigs, o.NoLog = true, true
	c.servers[i], err = server.NewServer(o)
	is.NoErr(err)
	go c.servers[i].Start()
}

func (c *natsCluster) stop(i int) {
	c.servers[i].Shutdown()
	c.servers[i].WaitForShutdown()
}

// prepareNodes makes two nodes with one workspace, one state of OpenCode and the same keys, on a cluster of three NATS
// servers.
func prepareNodes(t *testing.T) (first, second *process, cluster *natsCluster) {
	t.Helper()
	dir := t.TempDir()
	first, second = prepare(t, filepath.Join(dir, "1")), prepare(t, filepath.Join(dir, "2"))
	cluster = startNATSCluster(t, first)
	is.New(t).NoErr(os.CopyFS(second.data.Path("keys"), os.DirFS(first.data.Path("keys"))))
	is.New(t).NoErr(filepath.Walk(second.data.Path("keys"), func(path string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			err = os.Chmod(path, 0o600)
		}
		return err
	}))
	is.New(t).NoErr(atomicfile.Write(second.data.Path("version"), fmt.Appendf(nil, "%d\n", datadir.Version)))
	for _, p := range []*process{first, second} {
		p.args = append(p.args, "--workspace", first.workspace, "--nats", cluster.urls, "--replicas", "3",
			"--opencode-state", filepath.Join(dir, "opencode"))
		p.args[0] = "serve"
		p.workspace = first.workspace
	}
	return first, second, cluster
}

// lease is the part of a node's health that says where the engine runs.
type lease struct {
	Node, Holder string
	Held, Own    bool
}

// nodeHealth returns the lease as a node sees it, and the states of its parts.
func (l login) nodeHealth(t *testing.T) (lease lease, states map[string]string) {
	t.Helper()
	var body struct {
		Data map[string]struct {
			State  string
			Detail json.RawMessage
		}
	}
	decode(t, l.do(t, "GET", "/api/health", nil).body, &body)
	states = map[string]string{}
	for name, part := range body.Data {
		states[name] = part.State
	}
	decode(t, string(body.Data["lease"].Detail), &lease)
	return lease, states
}

// awaitEngine waits until a node runs the engine.
func (l login) awaitEngine(t *testing.T) {
	t.Helper()
	expect.Eventually(t, "the node runs the engine", func() bool {
		lease, states := l.nodeHealth(t)
		return lease.Own && lease.Holder == lease.Node && states["opencode"] == "ready" && states["sandbox"] == "ready"
	})
}

func TestTwoNodesOfACluster(t *testing.T) {
	expect.Long(t, "runs a cluster of three NATS servers and two nodes")
	t.Parallel()
	fault := expect.CountFault(t, "stages passed")
	first, second, cluster := prepareNodes(t)
	first.runForTest()
	second.runForTest()
	runStages(t, first, stage{"another node takes over the engine", func(t *testing.T, first *process) {
		second.t = t
		anotherNodeTakesOver(t, first, second)
		fault.Tried()
		fault.Saw(1)
	}}, stage{"without a majority nothing is stored", func(t *testing.T, first *process) {
		second.t = t
		first.restart()
		withoutAMajorityNothingIsStored(t, second, first, cluster)
		fault.Tried()
		fault.Saw(1)
	}})
	second.t = t
}

// Both nodes serve the same chats. When the node with the engine is killed, the other takes over: what waited goes on,
// what was submitted meanwhile is answered, and no command and no message is there twice.
func anotherNodeTakesOver(t *testing.T, first, second *process) {
	is := is.New(t)
	one := first.admin(t)
	two := one.at(second) // a token is good on every node
	is.Equal(expect.ReadFile(t, second.data.Path("keys", "webpush.json")),
		expect.ReadFile(t, first.data.Path("keys", "webpush.json")))
	lease, states := two.nodeHealth(t)
	is.True(!lease.Own && lease.Held && lease.Holder != lease.Node)
	_, found := states["opencode"]
	is.True(!found)

	// A chat over the node without the engine.
	chat := two.create(t, "chats", record{"title": "two nodes"})
	defer func() {
		if t.Failed() {
			t.Log("the chat has\n"+strings.Join(second.kinds(context.Background(), chat), "\n"),
				two.do(t, "GET", "/api/collections/executions/records", nil).body,
				two.do(t, "GET", "/api/health", nil).body)
		}
	}()
	realtime, connected := two.open(t, "/api/realtime", "PB_CONNECT")
	two.must(t, "POST", "/api/realtime", record{"clientId": connected.id,
		"subscriptions": []string{"chats/*", "permissions/*"}}, nil)
	two.say(t, chat, bash("echo one >> ran"))
	for f := (frame{}); !strings.Contains(f.data, `"draft"`); {
		var err error
		f, err = nextFrame(realtime)
		is.NoErr(err)
	}
	two.authorize(t, two.awaitRequest(t, chat))
	first.turnEnds(t, chat)
	second.turnEnds(t, chat)
	is.Equal(expect.ReadFile(t, filepath.Join(first.workspace, "ran")), "one\n")
	is.Equal(two.do(t, "GET", "/api/pocketcoder/chats/"+chat+"/todo", nil).code, http.StatusOK) // it is asked over NATS
	// the node with the engine sends the signal
	two.say(t, chat, bash("sleep 1000"))
	two.authorize(t, two.awaitRequest(t, chat))
	running := two.running(t, chat)
	first.event(t, chat, events.ExecStarted{}.Kind(), func(e events.Event) bool {
		return strings.Contains(string(e.Data), running)
	})
	two.must(t, "POST", "/api/executions/"+running+"/signal", record{"signal": "TERM"}, nil)
	first.finished(t, chat, 1)
	is.Equal(first.event(t, chat, events.ExecSignalled{}.Kind(), nil).Actor, events.UserActor(one.id))
	second.turnEnds(t, chat)
	session := first.row(t, chat).Session

	// The node dies while a request waits. A message comes before the other has taken over.
	two.say(t, chat, bash("echo two >> ran"))
	request := two.awaitRequest(t, chat)
	other := two.create(t, "chats", record{"title": "meanwhile"})
	killed := time.Now()
	first.kill()
	two.say(t, other, "@@say still here")
	two.awaitEngine(t)
	t.Logf("taken over %s after the kill", time.Since(killed))
	second.turnEnds(t, other)
	is.Equal(second.text(t, other), "still here")
	two.authorize(t, request) // OpenCode has forgotten the request, and the turn is resumed
	is.Equal(second.finished(t, chat, 2).ExitCode, 0)
	second.turnEnds(t, chat)
	is.Equal(expect.ReadFile(t, filepath.Join(first.workspace, "ran")), "one\ntwo\n")
	is.Equal(second.row(t, chat).Session, session) // the conversation went on
	for _, id := range []string{chat, other} {
		deliveries := map[string]int{}
		for _, e := range second.history(t, id) {
			if d, err := events.Decode(e); err == nil {
				if delivered, ok := d.(events.MessageDelivered); ok {
					deliveries[delivered.Message]++
				}
			}
		}
		for _, m := range rows[projections.ShownMessage](t, second, "messages", id) {
			if m.Role == "user" {
				is.Equal(deliveries[m.ID], 1)
			}
		}
	}
}

// Without a majority of the NATS servers nothing is stored. The node with the engine ends, because it can no longer
// know that it is the only one. The other says so in its health and answers commands with 503; it goes on, with the
// engine, when the servers are back.
func withoutAMajorityNothingIsStored(t *testing.T, leader, other *process, cluster *natsCluster) {
	is := is.New(t)
	admin := other.admin(t).at(other)
	if lease, _ := admin.nodeHealth(t); lease.Own { // on a busy machine the leader did not renew its lease, and ended
		leader.restart()
		leader, other = other, leader
		admin = admin.at(other)
	}
	chat := admin.create(t, "chats", record{"title": "before"})

	cluster.stop(1)
	cluster.stop(2)
	stopped := time.Now()
	expect.Eventually(t, "health says that the log does not store", func() bool {
		_, states := admin.nodeHealth(t)
		return states["log"] != "ready" && admin.do(t, "GET", "/api/health", nil).code == http.StatusServiceUnavailable
	})
	t.Logf("health says so %s after the second server has stopped", time.Since(stopped))
	refused := admin.do(t, "POST", "/api/collections/chats/records", record{"title": "not now"})
	is.Equal(refused.code, http.StatusServiceUnavailable)
	is.True(refused.header.Get("Retry-After") != "")
	<-leader.exited
	expect.Contains(t, leader.output.String(), "another one may run the engine")

	cluster.start(t, 1)
	cluster.start(t, 2)
	admin.awaitEngine(t)
	expect.Eventually(t, "health says that the log stores again", func() bool {
		_, states := admin.nodeHealth(t)
		return states["log"] == "ready"
	})
	admin.say(t, chat, "@@say stored again")
	other.turnEnds(t, chat)
	is.Equal(other.text(t, chat), "stored again")
}

func TestServeReportsWhyItCannotStart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args  []string
		want  string
		usage bool // the command line is wrong
	}{
		"no such role":       {[]string{"--nats", "nats://127.0.0.1:1", "--roles", "web,boss"}, `"boss" is not a role; want some of engine,web`, true},
		"no NATS":            {nil, "--nats: name the NATS servers that the nodes share", true},
		"state in workspace": {[]string{"--nats", "nats://127.0.0.1:1", "--opencode-state", "DIR/workspace/state"}, "--opencode-state DIR/workspace/state must not be in --workspace DIR/workspace", false},
		"nothing there":      {[]string{"--nats", "nats://127.0.0.1:1"}, "nats://127.0.0.1:1", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			dir := t.TempDir()
			is.NoErr(os.Mkdir(filepath.Join(dir, "workspace"), 0o755))
			serve := []string{"serve", "--demo", "--data", filepath.Join(dir, "data"), "--workspace",
				filepath.Join(dir, "workspace"), "--http", "127.0.0.1:0"}
			for _, arg := range c.args {
				serve = append(serve, strings.ReplaceAll(arg, "DIR", dir))
			}
			_, stderr, err := runApp(t, serve...)
			t.Log(stderr, err)
			is.Equal(errors.Is(err, cli.ErrUsage), c.usage)
			expect.Contains(t, fmt.Sprint(stderr, err), strings.ReplaceAll(c.want, "DIR", dir))
		})
	}
}
