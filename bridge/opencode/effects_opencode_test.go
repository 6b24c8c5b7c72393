package opencode_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode"
	"pocketcoder/bridge/opencode/client"
	"pocketcoder/bridge/opencode/ingest"
	"pocketcoder/bridge/opencode/opencodetest"
	"pocketcoder/bridge/opencode/outbox"
	"pocketcoder/bridge/opencode/provider"
	"pocketcoder/bridge/opencode/snapshots"
	effects "pocketcoder/bridge/outbox"
	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/handlers"
	"pocketcoder/handlers/budget"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/recordtype"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

// bridgedOpenCode is the real OpenCode, bridged to a real log.
type bridgedOpenCode struct {
	t         testing.TB
	workspace string
	client    *client.Client
	model     *projections.Model
	outbox    *outbox.Outbox
	log       *log.Log
	requests  func() string // all that the model got
	tools     *toolServer

	connect func() (disconnect func()) // connects Ingest to OpenCode
}

// TestOpenCodeIsBridgedToALog has all tests for which one OpenCode is enough. A start and the first turn take five
// seconds of processor time.
func TestOpenCodeIsBridgedToALog(t *testing.T) {
	t.Parallel()
	w := newDisconnected(t)
	type stage struct {
		name string
		test func(t *testing.T, w *bridgedOpenCode)
	}
	run := func(stages ...stage) {
		for _, s := range stages {
			t.Run(s.name, func(t *testing.T) { s.test(t, w.in(t)) })
		}
	}
	run( // these connect Ingest themselves
		stage{"missed events are fetched in pages", missedEventsAreFetchedInPages},
		stage{"a message is not sent again once its turn has done something", aMessageIsNotSentAgainOnceItsTurnHasDoneSomething},
	)
	t.Cleanup(w.connect())
	run(
		stage{"a fork starts with the history of its chat", forkStartsWithTheHistoryOfItsChat},
		stage{"a revert restores messages and files", revertRestoresMessagesAndFiles},
		stage{"an undo keeps what a person changed", undoKeepsWhatAPersonChanged},
		stage{"the numbers of an agent reach the model", theNumbersOfAnAgentReachTheModel},
		stage{"the queue is answered in the changed order", queueIsAnsweredInTheChangedOrder},
		stage{"an abort ends a turn with a steered message", abortEndsATurnWithASteeredMessage},
		stage{"tools that rules deny wholly are not offered to the model", toolsThatRulesDenyWhollyAreNotOfferedToTheModel},
		stage{"tool calls cannot block OpenCode", toolCallsCannotBlockOpenCode},
		stage{"many tool calls cannot block OpenCode", manyCallsCannotBlockOpenCode},
		stage{"a refused picture is left out", refusedPictureIsLeftOut},
		stage{"an abort while OpenCode connects its tools ends no other turn", abortWhileOpenCodeConnectsItsTools},
		stage{"a turn whose end OpenCode cannot store is lost", turnWhoseEndOpenCodeCannotStoreIsLost},
	)
}

// in returns a copy of w that reports to t, which is a subtest.
func (w *bridgedOpenCode) in(t *testing.T) *bridgedOpenCode {
	part := *w
	part.t = t
	return &part
}

// readsPictures is a catalogue in which the model reads pictures. OpenCode sends none to other models.
const readsPictures = `{"demo":{"id":"demo","name":"demo","env":[],"models":{"demo":{"id":"demo","name":"demo","release_date":"2026-01-01",
	"attachment":true,"reasoning":true,"temperature":true,"tool_call":true,"limit":{"context":32768,"output":8192},
	"modalities":{"input":["text","image"],"output":["text"]}}}}}`

