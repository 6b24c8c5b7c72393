package natsconf_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"

	"pocketcoder/ops/natsconf"
)

// right says which identities may do something with a subject. Nothing limits core and sys inside their own accounts,
// APP and SYS, so they have no rows: TestOnlyCoreAndSysAreUnlimited is about them.
type right struct {
	subject    string
	identities string
}

var limited = []natsconf.Identity{natsconf.Observer, natsconf.Worker}

// The engine is e1 and the pool p1; X is an exec.
var mayPublish = []right{
	{"evt.chat.c1.forged", ""},
	{"delta.chat.c1.m.p", ""},
	{"timer.x", ""},
	{"cmd.x", ""},
	{"query.x", ""},

	{"exec.shell", ""},
	{"exec.shell.X", ""},
	{"exec.shell.X.caller", ""},
	{"exec.run.p1", ""},
	{"exec.run.p1.X", ""},
	{"exec.run.p1.X.caller", "worker"},
	{"exec.run.p2", ""},
	{"exec.run.p2.X", ""},
	{"exec.run.p2.X.caller", ""},

	{"READ.API.STREAM.INFO.EVENTS", "observer"},
	{"READ.API.DIRECT.GET.EVENTS", "observer"},
	{"$JS.API.INFO", ""},
	{"$JS.API.STREAM.INFO.EVENTS", ""},
	{"$JS.API.STREAM.CREATE.MINE", ""},
	{"$JS.API.STREAM.PURGE.EVENTS", ""},
	{"$JS.API.STREAM.DELETE.EVENTS", ""},
	{"$JS.API.STREAM.RESTORE.EVENTS", ""},
	{"$JS.API.DIRECT.GET.KV_SECRETS.$KV.SECRETS.x", ""},
	{"$JS.API.CONSUMER.CREATE.EVENTS.mine", ""},
	{"$JS.ACK.EVENTS.deliver.1.1.1.1.1", ""},
	{"$JS.FC.EVENTS.deliver.x", ""},
	{"$KV.SECRETS.x", ""},
	{"$O.BLOBS.C.x", ""},
	{"$SYS.REQ.SERVER.PING", ""},
	{"$SYS.REQ.USER.INFO", ""},
	{"$SYS.REQ.ACCOUNT.APP.CONNZ", ""},
	{"$SYS.ACCOUNT.APP.CONNECT", ""},

	{"_R_.x", "worker"},
	{"_INBOX.x", ""},
	{"_INBOX_CORE.x", ""},
	{"_INBOX_OBSERVER.x", ""},
	{"_INBOX_WORKER.x", ""},
	{"_INBOX_SYS.x", ""},
}

var maySubscribe = []right{
	{">", ""},
	{"*", ""},
	{"*.>", ""},
	{"evt.>", "observer"},
	{"evt.chat.c1.created", "observer"},
	{"delta.>", "observer"},
	{"timer.>", ""},
	{"cmd.>", ""},
	{"query.>", ""},

	{"exec.>", ""},
	{"exec.shell", ""},
	{"exec.shell.X", ""},
	{"exec.shell.*", ""},
	{"exec.shell.>", ""},
	{"exec.shell.X.caller", ""},
	{"exec.shell.*.caller", ""},
	{"exec.run.p1", "worker"},
	{"exec.run.*", ""},
	{"exec.run.p1.X", "worker"},
	{"exec.run.p1.X.caller", ""},
	{"exec.run.p1.*.caller", ""},
	{"exec.run.p1.>", "worker"}, // which hears no more than with *: TestAWorkerHearsOnlyWhatItServes
	{"exec.run.p2", ""},
	{"exec.run.p2.X", ""},
	{"exec.run.*.X", ""},

	{"READ.>", ""},
	{"$JS.>", ""},
	{"$JS.API.>", ""},
	{"$KV.>", ""},
	{"$KV.SECRETS.x", ""},
	{"$O.>", ""},
	{"$SYS.>", ""},
	{"$SYS.REQ.>", ""},

	{"_R_.>", ""},
	{"_R_.x", ""},
	{"_INBOX.>", ""},
	{"_INBOX_CORE.>", ""},
	{"_INBOX_OBSERVER.>", "observer"},
	{"_INBOX_WORKER.>", ""},
	{"_INBOX_SYS.>", ""},
}

