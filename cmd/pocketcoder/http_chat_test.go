package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/cmd/app"
	"pocketcoder/events"
	"pocketcoder/ops/expect"
	"pocketcoder/ops/natsconf"
)

func TestDeletedChatStopsItsCommandAndIsGone(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	admin := p.admin(t)
	chat := admin.create(t, "chats", record{"title": "deleted"})
	path := filepath.Join(p.dir(t), "pids")
	admin.say(t, chat, bash("echo $$ > "+path+"; sleep 300 & echo $! >> "+path+"; wait"))
	request := admin.awaitRequest(t, chat)
	admin.authorize(t, request)
	pids := pidsIn(t, path, 2)

	ctx, cancel := context.WithTimeout(t.Context(), eventTimeout)
	defer cancel()
	stream, err := admin.follow(ctx, "/api/chats/"+chat+"/events", "")
	is.NoErr(err)
	defer stream.Close()
	r := bufio.NewReader(stream)
	for f := (frame{}); f.event != "caught-up"; {
		f, err = nextFrame(r)
		is.NoErr(err)
	}
	is.Equal(admin.do(t, "DELETE", recordPath("chats", chat), nil).code, http.StatusNoContent)
	all, err := io.ReadAll(r)
	is.NoErr(err)
	expect.Contains(t, string(all), "\nevent: deleted\n") // and then the stream ended
	for _, pid := range pids {
		expect.Eventually(t, "the command is gone", func() bool { return !alive(pid) })
	}
	is.Equal(p.finished(t, chat, 0).Reason, "cancelled")
	is.Equal(admin.do(t, "GET", recordPath("chats", chat), nil).code, http.StatusNotFound)
	is.Equal(admin.do(t, "GET", recordPath("permissions", request["id"].(string)), nil).code, http.StatusNotFound)
	is.Equal(admin.do(t, "GET", "/api/chats/"+chat+"/events", nil).code, http.StatusNotFound)
	for _, name := range []string{"messages", "permissions", "executions", "usage"} {
		is.Equal(len(admin.list(t, name, `chat = "`+chat+`"`)), 0) // name
	}
	is.Equal(admin.do(t, "POST", "/api/collections/messages/records",
		record{"chat": chat, "role": "user", "parts": []events.Part{{Type: "text", Text: "hello"}}}).code,
		http.StatusBadRequest)
}

// messageTexts is the text parts of a chat's messages, in the order of the conversation.
func (l login) messageTexts(t testing.TB, chat string) string {
	t.Helper()
	var page struct {
		Items []struct {
			Parts []struct{ Type, Text string }
		}
	}
	l.must(t, "GET", "/api/collections/messages/records?sort=position&filter="+"chat%3D%22"+chat+"%22", nil, &page)
	var texts []string
	for _, m := range page.Items {
		for _, part := range m.Parts {
			if part.Type == "text" {
				texts = append(texts, part.Text)
			}
		}
	}
	return strings.Join(texts, "|")
}

func chatIsForkedAndReverted(t *testing.T, p *process) {
	c := p.startStreamChat(t)
	fork := c.isForked(t)
	c.isReverted(t)
	is.New(t).Equal(c.messageTexts(t, fork), textsOfFork) // the fork stays as it was
	c.effectsAreCarriedOutOnce(t)
}

// streamChat is a chat of the administrator in which the assistant has written stream.txt twice: Rhine, then Danube.
type streamChat struct {
	login
	chat   string
	second string // OpenCode's id of the message that asked for Danube
}

// writesStream is a script that writes stream.txt.
func writesStream(river string) string {
	return call("write", map[string]any{"filePath": "stream.txt", "content": river + "\n"}) + "\n@@next\n@@say wrote " +
		river
}