// newDisconnected starts OpenCode before Ingest is connected.
func newDisconnected(t testing.TB) *bridgedOpenCode {
	t.Helper()
	tools := opencodetest.Tools(t)
	base, requests := startModel(t)
	w := &bridgedOpenCode{t: t, workspace: t.TempDir(), requests: requests}
	expect.MakeRepository(t, w.workspace) // OpenCode takes snapshots only in a repository
	log := eventstest.Log(t)
	w.log = log
	var err error
	w.model, err = projections.Open(t.Context(), expect.MemoryDir(t), log)
	w.must(err)
	instances := make(chan opencode.Instance, 1)
	supervisor := &opencode.Supervisor{
		Tools: tools, Dir: t.TempDir(), Workspace: w.workspace, Shell: "/bin/sh", Logger: slog.New(slog.DiscardHandler),
		Provider: provider.Provider{Model: "demo/demo", BaseURL: base, APIKey: "key-of-the-model", Catalogue: []byte(readsPictures)},
		Started:  func(g opencode.Instance) { instances <- g },
	}
	w.tools = startToolServer(t, supervisor)
	confine(t, supervisor)
	records, permissions := recordtype.Open(log, nil), &permission.Permissions{Log: log}
	logger := slog.New(slog.NewTextHandler(t.Output(), nil))
	in := &ingest.Ingest{
		Engine: chat.DefaultEngine, Directory: w.workspace, Log: log, Model: w.model, Logger: logger,
		Client: func(context.Context) (*client.Client, error) { return w.client, nil }, Pause: ingest.DefaultPause, Changed: func() {},
		IdleLimit: ingest.DefaultIdleLimit,
	}
	out := &outbox.Outbox{
		Ingest: in, Engine: in.Engine, Directory: in.Directory, Log: log, Model: in.Model, Logger: in.Logger, Pause: in.Pause,
		Chats: &chat.Chats{Log: log}, Records: records, Permissions: permissions, Limits: &budget.Budgets{Records: records, Permissions: permissions},
		RetryAfter: effects.RetryAfter, Rules: permission.Gate{Permissions: permissions, Records: records}.RulesOf,
	}
	out.Snapshots = &snapshots.Snapshots{Workspace: w.workspace, Dir: supervisor.SnapshotDir(), Kept: t.TempDir(),
		Git: supervisor.RunGit}
	in.Resend, w.outbox = out.Resend, out
	w.connect = func() func() {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); in.Run(ctx) }()
		return func() { cancel(); <-done }
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	run := func(work func(context.Context) error) { running.Go(func() { work(ctx) }) }
	t.Cleanup(func() { cancel(); running.Wait(); w.model.Close() })
	run(w.model.Run)
	run(supervisor.Run)
	w.client = (<-instances).Client
	run(out.Run)
	return w
}

func (w *bridgedOpenCode) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// say submits a message and sees its turn through, allowing everything.
func (w *bridgedOpenCode) say(chat, text string) {
	w.t.Helper()
	w.submit(chat, text)
	expect.Eventually(w.t, "the turn of "+text, func() bool {
		requests, err := w.model.PendingRequests(w.t.Context())
		w.must(err)
		for _, a := range requests {
			_, _ = w.outbox.Permissions.Decide(w.t.Context(), permission.Decide{Chat: a.Chat, Permission: a.EnginePermission,
				Decision: events.Authorized})
		}
		return w.row(chat).Turn == projections.TurnUser
	})
}

// submit submits a message and waits until the read model has it.
func (w *bridgedOpenCode) submit(chatID, text string) {
	w.t.Helper()
	_, seq, err := w.outbox.Chats.SubmitMessage(w.t.Context(), chat.SubmitMessage{Chat: chatID,
		Parts: []events.Part{{Type: "text", Text: text}}})
	w.must(err)
	w.must(w.model.Wait(w.t.Context(), seq))
}

func (w *bridgedOpenCode) chat() string {
	w.t.Helper()
	chat, seq, err := w.outbox.Chats.Create(w.t.Context(), chat.Create{Title: "rivers", User: "u1"})
	w.must(err)
	w.must(w.model.Wait(w.t.Context(), seq))
	return chat
}

func (w *bridgedOpenCode) fork(chatID, message string) string {
	w.t.Helper()
	into, _, err := w.outbox.Chats.Fork(w.t.Context(), chat.Fork{Chat: chatID, Message: message})
	w.must(err)
	return into
}

func (w *bridgedOpenCode) revert(chatID, message string) {
	w.t.Helper()
	_, err := w.outbox.Chats.Revert(w.t.Context(), chat.Revert{Chat: chatID, Message: message})
	w.must(err)
}

