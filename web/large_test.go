package web_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/exec"
	"pocketcoder/projections/store"
	"pocketcoder/sandbox/wire"
	"pocketcoder/web/webtest"
)

// largeChats is the number of chats in the log of BenchmarkLargeLog. Each has largeTurns turns of 16 events: together
// a million events. A further chat has 5,000 messages and 1,700 decisions. The chats belong to ten users.
var (
	largeChats = flag.Int("large.chats", 1000, "number of chats in the log of BenchmarkLargeLog")
	largeTurns = flag.Int("large.turns", 62, "number of turns of each chat in the log of BenchmarkLargeLog, with 16 events each")
)

const longTurns = 1700

// BenchmarkLargeLog measures requests on a log of 1 M events. Requests on one chat are compared with the same requests
// on a small log.
func BenchmarkLargeLog(b *testing.B) {
	small := largeLog{System: webtest.NewSystem(b), user: "ann"}
	_, small.ann = small.User(b, small.user, account.User)
	var l largeLog
	l.System = webtest.NewSystem(b, func(s *webtest.System) {
		l.System = s
		l.fill(b, *largeChats, *largeTurns, longTurns)
	})
	began := time.Now()
	webtest.Check(b, l.Model.Wait(b.Context(), l.last))
	b.Logf("%d events, loaded in %s", l.last, time.Since(began))
	l.user = "user0"
	l.root, l.ann = l.Login(b, "root"), l.Login(b, l.user)
	small.serve(b)
	l.serve(b)
	for b.Loop() {
		l.lists(b)
		targets := []target{
			{"ms", &small, small.Chat(b, small.ann, "small")}, {"large-log", &l, l.Chat(b, l.ann, "new")}, {"long-chat", &l, "long"},
		}
		for name, times := range compare(b, targets) {
			b.ReportMetric(times[0], name+"-"+targets[0].name)
			for i, t := range targets[1:] {
				b.ReportMetric(times[i+1]/times[0], name+"-"+t.name)
			}
		}
	}
	b.ReportMetric(0, "ns/op")
}

// largeLog is a system with that log.
type largeLog struct {
	*webtest.System
	exec      *exec.Executions
	user      string // name of the first user
	root, ann string // tokens of an administrator and of the first user
	users     []string
	requested int
	last      uint64
}

// lists reports the first pages of the collections: the slowest one without a total, and the slowest one with it.
func (l *largeLog) lists(b *testing.B) {
	slowest := map[string]float64{}
	for _, c := range []string{"chats", "messages", "permissions", "questions", "executions", "artifacts", "commands",
		"subagents", "usage"} {
		for _, token := range []string{l.root, l.ann} {
			for _, sort := range []string{"", "&sort=-created"} {
				page := median(20, func(int) { l.get(b, token, webtest.RecordsPath(c)+"?skipTotal=1"+sort) })
				total := median(5, func(int) { l.get(b, token, webtest.RecordsPath(c)+"?perPage=30"+sort) })
				b.Logf("%-12s admin=%t %-14s %8.2f ms, with total %8.2f ms", c, token == l.root, sort, page, total)
				slowest["page"], slowest["total"] = max(slowest["page"], page), max(slowest["total"], total)
			}
		}
	}
	b.ReportMetric(slowest["page"], "slowest-page-ms")
	b.ReportMetric(slowest["total"], "slowest-total-ms")
	b.ReportMetric(median(50, func(int) {
		l.get(b, l.ann, webtest.RecordsPath("chats")+"?sort=-last_active&skipTotal=1")
	}),
		"chats-ms")
	b.ReportMetric(median(50, func(i int) {
		chat := fmt.Sprint("chat", i*len(l.users)%*largeChats)
		l.get(b, l.ann, webtest.RecordsPath("chats")+"/"+chat)
		for _, c := range []string{"messages", "permissions", "executions"} {
			l.get(b, l.ann, webtest.RecordsPath(c)+"?perPage=50&skipTotal=1&sort=-created&filter=chat%3D%22"+chat+"%22")
		}
	}), "open-ms")
}

// target is a chat whose requests are measured.
type target struct {
	name string // ends the names of its metrics
	*largeLog
	chat string
}

