package natsconf_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"pocketcoder/ops/expect"
	"pocketcoder/ops/natsconf"
)

// What nats-server reads from the text, user by user: nothing but the identities, and no way around them.
func TestOnlyCoreAndSysAreUnlimited(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	n := newTestServer(t)
	n.config.Cluster = &natsconf.Cluster{Name: "test", Listen: "127.0.0.1:0", Secret: "secret"}
	text, err := n.config.Text()
	is.NoErr(err)
	expect.Lacks(t, text, "allow_responses")
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, `{ service: "`) || strings.HasPrefix(line, `{ stream: "`) {
			expect.Contains(t, line, "accounts: [") // what is exported is for one account
		}
	}
	opts := &server.Options{}
	is.NoErr(opts.ProcessConfigString(text))

	accounts := map[natsconf.Identity]string{
		natsconf.Core: "APP", natsconf.Observer: "OPS", natsconf.Worker: "SBX", natsconf.Sys: "SYS",
	}
	is.Equal(len(opts.Nkeys), len(accounts))
	for _, u := range opts.Nkeys {
		var id natsconf.Identity
		for _, i := range natsconf.Identities {
			if n.keys.Public[i] == u.Nkey {
				id = i
			}
		}
		is.Equal(u.Account.Name, accounts[id])
		if id == natsconf.Core || id == natsconf.Sys {
			is.Equal(u.Permissions, nil) // everything, in an account of its own
			continue
		}
		is.True(u.Permissions != nil)
		is.Equal(u.Permissions.Response, nil)
		is.True(len(u.Permissions.Publish.Allow) > 0)
		is.True(len(u.Permissions.Subscribe.Allow) > 0)
		for _, allowed := range append(u.Permissions.Publish.Allow, u.Permissions.Subscribe.Allow...) {
			// allowed
			is.True(!strings.HasPrefix(allowed, ">") && !strings.HasPrefix(allowed, "*") && !strings.HasPrefix(allowed, "$"))
		}
	}

	is.Equal(len(opts.Users), 0)               // no passwords
	is.Equal(opts.NoAuthUser, "")              // there is no anonymous access
	is.Equal(opts.Username+opts.Password, "")  // nor by a password that many share
	is.Equal(opts.Authorization, "")           // or a token
	is.Equal(len(opts.TrustedOperators), 0)    // no operator issues users
	is.Equal(opts.AuthCallout, nil)            // or answers for them
	is.Equal(opts.SystemAccount, "SYS")        //
	is.Equal(opts.HTTPPort+opts.HTTPSPort, 0)  // no monitoring
	is.Equal(opts.ProfPort, 0)                 //
	is.Equal(opts.Websocket.Port, 0)           //
	is.Equal(opts.MQTT.Port, 0)                //
	is.Equal(opts.LeafNode.Port, 0)            // no leaf node can join
	is.Equal(opts.Gateway.Port, 0)             // or as another cluster
	is.True(opts.Cluster.Password == "secret") // and as a server only with the secret
	is.Equal(len(opts.Accounts), 4)
}

func TestOnlyTheAccountOfCoreHasJetStream(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	n := start(t)
	for _, name := range []string{"OPS", "SBX", "SYS"} {
		account, err := n.LookupAccount(name)
		is.NoErr(err)
		is.True(!account.JetStreamEnabled()) // name
	}
}

// The account alone keeps a worker from everything, even one that no permissions hold back.
func TestAWorkerWithoutPermissionsIsStillAlone(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	n := external(t, func(text string) string {
		before, account, _ := strings.Cut(text, "  SBX {")
		users, after, _ := strings.Cut(account, "imports:")
		user, permissions, _ := strings.Cut(users, ", permissions:")
		expect.Contains(t, permissions, "allow")
		return before + "  SBX {" + user + "} ]\n imports:" + after
	}, nil)
	core, _ := n.connect(natsconf.Core)
	_, count := openLog(t, core)
	for _, subject := range []string{"exec.shell", "cmd.>"} {
		_, err := core.Subscribe(subject, func(m *nats.Msg) { m.Respond([]byte("heard")) })
		is.NoErr(err)
	}
	is.NoErr(core.Flush())
	nc, denied := n.connect(natsconf.Worker)
	for _, subject := range []string{
		"$JS.API.INFO", "$JS.API.STREAM.INFO.EVENTS", "$JS.API.STREAM.PURGE.EVENTS", "$KV.SECRETS.x", "$SYS.REQ.SERVER.PING",
		"READ.API.STREAM.INFO.EVENTS", "exec.shell", "cmd.x", "evt.chat.c1.forged",
	} {
		m, err := nc.Request(subject, nil, time.Minute)
		// "JetStream not enabled for account"
		noJetStream := err == nil && strings.Contains(string(m.Data), `"err_code":10039`)
		if !noJetStream && !errors.Is(err, nats.ErrNoResponders) {
			t.Errorf("request to %s: answered", subject)
		}
	}
	everything, err := nc.SubscribeSync(">")
	is.NoErr(err)
	is.NoErr(nc.Flush())
	for _, subject := range []string{"evt.chat.c1.created", "exec.shell", "cmd.x", "exec.run.p1"} {
		is.NoErr(core.PublishRequest(subject, "_INBOX_CORE.x", []byte("x")))
	}
	m, err := everything.NextMsg(time.Minute)
	is.NoErr(err)
	is.Equal(m.Subject, "exec.run.p1")
	is.Equal(len(denied), 0)
	expect.Eventually(t, "what core says is stored", func() bool { return count() >= 4 })
	is.Equal(count(), uint64(4)) // and nothing else
}