func (w *bridgedOpenCode) row(chat string) projections.Chat {
	w.t.Helper()
	row, _, err := w.model.Chat(w.t.Context(), chat)
	w.must(err)
	return row
}

// shown returns the texts of a chat's messages, and OpenCode's ids of them.
func (w *bridgedOpenCode) shown(chat string) (text string, ids []string) {
	w.t.Helper()
	all, err := w.model.Messages(w.t.Context(), chat)
	w.must(err)
	var texts []string
	for _, m := range all {
		var parts []struct{ Type, Text string }
		w.must(json.Unmarshal([]byte(m.Parts), &parts))
		for _, p := range parts {
			if p.Type == "text" {
				texts = append(texts, p.Text)
			}
		}
		ids = append(ids, m.EngineMessage)
	}
	return strings.Join(texts, "|"), ids
}

func (w *bridgedOpenCode) shows(chat, text string) {
	w.t.Helper()
	shown := ""
	defer func() {
		if w.t.Failed() {
			w.t.Log("it shows", shown)
		}
	}()
	expect.Eventually(w.t, "the chat shows "+text, func() bool { shown, _ = w.shown(chat); return shown == text })
}

func (w *bridgedOpenCode) file(name string) string {
	return expect.ReadFile(w.t, filepath.Join(w.workspace, name))
}

func forkStartsWithTheHistoryOfItsChat(t *testing.T, w *bridgedOpenCode) {
	is := is.New(t)
	chat := w.chat()
	w.say(chat, "@@say one")
	w.say(chat, "@@say two")
	_, ids := w.shown(chat)
	is.Equal(len(ids), 4)
	before := w.row(chat).Session

	whole, part := w.fork(chat, ""), w.fork(chat, ids[2])
	w.say(part, "@@say of the fork") // sent at once: it waits for the fork
	w.shows(whole, "@@say one|one|@@say two|two")
	w.shows(part, "@@say of the fork|@@say one|one|of the fork") // in the order of the log
	messages, err := w.client.Messages(t.Context(), w.row(part).Session)
	is.NoErr(err)
	is.Equal(len(messages), 4) // and in OpenCode at its position
	w.shows(chat, "@@say one|one|@@say two|two")
	expect.Eventually(t, "the fork has its session", func() bool { return w.row(whole).Session != "" })
	is.Equal(w.row(chat).Session, before)
	forkMadeInOpenCodeIsASeparateChat(t, w, chat)

	deep := w.fork(part, "") // and of a fork
	w.say(deep, "@@say five")
	messages, err = w.client.Messages(t.Context(), w.row(deep).Session)
	is.NoErr(err)
	is.Equal(len(messages), 6)

	unknown := w.fork(chat, "msg_nothere") // begins empty
	w.say(unknown, "@@say alone")
	w.shows(unknown, "@@say alone|alone")

	const asking = "@@call bash {\"command\":\"true\",\"description\":\"d\"}\n@@next\n@@say done"
	w.submit(chat, asking)
	w.asking(chat)
	running := w.fork(chat, "")
	expect.Eventually(t, "the other fork has its session", func() bool { return w.row(running).Session != "" })
	w.shows(running, "@@say one|one|@@say two|two|"+asking)
	expect.Eventually(t, "what was running is not in it", func() bool {
		return w.row(running).Turn == projections.TurnUser
	})
	is.Equal(w.row(chat).Turn, projections.TurnAssistant)
	w.say(running, "@@say over")
	w.shows(running, "@@say one|one|@@say two|two|"+asking+"|@@say over|over")
	w.shows(whole, "@@say one|one|@@say two|two")
	expect.Eventually(t, "the first goes on", func() bool { return w.row(chat).Turn == projections.TurnUser })
}

// What is copied in OpenCode itself carries our metadata, and is a chat of its own all the same.
func forkMadeInOpenCodeIsASeparateChat(t *testing.T, w *bridgedOpenCode, chat string) {
	is := is.New(t)
	session := w.row(chat).Session
	copied, err := w.client.Fork(t.Context(), session, "")
	is.NoErr(err)
	adopted := ""
	expect.Eventually(t, "it is adopted", func() bool {
		row, _, err := w.model.Session(t.Context(), copied.ID)
		is.NoErr(err)
		adopted = row.Chat
		return adopted != ""
	})
	w.shows(adopted, "@@say one|one|@@say two|two")
	is.True(adopted != chat)
	is.True(w.row(adopted).Adopted)
	is.Equal(w.row(chat).Session, session)
	w.shows(chat, "@@say one|one|@@say two|two")
}