// compare returns the medians of requests on each chat, in milliseconds. The chats take turns, so that what else the
// machine does slows down all of them.
func compare(b *testing.B, targets []target) map[string][]float64 {
	const n = 200
	requests := make([][]string, len(targets)) // OpenCode's ids
	for i, t := range targets {
		for range n {
			t.requested++
			requests[i] = append(requests[i], fmt.Sprint("per_asked", t.requested))
			t.AppendCommandRequest(b, t.chat, requests[i][len(requests[i])-1], "make")
		}
	}
	measure := func(n int, fn func(t target, request string, i int)) []float64 {
		took := make([][]time.Duration, len(targets))
		for i := range n {
			for k, t := range targets {
				began := time.Now()
				fn(t, requests[k][i], i)
				took[k] = append(took[k], time.Since(began))
			}
		}
		return medians(took)
	}
	return map[string][]float64{
		"title": measure(n, func(t target, _ string, i int) {
			t.send(b, "PATCH", webtest.RecordsPath("chats")+"/"+t.chat, webtest.Object{"title": fmt.Sprint("title ", i)})
		}),
		"decision": measure(n, func(t target, request string, _ int) {
			t.send(b, "PATCH", webtest.RecordsPath("permissions")+"/"+store.RecordID(request),
				webtest.Object{"status": "authorized"})
		}),
		"exec": measure(n, func(t target, request string, _ int) { t.run(b, t.chat, request) }),
		"message": measure(n, func(t target, _ string, _ int) {
			t.send(b, "POST", webtest.RecordsPath("messages"), webtest.Object{"chat": t.chat, "role": "user",
				"parts": []webtest.Object{{"type": "text", "text": "hello"}}})
		}),
		"why": measure(n, func(t target, request string, _ int) {
			if t.chat == "long" {
				request = "per_long_0"
			}
			t.get(b, t.ann, "/api/pocketcoder/permissions/"+store.RecordID(request)+"/why")
		}),
		"login": measure(20, func(t target, _ string, _ int) { t.Login(b, t.user) }),
	}
}

// send does a request of the user's that changes something.
func (l *largeLog) send(b *testing.B, method, path string, body webtest.Object) {
	if status, answer := l.Raw(b, l.ann, method, path, body); status != 200 {
		b.Fatal(method, path, status, string(answer))
	}
}

// serve carries out authorized commands, with a worker that starts nothing: it is the authorization that is measured.
func (l *largeLog) serve(b *testing.B) {
	l.exec = &exec.Executions{
		Permissions: l.Web.Chats.Gate.Permissions, Session: l.Web.Chats.Gate.Session,
		Log: l.Log, Conn: l.Conn, Engine: "local", Pool: "local", Workspace: l.Workspace, Logger: slog.New(slog.DiscardHandler),
	}
	l.Run(b, l.exec.Run, func(ctx context.Context) error {
		return wire.Serve(ctx, l.Conn, wire.RunSubject("local"),
			wire.Server{Handle: func(context.Context, wire.Request, io.Writer, io.Writer) wire.Result {
				return wire.Result{Reason: wire.Exited}
			}})
	})
}

// run does what pocketcoder-shell does with an authorized command. It takes as long as the authorization and the
// record of the result.
func (l *largeLog) run(b *testing.B, chat, request string) {
	r := wire.Request{Session: "ses_" + chat, Call: "call_" + request, Command: "make", Cwd: l.Workspace}
	result := l.exec.Exec(b.Context(), r, io.Discard, io.Discard)
	if result.Reason != wire.Exited {
		b.Fatal(request, result)
	}
}

func (l *largeLog) get(b *testing.B, token, path string) {
	if status, answer := l.Raw(b, token, "GET", path, nil); status != 200 {
		b.Fatal(path, status, string(answer))
	}
}

// median calls fn n times and returns the median in milliseconds.
func median(n int, fn func(i int)) float64 {
	took := make([]time.Duration, n)
	for i := range n {
		began := time.Now()
		fn(i)
		took[i] = time.Since(began)
	}
	return medians([][]time.Duration{took})[0]
}

// medians returns the median of each list, in milliseconds.
func medians(lists [][]time.Duration) (medians []float64) {
	for _, took := range lists {
		slices.Sort(took)
		medians = append(medians, float64(took[len(took)/2].Microseconds())/1000)
	}
	return medians
}