func (r right) has(id natsconf.Identity) bool {
	return strings.Contains(" "+r.identities+" ", " "+string(id)+" ")
}

func TestWhatEachIdentityMayDo(t *testing.T) {
	t.Parallel()
	inEachUse(t, func(t *testing.T, n *testServer) {
		core, _ := n.connect(natsconf.Core)
		_, count := openLog(t, core)
		for _, id := range limited {
			t.Run(string(id), func(t *testing.T) {
				c := asking(t, n, id)
				for _, r := range mayPublish {
					c.publishes(r)
				}
				for _, r := range maySubscribe {
					c.subscribes(r)
				}
			})
		}
		is.New(t).Equal(count(), uint64(3)) // and no event came of it
	})
}

// asker tries things as one identity.
type asker struct {
	*nats.Conn
	t      *testing.T
	id     natsconf.Identity
	denied <-chan error
}

func asking(t *testing.T, n *testServer, id natsconf.Identity) asker {
	nc, denied := n.connect(id)
	return asker{nc, t, id, denied}
}

// publishes holds a row against a plain publish, a request, and a message whose trace would be sent there
// (CVE-2026-33249).
func (c asker) publishes(r right) {
	c.t.Helper()
	ways := map[string]*nats.Msg{
		"publish": {Subject: r.subject},
		"request": {Subject: r.subject, Reply: c.ownSubject(), Data: []byte("{}")},
		"trace":   {Subject: c.ownSubject(), Header: nats.Header{"Nats-Trace-Dest": {r.subject}}},
		"silent":  {Subject: c.ownSubject(), Header: nats.Header{"Nats-Trace-Dest": {r.subject}, "Nats-Trace-Only": {"true"}}},
	}
	if strings.ContainsAny(r.subject, "*>") { // no trace is sent to such a subject
		delete(ways, "trace")
		delete(ways, "silent")
	}
	for how, m := range ways {
		got := c.whatIsDenied(func() error { return c.PublishMsg(m) })
		c.check(r, how, got, fmt.Sprintf("publish to %q", r.subject))
	}
}

// subscribes holds a row against a plain subscription and one in a queue group, which once got around what was denied
// (NATS advisory 2026-18).
func (c asker) subscribes(r right) {
	c.t.Helper()
	for _, queue := range []string{"", "workers", ">"} {
		want := fmt.Sprintf("subscription to %q", r.subject)
		if queue != "" {
			want += fmt.Sprintf(" using queue %q", queue)
		}
		var sub *nats.Subscription
		got := c.whatIsDenied(func() (err error) {
			sub, err = c.QueueSubscribeSync(r.subject, queue)
			return err
		})
		c.check(r, "queue "+queue, got, want)
		sub.Unsubscribe()
	}
}

// ownSubject is a subject this identity may publish to.
func (c asker) ownSubject() string {
	for _, r := range mayPublish {
		if r.has(c.id) {
			return r.subject
		}
	}
	c.t.Fatalf("%s may publish nothing", c.id)
	return ""
}

// whatIsDenied returns all that the server denied of what do sent, in one line.
func (c asker) whatIsDenied(do func() error) string {
	c.t.Helper()
	is := is.New(c.t)
	is.NoErr(do())
	const last = "no.user.may.publish.this"
	is.NoErr(c.Publish(last, nil))
	is.NoErr(c.Flush())
	for all := ""; ; {
		select {
		case err := <-c.denied:
			if strings.Contains(err.Error(), last) {
				return all
			}
			all += strings.ToLower(err.Error())
		case <-time.After(time.Minute):
			c.t.Fatal("the server said nothing")
		}
	}
}

func (c asker) check(r right, how, got, denial string) {
	c.t.Helper()
	switch denied := strings.Contains(got, strings.ToLower(denial)); {
	case denied && r.has(c.id):
		c.t.Errorf("%s of %s: denied", how, r.subject)
	case !denied && !r.has(c.id):
		c.t.Errorf("%s of %s: not denied, but %q", how, r.subject, got)
	}
}