func revertRestoresMessagesAndFiles(t *testing.T, w *bridgedOpenCode) {
	is := is.New(t)
	chat := w.chat()
	diff, err := w.outbox.Diff(t.Context(), chat, "")
	is.NoErr(err)
	is.Equal(string(diff), "[]") // nothing has run
	todo, err := w.outbox.Todo(t.Context(), chat)
	is.NoErr(err)
	is.Equal(string(todo), "[]")

	write := func(content string) string {
		return fmt.Sprintf("@@call write {\"filePath\":\"f.txt\",\"content\":%q}\n@@next\n@@say wrote %s", content+"\n",
			content)
	}
	w.say(chat, write("first"))
	w.say(chat, `@@call todowrite {"todos":[{"content":"map the delta","status":"pending","priority":"high"}]}`+
		"\n"+write("second"))
	todo, err = w.outbox.Todo(t.Context(), chat)
	is.NoErr(err)
	is.Equal(string(todo), `[{"content":"map the delta","status":"pending","priority":"high"}]`)
	_, ids := w.shown(chat)
	second := ids[3]
	expect.Eventually(t, "the diff of the second turn", func() bool { // OpenCode makes it after the turn
		diff, err = w.outbox.Diff(t.Context(), chat, second)
		is.NoErr(err)
		return strings.Contains(string(diff), "+second")
	})
	diff, err = w.outbox.Diff(t.Context(), chat, "") // of the last turn
	is.NoErr(err)
	expect.Contains(t, string(diff), "+second")
	diff, err = w.outbox.Diff(t.Context(), chat, "other_id")
	is.NoErr(err)
	is.Equal(string(diff), "[]")

	w.revert(chat, second)
	expect.Eventually(t, "the file is as it was", func() bool { return w.file("f.txt") == "first\n" })
	w.revert(chat, "")
	expect.Eventually(t, "the file is back", func() bool { return w.file("f.txt") == "second\n" })
	w.revert(chat, second)
	w.say(chat, "@@say instead") // at once: it comes after the revert
	is.Equal(w.file("f.txt"), "first\n")
	text, _ := w.shown(chat)
	is.Equal(text, write("first")+"|wrote first|@@say instead|instead")

	_, ids = w.shown(chat)
	w.submit(chat, "@@text n=2000 delay=20")
	expect.Eventually(t, "it runs", func() bool {
		_, now := w.shown(chat)
		return len(now) == len(ids)+2 && now[len(now)-1] != ""
	})
	w.revert(chat, ids[len(ids)-2]) // the running turn is stopped first
	w.say(chat, "@@say stopped")
	text, _ = w.shown(chat)
	is.Equal(text, write("first")+"|wrote first|@@say stopped|stopped")
}