func (p *process) startStreamChat(t *testing.T) streamChat {
	t.Helper()
	is := is.New(t)
	c := streamChat{login: p.admin(t)}
	c.chat = c.create(t, "chats", record{"title": "rivers"})
	c.create(t, "tool_permissions", record{"tool": "edit", "pattern": "**", "action": "allow", "active": true,
		"chat": c.chat})
	c.turn(t, c.chat, writesStream("Rhine"))
	c.turn(t, c.chat, writesStream("Danube"))
	c.turn(t, c.chat, call("todowrite", map[string]any{"todos": []any{map[string]any{"content": "map the delta",
		"status": "pending", "priority": "high"}}})+"\n@@next\n@@say noted")
	is.Equal(c.do(t, "GET", c.route("todo"), nil).body,
		`[{"content":"map the delta","status":"pending","priority":"high"}]`)
	people := c.list(t, "messages", `chat = "`+c.chat+`" && role = "user"`)
	is.Equal(len(people), 3)
	c.second = people[1]["ai_engine_message_id"].(string)
	return c
}

func (c streamChat) route(what string) string { return "/api/pocketcoder/chats/" + c.chat + "/" + what }

// turn sends a script to a chat and waits until the turn ends.
func (c streamChat) turn(t *testing.T, chat, script string) {
	t.Helper()
	c.say(t, chat, script)
	c.turnEnds(t, chat)
}

func (c streamChat) path() string { return filepath.Join(c.workspace, "stream.txt") }

var textsOfFork = writesStream("Rhine") + "|wrote Rhine|@@say of the fork|of the fork"

func (c streamChat) isForked(t *testing.T) (fork string) {
	is := is.New(t)
	expect.Eventually(t, "OpenCode has made the diff", func() bool {
		diff := c.do(t, "GET", c.route("diff")+"?message="+c.second, nil)
		is.Equal(diff.code, http.StatusOK)
		return strings.Contains(diff.body, "+Danube") && strings.Contains(diff.body, "-Rhine")
	})
	var forked record
	c.must(t, "POST", c.route("fork"), record{"message": c.second, "title": "another river"}, &forked)
	fork = forked["id"].(string)
	is.Equal([]any{forked["title"], forked["user"]}, []any{"another river", c.id})
	expect.Eventually(t, "the fork has the history", func() bool {
		return c.messageTexts(t, fork) == writesStream("Rhine")+"|wrote Rhine"
	})
	c.turn(t, fork, "@@say of the fork")
	is.Equal(c.messageTexts(t, fork), textsOfFork)
	return fork
}

func (c streamChat) isReverted(t *testing.T) {
	is := is.New(t)
	river := func() string { return expect.ReadFile(t, c.path()) }
	whole := c.messageTexts(t, c.chat)
	is.True(strings.HasSuffix(whole, "|noted"))
	is.Equal(river(), "Danube\n")
	var reverted struct {
		Files []string
		Note  string
	}
	is.Equal(c.do(t, "POST", c.route("revert"), record{"message": "msg_unknown"}).code, http.StatusBadRequest)
	c.must(t, "POST", c.route("revert"), record{"message": c.second}, &reverted)
	is.Equal(reverted.Files, []string{c.path()})
	is.Equal(reverted.Note, "")
	expect.Eventually(t, "the file is as it was", func() bool { return river() == "Rhine\n" })
	is.Equal(c.do(t, "POST", c.route("revert"), record{}).code, http.StatusOK)
	expect.Eventually(t, "the file is back", func() bool { return river() == "Danube\n" })
	is.Equal(c.messageTexts(t, c.chat), whole)

	expect.WriteFile(t, c.path(), "Danube\nand a person's\n")
	refused := c.do(t, "POST", c.route("revert"), record{"message": c.second})
	is.Equal(refused.code, http.StatusConflict)
	expect.Contains(t, refused.body, `"files":["`+c.path()+`"]`)
	overwritten := record{"message": c.second, "changed": "overwrite"}
	is.Equal(c.do(t, "POST", c.route("revert"), overwritten).code, http.StatusOK)
	c.turn(t, c.chat, "@@say instead")
	is.Equal(river(), "Rhine\n")
	is.Equal(c.messageTexts(t, c.chat), writesStream("Rhine")+"|wrote Rhine|@@say instead|instead")
}

