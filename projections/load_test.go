package projections_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/ops/expect"
)

// The log of BenchmarkFirstLoad: chats go on at the same time, one event of each after the other, in an order of
// chance. Each turn has a command that a person allows. Texts are words of a large vocabulary.
var (
	loadChats = flag.Int("load.chats", 500, "number of chats in the log of BenchmarkFirstLoad")
	loadTurns = flag.Int("load.turns", 125, "number of turns of each chat in the log of BenchmarkFirstLoad, with 16 events each")
)

// BenchmarkFirstLoad computes the read models at a first start.
func BenchmarkFirstLoad(b *testing.B) {
	is := is.New(b)
	l := eventstest.Log(b)
	chats := make([]*loadChat, *loadChats)
	for i := range chats {
		chats[i] = &loadChat{b: b, id: fmt.Sprint("chat", i), words: rand.New(rand.NewPCG(1, uint64(i)))}
		chats[i].add(events.ChatCreated{Title: "Chat", User: "ann", Engine: engine})
		chats[i].add(events.SessionBound{Session: chats[i].session(), Directory: "/workspace"})
	}
	order := rand.New(rand.NewPCG(1, 2))
	var last uint64
	for turn := range *loadTurns {
		var batch []events.Event
		for _, c := range chats {
			c.turn(turn)
		}
		for left := chats; len(left) > 0; {
			var more []*loadChat
			for _, i := range order.Perm(len(left)) {
				batch = append(batch, left[i].events[0])
				if left[i].events = left[i].events[1:]; len(left[i].events) > 0 {
					more = append(more, left[i])
				}
			}
			left = more
		}
		var err error
		last, err = l.AppendAll(b.Context(), batch)
		is.NoErr(err)
	}
	for b.Loop() {
		m := running(b, expect.MemoryDir(b), l)
		began := time.Now()
		is.NoErr(m.Wait(b.Context(), last))
		b.ReportMetric(float64(last)/time.Since(began).Seconds(), "events/s")
	}
	b.ReportMetric(0, "ns/op")
}

// loadChat makes the events of a chat.
type loadChat struct {
	b      *testing.B
	id     string
	words  *rand.Rand
	n      int
	events []events.Event
}

func (c *loadChat) session() string { return "ses_" + c.id }

func (c *loadChat) add(d events.Data) {
	e, err := events.New(c.id, events.UserActor("ann"), d)
	is.New(c.b).NoErr(err)
	c.events = append(c.events, e)
}

func (c *loadChat) opencode(kind string, properties map[string]any) {
	properties["sessionID"] = c.session()
	body, err := json.Marshal(properties)
	is.New(c.b).NoErr(err)
	c.n++
	e, err := events.NewOpenCode(c.id, engine, fmt.Sprintf("evt_%s_%d", c.id, c.n), int64(c.n),
		events.OpenCode{Type: kind, Properties: body})
	is.New(c.b).NoErr(err)
	c.events = append(c.events, e)
}

// text returns words of about so many bytes. Few of them are frequent.
func (c *loadChat) text(size int) string {
	var t strings.Builder
	for t.Len() < size {
		r := c.words.Float64()
		fmt.Fprintf(&t, "w%x ", uint64(r*r*r*200_000)*2654435761%(1<<28))
	}
	return t.String()
}

func (c *loadChat) turn(turn int) {
	id := fmt.Sprintf("%012x%s", c.words.Uint64()>>16, c.id)
	message := func(n, role, finish string) {
		info := map[string]any{"id": "msg_" + id + n, "role": role}
		if role == "assistant" {
			info["parentID"], info["providerID"], info["modelID"] = "msg_"+id+"0", "demo", "model"
			info["cost"], info["tokens"] = 0.01, map[string]any{"input": 100, "output": 20}
		}
		if finish != "" {
			info["finish"], info["time"] = finish, map[string]any{"completed": 2}
		}
		c.opencode("message.updated", map[string]any{"info": info})
	}
	part := func(message string, p map[string]any) {
		p["id"], p["messageID"], p["sessionID"] = "prt_"+id+message, "msg_"+id+message, c.session()
		c.opencode("message.part.updated", map[string]any{"part": p, "time": 1})
	}
	text := func(message string) { part(message, map[string]any{"type": "text", "text": c.text(600)}) }
	request, call, command := "per_"+id, "call_"+id, "make "+c.text(40)
	run := func(status, output string) {
		part("1", map[string]any{"type": "tool", "tool": "bash", "callID": call,
			"state": map[string]any{"status": status, "input": map[string]any{"command": command}, "output": output}})
	}
	status := func(s string) { c.opencode("session.status", map[string]any{"status": map[string]any{"type": s}}) }
	message("0", "user", "")
	text("0")
	status("busy")
	message("1", "assistant", "")
	run("running", "")
	c.opencode(events.PermissionAsked, map[string]any{
		"id": request, "permission": "bash", "patterns": []string{command}, "always": []string{},
		"metadata": map[string]any{"command": command}, "tool": map[string]any{"messageID": "msg_" + id + "1", "callID": call},
	})
	c.add(events.PermissionReferred{Permission: request, Reason: "no rule allows it", Cwd: "/workspace"})
	c.add(events.PermissionDecided{Permission: request, Decision: events.Authorized, Session: c.session(), Call: call,
		Type: "bash", Command: command, Cwd: "/workspace"})
	c.add(events.ExecRequested{Exec: "x" + id, Permission: request, Session: c.session(), Call: call, Command: command,
		Cwd: "/workspace"})
	c.add(events.ExecFinished{Exec: "x" + id, Stdout: events.Output{Text: c.text(1500)}})
	run("completed", c.text(1500))
	message("1", "assistant", "tool-calls")
	message("2", "assistant", "")
	text("2")
	message("2", "assistant", "stop")
	status("idle")
}