// Turns change, make and delete files. A person changes some of them later, and others that no turn changed.
func undoKeepsWhatAPersonChanged(t *testing.T, w *bridgedOpenCode) {
	is := is.New(t)
	write := func(name, text string) { expect.WriteFile(t, filepath.Join(w.workspace, name), text) }
	gone := func(name string) bool {
		_, err := os.Lstat(filepath.Join(w.workspace, name))
		return errors.Is(err, fs.ErrNotExist)
	}
	done := 0
	revert := func(c chat.Revert) (kept []string) {
		t.Helper()
		_, err := w.outbox.Chats.Revert(t.Context(), c)
		w.must(err)
		done++
		expect.Eventually(t, "it is carried out", func() bool {
			_, data := handlerstest.History(t, w.log, c.Chat)
			all := handlerstest.Of[events.EffectDone](data)
			if len(all) == done {
				kept = all[done-1].Kept
			}
			return len(all) == done
		})
		return kept
	}
	changed := func(chatID, message string, names ...string) {
		t.Helper()
		want := []string(nil)
		for _, name := range names {
			want = append(want, filepath.Join(w.workspace, name))
		}
		got, err := w.outbox.Changed(t.Context(), chatID, message)
		is.NoErr(err)
		is.Equal(got, want)
	}
	write("undo/changed", "before\n")
	write("undo/deleted", "old\n")
	write("undo/same", "before\n")
	write("undo/other", "before\n")
	chatID := w.chat()
	w.say(chatID, `@@call bash {"command":"cd undo && echo turn >changed && echo turn >same && rm deleted && echo turn >made","description":"d"}`+
		"\n@@next\n@@say done")
	_, ids := w.shown(chatID)
	message := ids[0]
	changed(chatID, message)

	revert(chat.Revert{Chat: chatID, Message: message}) // undo and redo are inverse, whatever happens elsewhere
	is.Equal([]string{w.file("undo/changed"), w.file("undo/same"), w.file("undo/deleted")},
		[]string{"before\n", "before\n", "old\n"})
	is.True(gone("undo/made"))
	write("undo/other", "a person's\n")
	changed(chatID, "")
	revert(chat.Revert{Chat: chatID})
	is.Equal([]string{w.file("undo/changed"), w.file("undo/same"), w.file("undo/made")},
		[]string{"turn\n", "turn\n", "turn\n"})
	is.True(gone("undo/deleted"))
	is.Equal(w.file("undo/other"), "a person's\n")

	write("undo/changed", "before\n")
	changed(chatID, message) // the undo loses nothing
	write("undo/changed", "turn\nand a person's\n")
	write("undo/made", "a person's\n")
	write("undo/deleted", "a person's\n")
	names := []string{"undo/changed", "undo/deleted", "undo/made"}
	changed(chatID, message, names...)
	is.Equal(len(revert(chat.Revert{Chat: chatID, Message: message})), 3)
	is.Equal([]string{w.file("undo/changed"), w.file("undo/made"), w.file("undo/deleted"), w.file("undo/same")},
		[]string{"turn\nand a person's\n", "a person's\n", "a person's\n", "before\n"})
	changed(chatID, "") // OpenCode's snapshot has them
	write("undo/same", "a person's\n")
	changed(chatID, "", "undo/same")
	is.Equal(len(revert(chat.Revert{Chat: chatID})), 1)
	is.Equal([]string{w.file("undo/changed"), w.file("undo/made"), w.file("undo/deleted"), w.file("undo/same")},
		[]string{"turn\nand a person's\n", "a person's\n", "a person's\n", "a person's\n"})

	is.Equal(len(revert(chat.Revert{Chat: chatID, Message: message, Overwrite: true})), 0)
	is.Equal([]string{w.file("undo/changed"), w.file("undo/deleted"), w.file("undo/same")},
		[]string{"before\n", "old\n", "before\n"})
	is.True(gone("undo/made"))
	left, err := os.ReadDir(w.outbox.Snapshots.Kept)
	is.NoErr(err)
	is.Equal(len(left), 0)
}

func theNumbersOfAnAgentReachTheModel(t *testing.T, w *bridgedOpenCode) {
	expect.Lacks(t, w.requests(), `"temperature":`) // no agent of the other tests has one
	chatID := w.chat()
	save := func(collection, id string, fields map[string]any) {
		_, _, err := w.outbox.Records.Save(t.Context(), record.Save{Command: handlers.Command{Actor: events.ActorSystem},
			New: true, Collection: collection, Record: id, Set: record.Fields(fields)})
		w.must(err)
	}
	save("ai_prompts", "p1", map[string]any{"name": "review", "body": `Write <context temperature="1"/>.`})
	save("ai_agents", "a1", map[string]any{"name": "Exact", "prompt": "p1", "temperature": 0, "top_p": 0.25})
	agent := "a1"
	seq, err := w.outbox.Chats.Update(t.Context(), chat.Update{Chat: chatID, Agent: &agent})
	w.must(err)
	w.must(w.model.Wait(t.Context(), seq))
	before := len(w.requests())
	w.say(chatID, "@@say exactly")
	expect.Contains(t, w.requests()[before:], `"temperature":0,`)
	expect.Contains(t, w.requests()[before:], `"top_p":0.25,`)
}