// effectsAreCarriedOutOnce restarts the system after NATS has forgotten its readers, as in a log that was restored from
// a copy, and after the log has lost the last turn. The log says what was carried out, and OpenCode what was sent.
func (c streamChat) effectsAreCarriedOutOnce(t *testing.T) {
	is := is.New(t)
	c.must(t, "POST", c.route("abort"), nil, nil)
	is.Equal(c.do(t, "POST", c.route("revert"), record{}).code, http.StatusOK)
	effects := func() (counts [2]int) { // requested and ended
		for _, e := range c.history(t, c.chat) {
			switch e.Subject.Kind {
			case events.AbortRequested{}.Kind(), events.RevertRequested{}.Kind(), events.ForkRequested{}.Kind():
				counts[0]++
			case events.EffectDone{}.Kind():
				counts[1]++
			}
		}
		return counts
	}
	expect.Eventually(t, "all is carried out", func() bool { return effects() == [2]int{6, 6} })
	c.turn(t, c.chat, "@@say before the loss")
	c.stop()
	c.forgetConsumers(t)
	c.loseLastTurn(t)
	expect.WriteFile(t, c.path(), "Rhône\n") // by a person
	c.startProcess()
	expect.Eventually(t, "the loss is reported", func() bool {
		reports, _ := filepath.Glob(c.data.Path("lost-events", "*", "report.json"))
		return len(reports) == 1
	})
	is.NoErr(os.RemoveAll(c.data.Path("lost-events"))) // a person has read it; before, the system is not ready
	c.await()
	c.turn(t, c.chat, "@@say after the restart")
	is.Equal(expect.ReadFile(t, c.path()), "Rhône\n")
	is.Equal(effects(), [2]int{6, 6})
	is.Equal(strings.Count(c.messageTexts(t, c.chat), "before the loss"), 2)
	is.Equal(strings.Count(c.messageTexts(t, c.chat), "after the restart"), 2)
	expect.Lacks(t, expect.ReadFile(t, c.data.Path("log-note.json")), "uncertain") // all was compared
}

// loseLastTurn truncates the log of a stopped system before the last event of the chat that a message is being sent.
func (c streamChat) loseLastTurn(t *testing.T) {
	t.Helper()
	is := is.New(t)
	blocks, err := filepath.Glob(c.data.Path("nats", "jetstream", "APP", "streams", "EVENTS", "msgs", "*.blk"))
	is.NoErr(err)
	lost := 0
	for _, path := range blocks {
		at := strings.LastIndex(expect.ReadFile(t, path), events.ChatSubject(c.chat, events.MessageSending{}.Kind()))
		if at >= 0 { // NATS compresses the blocks before the last one
			is.NoErr(os.Truncate(path, int64(at)))
			lost++
		}
	}
	is.Equal(lost, 1)
}

// forgetConsumers deletes what NATS remembers of the readers of a stopped system's log, and the read models.
func (p *process) forgetConsumers(t *testing.T) {
	t.Helper()
	is := is.New(t)
	keys, err := natsconf.LoadKeys(p.data.Path("keys"))
	is.NoErr(err)
	server, err := natsconf.Start(t.Context(), app.NATSConfig(p.data, keys))
	is.NoErr(err)
	defer server.Close()
	options, err := keys.Options(natsconf.Core, "test")
	is.NoErr(err)
	nc, err := nats.Connect("", append(options, nats.InProcessServer(server.Server))...)
	is.NoErr(err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	is.NoErr(err)
	stream, err := js.Stream(t.Context(), "EVENTS")
	is.NoErr(err)
	forgotten := 0
	for name := range stream.ConsumerNames(t.Context()).Name() {
		is.NoErr(stream.DeleteConsumer(t.Context(), name))
		forgotten++
	}
	is.True(forgotten > 0)
	models, err := filepath.Glob(filepath.Join(p.data.ReadModels(), "readmodel*"))
	is.NoErr(err)
	is.True(len(models) > 0)
	for _, file := range models {
		is.NoErr(os.Remove(file))
	}
}