// Of what is said in APP the system account hears nothing, nor does what it says get there.
func TestSysSeesNoMessages(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	n := start(t)
	core, _ := n.connect(natsconf.Core)
	_, count := openLog(t, core)
	sys, _ := n.connect(natsconf.Sys)
	everything, err := sys.SubscribeSync(">")
	is.NoErr(err)
	is.NoErr(sys.Flush())
	is.NoErr(core.Publish("evt.chat.c1.created", nil))
	is.NoErr(core.Publish("exec.run.p1", nil))
	is.NoErr(core.Flush())
	for _, subject := range []string{"evt.chat.c1.forged", "exec.run.p1", "$JS.API.STREAM.PURGE.EVENTS"} {
		is.NoErr(sys.Publish(subject, []byte("by sys")))
	}
	for own := 0; own < 3; {
		m, err := everything.NextMsg(time.Minute)
		is.NoErr(err)
		if string(m.Data) == "by sys" {
			own++
		} else {
			is.True(strings.HasPrefix(m.Subject, "$SYS.")) // connections come and go
		}
	}
	expect.Eventually(t, "what core says is stored", func() bool { return count() >= 4 })
	is.Equal(count(), uint64(4)) // and nothing else
}

// With an allowed exec.run.p1.* a worker may also subscribe to exec.run.p1.>, and hears no more with it.
func TestAWorkerHearsOnlyWhatItServes(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	n := start(t)
	_, _ = n.connect(natsconf.Core)
	nosy, denied := n.connect(natsconf.Worker)
	subscription, err := nosy.SubscribeSync("exec.run.p1.>")
	is.NoErr(err)
	is.NoErr(nosy.Flush())
	is.Equal(len(denied), 0)
	honest, _ := n.connect(natsconf.Worker)
	is.NoErr(honest.Publish("exec.run.p1.X.caller", nil)) // its probe of the caller
	is.NoErr(honest.Flush())
	core, _ := n.connect(natsconf.Core)
	is.NoErr(core.Publish("exec.run.p1.X", nil))
	m, err := subscription.NextMsg(time.Minute)
	is.NoErr(err)
	is.Equal(m.Subject, "exec.run.p1.X")
}

func TestNobodyConnectsWithoutAKey(t *testing.T) {
	t.Parallel()
	inEachUse(t, func(t *testing.T, n *testServer) {
		is := is.New(t)
		stranger, err := nkeys.CreateUser()
		is.NoErr(err)
		refused := map[string]nats.Option{
			"nothing":                 nats.Name("nobody"),
			"a password":              nats.UserInfo("core", "core"),
			"the password of servers": nats.UserInfo("route", "secret"),
			"a token":                 nats.Token("secret"),
		}
		for _, id := range natsconf.Identities {
			public := n.keys.Public[id]
			refused["the public key of "+string(id)] = nats.UserInfo(public, public)
			refused["the signature of a stranger as "+string(id)] = nats.Nkey(public, stranger.Sign)
			for _, other := range natsconf.Identities {
				if other != id {
					refused[fmt.Sprintf("the signature of %s as %s", other, id)] = nats.Nkey(public, signer(t, n.keys.SeedFile(other)))
				}
			}
		}
		public, err := stranger.PublicKey()
		is.NoErr(err)
		refused["a stranger's key"] = nats.Nkey(public, stranger.Sign)
		for with, option := range refused {
			_, err := nats.Connect(n.ClientURL(), option)
			if !errors.Is(err, nats.ErrAuthorization) {
				t.Errorf("connected with %s: %v", with, err)
			}
		}
		expect.Contains(t, inProcess(t, n, "CONNECT {}\r\nPING\r\n"), "Authorization Violation")
	})
}

func signer(t *testing.T, seedFile string) nats.SignatureHandler {
	t.Helper()
	is := is.New(t)
	seed, err := os.ReadFile(seedFile)
	is.NoErr(err)
	key, err := nkeys.ParseDecoratedNKey(seed)
	is.NoErr(err)
	return key.Sign
}

// inProcess says something over an in-process connection and returns the answer.
func inProcess(t *testing.T, n *testServer, say string) string {
	t.Helper()
	is := is.New(t)
	conn, err := n.InProcessConn()
	is.NoErr(err)
	defer conn.Close()
	lines := bufio.NewReader(conn)
	_, err = lines.ReadString('\n') // INFO
	is.NoErr(err)
	_, err = io.WriteString(conn, say)
	is.NoErr(err)
	answer, err := lines.ReadString('\n')
	is.NoErr(err)
	return answer
}