// fill creates the accounts and appends the events: one turn of each chat after the other, and a further chat of long
// turns.
func (l *largeLog) fill(b *testing.B, chats, turns, long int) {
	l.NewAccount(b, "root", account.Admin)
	for i := range 10 {
		l.users = append(l.users, l.NewAccount(b, fmt.Sprint("user", i), account.User))
	}
	for turn := range max(turns, long) {
		var batch []events.Event
		for chat := range chats {
			if turn < turns {
				batch = append(batch, turnOf(b, fmt.Sprint("chat", chat), turn, l.users[chat%len(l.users)])...)
			}
		}
		if turn < long {
			batch = append(batch, turnOf(b, "long", turn, l.users[0])...)
		}
		seq, err := l.Log.AppendAll(b.Context(), batch)
		webtest.Check(b, err)
		l.last = seq
	}
}

// turnOf is a turn with a command that a person allows. The first one of a chat also creates the chat.
func turnOf(b *testing.B, chat string, turn int, owner string) (all []events.Event) {
	id, session := fmt.Sprintf("%s_%d", chat, turn), "ses_"+chat
	own := func(d events.Data) {
		e, err := events.New(chat, events.UserActor(owner), d)
		webtest.Check(b, err)
		all = append(all, e)
	}
	appendEvent := func(typ string, properties webtest.Object) {
		properties["sessionID"] = session
		body, err := json.Marshal(properties)
		webtest.Check(b, err)
		e, err := events.NewOpenCode(chat, "local", fmt.Sprintf("evt_%s_%d", id, len(all)), int64(turn*16+len(all)),
			events.OpenCode{Type: typ, Properties: body})
		webtest.Check(b, err)
		all = append(all, e)
	}
	part := func(message string, part webtest.Object) {
		part["id"], part["messageID"], part["sessionID"] = "prt_"+id+message, "msg_"+id+message, session
		appendEvent("message.part.updated", webtest.Object{"part": part, "time": 1})
	}
	message := func(n, role, finish string) {
		info := webtest.Object{"id": "msg_" + id + n, "role": role}
		if role == "assistant" {
			info["parentID"], info["providerID"], info["modelID"] = "msg_"+id+"0", "demo", "model"
			info["cost"], info["tokens"] = 0.01, webtest.Object{"input": 100, "output": 20}
		}
		if finish != "" {
			info["finish"], info["time"] = finish, webtest.Object{"completed": 2}
		}
		appendEvent("message.updated", webtest.Object{"info": info})
	}
	command, call, text := "make "+chat, "call_"+id, strings.Repeat("word ", 60)
	state := func(status string) webtest.Object {
		return webtest.Object{"type": "tool", "tool": "bash", "callID": call,
			"state": webtest.Object{"status": status, "input": webtest.Object{"command": command}}}
	}
	if turn == 0 {
		own(events.ChatCreated{Title: chat, User: owner, Engine: "local"})
		own(events.SessionBound{Session: session, Directory: "/workspace"})
	}
	message("0", "user", "")
	part("0", webtest.Object{"type": "text", "text": text})
	appendEvent("session.status", webtest.Object{"status": webtest.Object{"type": "busy"}})
	message("1", "assistant", "")
	part("1", state("running"))
	appendEvent(events.PermissionAsked, webtest.Object{
		"id": "per_" + id, "permission": "bash", "patterns": []string{command}, "always": []string{}, "metadata": webtest.Object{"command": command},
		"tool": webtest.Object{"messageID": "msg_" + id + "1", "callID": call},
	})
	own(events.PermissionReferred{Permission: "per_" + id, Reason: "no rule allows it", Cwd: "/workspace"})
	own(events.PermissionDecided{Permission: "per_" + id, Decision: events.Authorized, Session: session, Call: call,
		Type: "bash", Command: command, Cwd: "/workspace"})
	own(events.ExecRequested{Exec: "x" + id, Permission: "per_" + id, Session: session, Call: call, Command: command,
		Cwd: "/workspace"})
	own(events.ExecFinished{Exec: "x" + id})
	part("1", state("completed"))
	message("1", "assistant", "tool-calls")
	message("2", "assistant", "")
	part("2", webtest.Object{"type": "text", "text": text})
	message("2", "assistant", "stop")
	appendEvent("session.status", webtest.Object{"status": webtest.Object{"type": "idle"}})
	return all
}
