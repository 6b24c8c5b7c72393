package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/ops/expect"
)

// TestOpenCodeServes has the behaviours for which one OpenCode is enough: a start takes seconds. Each has sessions of
// its own.
func TestOpenCodeServes(t *testing.T) {
	t.Parallel()
	all := startServer(t)
	for _, stage := range []struct {
		name string
		test func(t *testing.T, s *server)
	}{
		{"it prints the address once it listens", printsItsAddress},
		{"requests need the password", requestsNeedThePassword},
		{"the stream begins with server.connected and has heartbeats", streamHasHeartbeats},
		{"unknown objects are answered with 404", unknownObjectsAreGone},
		{"a message with known ids runs once", messageWithKnownIDsRunsOnce},
		{"a message is accepted before it is stored", messageIsAcceptedBeforeItIsStored},
		{"every tool call makes a request", everyToolCallMakesARequest},
		{"a subagent makes requests of its own", subagentMakesRequests},
		{"a subagent's prompt includes files", subagentsPromptIncludesFiles},
		{"a subagent can be any session", subagentCanBeAnySession},
		{"the call of a request is reported with it", callIsReportedWithItsRequest},
		{"requests are listed by directory", requestsAreListedByDirectory},
		{"a request without optional arguments spoils the list", requestSpoilsTheList},
		{"a rejection ends the turn", rejectionEndsTheTurn},
		{"a rejection with a text continues the turn", rejectionWithATextContinues},
		{"a rejection rejects the other requests of the session", rejectionRejectsTheOthers},
		{"questions are listed and answered", questionsAreAnswered},
		{"an abort reports idle before the message ends", abortReportsIdleFirst},
		{"an abort leaves its request in the list", abortLeavesItsRequest},
		{"an abort ends subagents", abortEndsSubagents},
		{"a fork copies the metadata", forkCopiesTheMetadata},
		{"a fork before an unknown message copies all", forkBeforeAnUnknownMessageCopiesAll},
		{"a text is stored when it is complete", textIsStoredWhenComplete},
		{"a part can be replaced", partCanBeReplaced},
		{"a message cannot be deleted during a turn", messageCannotBeDeletedDuringATurn},
		{"messages come in pages", messagesComeInPages},
		{"a message during a turn joins it", messageDuringATurnJoinsIt},
		{"a message names its system prompt and tools", messageNamesSystemPromptAndTools},
		{"a refused model request ends the turn", refusedModelRequestEndsTheTurn},
		{"a failed model request is repeated", failedModelRequestIsRepeated},
		{"a session without a title asks the model for one", sessionWithoutATitleAsksForOne},
		{"the integrations are called about the title", integrationsAreCalledAboutTheTitle},
		{"preloaded code can answer requests", preloadedCodeCanAnswerRequests},
		{"an edit reads the options of jsdiff", editReadsTheOptions},
		{"a deleted session has no history", deletedSessionHasNoHistory},
		{"the database has the events and the sessions", databaseHasEventsAndSessions},
		{"each durable event has a twin", eachDurableEventHasATwin}, // of all before
		{"the history has the durable events", historyHasTheDurableEvents},
	} {
		t.Run(stage.name, func(t *testing.T) { stage.test(t, all.in(t)) })
	}
}

func printsItsAddress(t *testing.T, s *server) {
	expect.Contains(t, s.output.String(), "listening on "+s.client.URL()+"\n")
	version, err := s.client.Health(t.Context())
	s.must(err)
	equal(t, version, s.tools.Version)
}

func requestsNeedThePassword(t *testing.T, s *server) {
	for _, path := range []string{"/global/health", "/global/event", "/session", "/doc"} {
		for _, password := range []string{"", "other"} {
			status, _ := s.call("GET", path, password, "")
			equal(t, status, http.StatusUnauthorized)
		}
		status, _ := s.call("GET", path, s.client.Password(), "")
		equal(t, status, http.StatusOK)
	}
}

func streamHasHeartbeats(t *testing.T, s *server) {
	equal(t, s.stream.all()[0].Type, "server.connected")
	const most = 15 * time.Second // the stream is given up after client.Silence
	begun := time.Now()
	expect.Eventually(t, "a heartbeat", func() bool { return index(s.stream.all(), 0, "server.heartbeat", "") > 0 })
	if took := time.Since(begun); took > most {
		t.Fatalf("the heartbeat came after %s", took)
	}
}

func unknownObjectsAreGone(t *testing.T, s *server) {
	_, err := s.client.Session(t.Context(), client.NewID("ses", time.Now()))
	is := is.New(t)
	is.True(errors.Is(err, client.ErrGone))
	session := s.newSession()
	is.True(errors.Is(s.client.HasMessage(t.Context(), session, client.NewID("msg", time.Now())), client.ErrGone))
	is.True(errors.Is(s.client.Allow(t.Context(), s.workspace, client.NewID("per", time.Now())), client.ErrGone))
	err = s.client.Answer(t.Context(), s.workspace, client.NewID("que", time.Now()), [][]string{{"a"}})
	is.True(errors.Is(err, client.ErrGone))
}

func messageWithKnownIDsRunsOnce(t *testing.T, s *server) {
	session := s.newSession()
	p := s.send(session, command("true")+thenDone)
	r := s.asked(session, 1)
	s.must(s.client.Prompt(t.Context(), session, p)) // while it runs
	s.allow(r)
	s.awaitAnswer(session)
	before := len(s.model.requests(p.Parts[0].Text[:20]))
	s.must(s.client.Prompt(t.Context(), session, p)) // and after it
	next := s.say(session, "@@say next")
	equal(t, len(s.messages(session)), 5) // two messages, two steps and an answer
	equal(t, strings.Count(s.parts(session), p.Parts[0].ID), 1)
	equal(t, len(s.model.requests(p.Parts[0].Text[:20])), before)
	equal(t, len(s.model.requests(next.Parts[0].Text)), 1)
}

func messageIsAcceptedBeforeItIsStored(t *testing.T, s *server) {
	session := s.newSession()
	s.inDatabase("CREATE TRIGGER full BEFORE INSERT ON event BEGIN SELECT RAISE(ABORT, 'full'); END")
	now := time.Now()
	p := client.Prompt{MessageID: client.NewID("msg", now),
		Parts: []client.PromptPart{{ID: client.NewID("prt", now), Type: "text", Text: "@@say lost"}}}
	err := s.client.Prompt(t.Context(), session, p)
	expect.Eventually(t, "OpenCode reports the error", func() bool {
		return index(s.stream.of(session), 0, "session.error", "") >= 0
	})
	s.inDatabase("DROP TRIGGER full")
	s.must(err)
	is.New(t).True(errors.Is(s.client.HasMessage(t.Context(), session, p.MessageID), client.ErrGone))
}

func everyToolCallMakesARequest(t *testing.T, s *server) {
	expect.WriteFile(t, s.workspace+"/read.txt", "text\n")
	session := s.newSession()
	calls := []struct {
		tool, permission string
		args             map[string]any
	}{
		{"bash", "bash", map[string]any{"command": "true", "description": "d"}},
		{"write", "edit", map[string]any{"filePath": s.workspace + "/new.txt", "content": "c"}},
		{"read", "read", map[string]any{"filePath": s.workspace + "/read.txt"}},
		{"edit", "edit", map[string]any{"filePath": s.workspace + "/read.txt", "oldString": "text", "newString": "other"}},
		{"grep", "grep", map[string]any{"pattern": "x", "path": s.workspace, "include": "*"}},
		{"glob", "glob", map[string]any{"pattern": "*", "path": s.workspace}},
		{"webfetch", "webfetch", map[string]any{"url": s.model.url + "/models", "format": "text", "timeout": 5}},
		{"todowrite", "todowrite", map[string]any{"todos": []any{map[string]any{"content": "c", "status": "pending", "priority": "high"}}}},
		{"task", "task", map[string]any{"description": "d", "prompt": "@@say sub", "subagent_type": "general"}},
	}
	var script strings.Builder
	for _, c := range calls {
		script.WriteString(tool(c.tool, c.args) + "@@next\n")
	}
	s.send(session, script.String()+"@@say done")
	for i, c := range calls {
		r := s.asked(session, i+1)
		equal(t, r.Permission, c.permission)
		s.allow(r)
	}
	s.awaitAnswer(session)
	equal(t, expect.ReadFile(t, s.workspace+"/new.txt"), "c")
	equal(t, expect.ReadFile(t, s.workspace+"/read.txt"), "other\n")
}

// task returns a script that calls a subagent with some arguments.
func task(args map[string]any) string {
	args["description"], args["subagent_type"] = "d", "general"
	return tool("task", args) + thenDone
}

// delegate begins a turn with a subagent, and returns the subagent's session.
func (s *server) delegate(session, prompt string) (child string) {
	s.t.Helper()
	s.send(session, task(map[string]any{"prompt": prompt}))
	s.allow(s.asked(session, 1))
	expect.Eventually(s.t, "the subagent's session is reported", func() bool {
		for _, f := range s.stream.all() {
			var p struct{ Info client.Session }
			if f.Type == "session.created" && json.Unmarshal(f.Properties, &p) == nil && p.Info.ParentID == session {
				child = p.Info.ID
			}
		}
		return child != ""
	})
	return child
}

func subagentMakesRequests(t *testing.T, s *server) {
	session := s.newSession()
	child := s.delegate(session, command("true")+"@@next\n@@say of the subagent")
	r := s.asked(child, 1)
	equal(t, r.Permission, "bash")
	s.allow(r)
	s.awaitAnswer(session)
	expect.Contains(t, s.parts(session), "of the subagent")
}

func subagentsPromptIncludesFiles(t *testing.T, s *server) {
	expect.WriteFile(t, s.workspace+"/named.txt", "content of the named file\n")
	session := s.newSession()
	child := s.delegate(session, "@@say of the subagent\nLook at @named.txt")
	s.awaitAnswer(session)
	sent := strings.Join(s.model.requests("Look at @named.txt"), "")
	expect.Contains(t, sent, "content of the named file")
	equal(t, index(s.stream.of(child), 0, "permission.asked", ""), -1)
}

func subagentCanBeAnySession(t *testing.T, s *server) {
	session, other := s.newSession(), s.newSession()
	s.say(other, "@@say one")
	s.send(session, task(map[string]any{"prompt": "@@say continued", "task_id": other}))
	s.allow(s.asked(session, 1))
	s.awaitAnswer(session)
	expect.Contains(t, s.parts(other), `"continued"`)
}

func callIsReportedWithItsRequest(t *testing.T, s *server) {
	session := s.newSession()
	s.send(session, command("echo reported")+thenDone)
	r := s.asked(session, 1)
	running := `"callID":"` + r.Tool.CallID + `"`
	expect.Eventually(t, "the call is reported", func() bool {
		for _, f := range s.stream.of(session) {
			if text := string(f.Properties); f.Type == "message.part.updated" && strings.Contains(text, running) &&
				strings.Contains(text, `"status":"running"`) {
				expect.Contains(t, text, "echo reported")
				return true
			}
		}
		return false
	})
	s.allow(r)
	s.awaitAnswer(session)
}

func requestsAreListedByDirectory(t *testing.T, s *server) {
	session := s.newSession()
	s.send(session, command("true")+thenDone)
	r := s.asked(session, 1)
	is := is.New(t)
	is.True(slices.Contains(s.pending(s.workspace), r.ID))
	other := t.TempDir()
	is.True(!slices.Contains(s.pending(other), r.ID))
	is.True(errors.Is(s.client.Allow(t.Context(), other, r.ID), client.ErrGone))
	statuses, err := s.client.Statuses(t.Context(), s.workspace)
	is.NoErr(err)
	is.Equal(statuses[session].Type, "busy") // also while it waits
	s.allow(r)
	s.awaitAnswer(session)
}

func requestSpoilsTheList(t *testing.T, s *server) {
	session := s.newSession()
	s.send(session, tool("glob", map[string]any{"pattern": "*.none"})+thenDone)
	r := s.asked(session, 1)
	status, _ := s.call("GET", s.inDirectory("/permission"), s.client.Password(), "")
	s.allow(r) // before the check, because the other tests need the list
	s.awaitAnswer(session)
	equal(t, status, http.StatusBadRequest)
	status, _ = s.call("GET", s.inDirectory("/permission"), s.client.Password(), "")
	equal(t, status, http.StatusOK)
}

func rejectionEndsTheTurn(t *testing.T, s *server) {
	session := s.newSession()
	s.send(session, command("true")+thenDone)
	s.must(s.client.Reject(t.Context(), s.workspace, s.asked(session, 1).ID, ""))
	expect.Eventually(t, "the turn ends", func() bool { return s.isIdle(session) })
	expect.Contains(t, s.parts(session), `"The user rejected permission to use this specific tool call."`)
	expect.Lacks(t, s.parts(session), `"done"`)
}

func rejectionWithATextContinues(t *testing.T, s *server) {
	session := s.newSession()
	s.send(session, command("true")+thenDone)
	s.must(s.client.Reject(t.Context(), s.workspace, s.asked(session, 1).ID, "use another command"))
	s.awaitAnswer(session)
	expect.Contains(t, s.parts(session), "use another command")
	expect.Contains(t, s.parts(session), `"done"`)
}

func rejectionRejectsTheOthers(t *testing.T, s *server) {
	session := s.newSession()
	s.send(session, command("true")+command("false")+thenDone)
	first, second := s.asked(session, 1), s.asked(session, 2)
	s.must(s.client.Reject(t.Context(), s.workspace, first.ID, ""))
	expect.Eventually(t, "the turn ends", func() bool { return s.isIdle(session) })
	is.New(t).True(!slices.Contains(s.pending(s.workspace), second.ID))
}

func questionsAreAnswered(t *testing.T, s *server) {
	session := s.newSession()
	s.send(session, tool("question", map[string]any{"questions": []any{map[string]any{
		"question": "Which river?", "header": "River",
		"options": []any{map[string]any{"label": "Rhine", "description": "d"}, map[string]any{"label": "Ebro", "description": "d"}}}}})+thenDone)
	var id string
	expect.Eventually(t, "the question is listed", func() bool {
		all, err := s.client.QuestionRequests(t.Context(), s.workspace)
		s.must(err)
		for _, q := range all {
			if q.SessionID == session {
				id = q.ID
			}
		}
		return id != ""
	})
	s.must(s.client.Answer(t.Context(), s.workspace, id, [][]string{{"Ebro"}}))
	s.awaitAnswer(session)
	expect.Contains(t, strings.Join(s.model.requests("Which river?"), ""), "Ebro")
	expect.Contains(t, s.parts(session), `"done"`)
}

// begin sends a long answer and waits until it has begun.
func (s *server) begin(session string) {
	s.t.Helper()
	s.send(session, "@@text n=5000 delay=20")
	expect.Eventually(s.t, "the answer begins", func() bool {
		return index(s.stream.of(session), 0, "message.part.delta", "") >= 0
	})
}

func abortReportsIdleFirst(t *testing.T, s *server) {
	session := s.newSession()
	s.begin(session)
	s.must(s.client.Abort(t.Context(), session))
	s.awaitAnswer(session)
	var frames []frame
	idle, ended := -1, -1
	expect.Eventually(t, "the end is reported", func() bool {
		frames = s.stream.of(session)
		idle, ended = index(frames, 0, "session.idle", ""), index(frames, 0, "message.updated", `"completed"`)
		return idle >= 0 && ended >= 0
	})
	is := is.New(t)
	is.True(idle < ended)
	expect.Contains(t, string(frames[ended].Properties), "MessageAbortedError")
	expect.Eventually(t, "idle is reported again", func() bool {
		return index(s.stream.of(session), ended, "session.idle", "") > ended
	})
}

func abortLeavesItsRequest(t *testing.T, s *server) {
	session := s.newSession()
	s.send(session, command("true")+thenDone)
	r := s.asked(session, 1)
	s.must(s.client.Abort(t.Context(), session))
	s.awaitAnswer(session)
	left := slices.Contains(s.pending(s.workspace), r.ID)
	_ = s.client.Reject(t.Context(), s.workspace, r.ID, "")
	is.New(t).True(left)
	expect.Contains(t, s.parts(session), `"interrupted":true`)
}

func abortEndsSubagents(t *testing.T, s *server) {
	session := s.newSession()
	child := s.delegate(session, "@@text n=5000 delay=20")
	expect.Eventually(t, "the subagent answers", func() bool {
		return index(s.stream.of(child), 0, "message.part.delta", "") >= 0
	})
	s.must(s.client.Abort(t.Context(), session))
	s.awaitAnswer(session)
	expect.Eventually(t, "the subagent is idle", func() bool { return s.isIdle(child) })
	expect.Contains(t, string(s.awaitAnswer(child).Info.Raw), "MessageAbortedError")
}

func forkCopiesTheMetadata(t *testing.T, s *server) {
	session := s.newSession()
	s.must(s.client.SetMetadata(t.Context(), session, map[string]any{"mark": "x"}))
	s.say(session, "@@say one")
	second := s.say(session, "@@say two")
	copied, err := s.client.Fork(t.Context(), session, second.MessageID)
	s.must(err)
	equal(t, string(copied.Metadata), `{"mark":"x"}`)
	equal(t, len(s.messages(copied.ID)), 2)
	equal(t, copied.ParentID, "")
	expect.Eventually(t, "the copy is reported with its metadata", func() bool {
		return index(s.stream.of(copied.ID), 0, "session.created", `"mark":"x"`) >= 0
	})
}

func forkBeforeAnUnknownMessageCopiesAll(t *testing.T, s *server) {
	session := s.newSession()
	s.say(session, "@@say one")
	copied, err := s.client.Fork(t.Context(), session, client.NewID("msg", time.Now()))
	s.must(err)
	equal(t, len(s.messages(copied.ID)), 2)
}

func textIsStoredWhenComplete(t *testing.T, s *server) {
	session := s.newSession()
	s.begin(session)
	expect.Contains(t, s.parts(session), `"type":"text","text":""`)
	s.must(s.client.Abort(t.Context(), session))
	s.awaitAnswer(session)
}

func partCanBeReplaced(t *testing.T, s *server) {
	session := s.newSession()
	s.say(session, "@@say one")
	all := s.messages(session)
	message := all[len(all)-1].Info.ID
	for _, raw := range all[len(all)-1].Parts {
		var part map[string]any
		s.must(json.Unmarshal(raw, &part))
		if part["type"] != "text" {
			continue
		}
		part["text"] = "replaced"
		s.must(s.client.ReplacePart(t.Context(), session, message, part["id"].(string), part))
	}
	expect.Contains(t, s.parts(session), `"replaced"`)
	expect.Eventually(t, "the change is reported", func() bool {
		return index(s.stream.of(session), 0, "message.part.updated", `"replaced"`) >= 0
	})
}

func messageCannotBeDeletedDuringATurn(t *testing.T, s *server) {
	session := s.newSession()
	first := s.say(session, "@@say one")
	s.send(session, command("true")+thenDone)
	r := s.asked(session, 1)
	err := s.client.DeleteMessage(t.Context(), session, first.MessageID)
	s.allow(r)
	s.awaitAnswer(session)
	is := is.New(t)
	is.True(err != nil)
	is.NoErr(s.client.DeleteMessage(t.Context(), session, first.MessageID))
	is.True(errors.Is(s.client.HasMessage(t.Context(), session, first.MessageID), client.ErrGone))
}

func messagesComeInPages(t *testing.T, s *server) {
	session := s.newSession()
	for _, text := range []string{"@@say one", "@@say two"} {
		s.say(session, text)
	}
	r, err := http.NewRequestWithContext(t.Context(), "GET", s.client.URL()+"/session/"+session+"/message?limit=3", nil)
	s.must(err)
	r.SetBasicAuth("opencode", s.client.Password())
	resp, err := s.client.HTTP().Do(r)
	s.must(err)
	defer resp.Body.Close()
	var page []client.Message
	s.must(json.NewDecoder(resp.Body).Decode(&page))
	all := s.messages(session)
	equal(t, len(page), 3) // the newest, the oldest of them first
	for i := range page {
		equal(t, page[i].Info.ID, all[i+1].Info.ID)
	}
	is.New(t).True(resp.Header.Get("X-Next-Cursor") != "")
}

func messageDuringATurnJoinsIt(t *testing.T, s *server) {
	session := s.newSession()
	s.send(session, command("true")+thenDone)
	r := s.asked(session, 1)
	second := s.send(session, "@@say joined")
	s.must(s.client.HasMessage(t.Context(), session, second.MessageID)) // it is stored at once
	s.allow(r)
	last := s.awaitAnswer(session)
	expect.Contains(t, string(last.Info.Raw), `"parentID":"`+second.MessageID+`"`)
	expect.Lacks(t, s.parts(session), `"done"`) // the answer to both is one
	count := 0
	for _, f := range s.stream.of(session) {
		if f.Type == "session.idle" {
			count++
		}
	}
	equal(t, count, 1)
}

func messageNamesSystemPromptAndTools(t *testing.T, s *server) {
	session := s.newSession()
	now := time.Now()
	s.must(s.client.Prompt(t.Context(), session, client.Prompt{MessageID: client.NewID("msg", now),
		System: "End of the prompt.", Withheld: []string{"bash"},
		Parts: []client.PromptPart{{ID: client.NewID("prt", now), Type: "text", Text: "@@say with a prompt"}}}))
	s.awaitAnswer(session)
	sent := s.model.requests("@@say with a prompt")
	equal(t, len(sent), 1)
	expect.Contains(t, sent[0], `End of the prompt."`)
	expect.Lacks(t, sent[0], `"name":"bash"`)
	expect.Contains(t, string(s.messages(session)[0].Info.Raw), "End of the prompt.")
	s.say(session, "@@say without a prompt")
	sent = s.model.requests("@@say without a prompt")
	expect.Lacks(t, sent[0], `"name":"bash"`) // from now on
	expect.Contains(t, sent[0], `"name":"read"`)
	expect.Lacks(t, sent[0], "End of the prompt.")
}

func refusedModelRequestEndsTheTurn(t *testing.T, s *server) {
	session := s.newSession()
	s.send(session, "@@status 400 broken request")
	last := s.awaitAnswer(session)
	var e struct {
		Name string
		Data struct {
			Message    string
			StatusCode int
		}
	}
	s.must(json.Unmarshal(last.Info.Error, &e))
	equal(t, e.Name, "APIError")
	equal(t, e.Data.StatusCode, 400)
	expect.Contains(t, e.Data.Message, "broken request")
}

func failedModelRequestIsRepeated(t *testing.T, s *server) {
	session := s.newSession()
	s.say(session, "@@header Retry-After: 1\n@@failfirst 1 500 overloaded\n@@say recovered")
	expect.Contains(t, s.parts(session), `"recovered"`)
	is.New(t).True(index(s.stream.of(session), 0, "session.status", `"type":"retry"`) >= 0)
}

func sessionWithoutATitleAsksForOne(t *testing.T, s *server) {
	created, err := s.client.CreateSession(t.Context(), client.NewSession{Directory: s.workspace})
	s.must(err)
	s.say(created.ID, "@@say untitled")
	expect.Eventually(t, "the title is requested", func() bool {
		for _, body := range s.model.requests("Generate a title for this conversation:") {
			if strings.Contains(body, "@@say untitled") {
				expect.Contains(t, body, "You are a title generator.")
				expect.Contains(t, body, "</examples>")
				return true
			}
		}
		return false
	})
	expect.Eventually(t, "the title is reported", func() bool {
		session, err := s.client.Session(t.Context(), created.ID)
		s.must(err)
		return session.Title != created.Title
	})
}

func integrationsAreCalledAboutTheTitle(t *testing.T, s *server) {
	created, err := s.client.CreateSession(t.Context(), client.NewSession{Directory: s.workspace})
	s.must(err)
	s.say(created.ID, "@@say untitled too")
	for _, line := range []string{"start of a title " + created.ID, "finish " + created.ID + " number"} {
		expect.Eventually(t, line, func() bool { return strings.Contains(s.noted(), line+"\n") })
	}
}

func preloadedCodeCanAnswerRequests(t *testing.T, s *server) {
	expect.Contains(t, s.noted(), "preloaded\n")
	status, body := s.call("GET", "/probe", "", "")
	equal(t, status, http.StatusOK)
	equal(t, body, "of the preload")
}

func editReadsTheOptions(t *testing.T, s *server) {
	expect.WriteFile(t, s.workspace+"/compared.txt", strings.Repeat("a line\n", 20))
	session := s.newSession()
	before := s.noted()
	s.send(session, tool("edit", map[string]any{"filePath": s.workspace + "/compared.txt", "oldString": "a line",
		"newString": "another", "replaceAll": true})+thenDone)
	s.allow(s.asked(session, 1))
	s.awaitAnswer(session)
	after := strings.TrimPrefix(s.noted(), before)
	expect.Contains(t, after, "compares\n")
	is.New(t).True(strings.Count(after, "step\n") > 20)
}

func deletedSessionHasNoHistory(t *testing.T, s *server) {
	session := s.newSession()
	s.say(session, "@@say one")
	s.must(s.client.DeleteSession(t.Context(), session))
	expect.Eventually(t, "the end is reported", func() bool {
		return index(s.stream.of(session), 0, "session.deleted", "") >= 0
	})
	for _, e := range s.history("{}") {
		is.New(t).True(e.Aggregate != session)
	}
}

func databaseHasEventsAndSessions(t *testing.T, s *server) {
	s.inDatabase("SELECT id, aggregate_id, seq, type, data FROM event LIMIT 1",
		"SELECT aggregate_id, seq FROM event_sequence LIMIT 1", "SELECT id, parent_id FROM session LIMIT 1")
}

func (s *server) rename(session, title string) {
	s.t.Helper()
	status, _ := s.call("PATCH", "/session/"+session, s.client.Password(), `{"title":"`+title+`"}`)
	equal(s.t, status, http.StatusOK)
}

// durable reports whether the client takes events of a type for durable.
func durable(typ string) bool {
	_, isLive, err := client.ParseEvent([]byte(`{"payload":{"id":"evt_1","type":"` + typ + `"}}`))
	return err == nil && !isLive
}

func eachDurableEventHasATwin(t *testing.T, s *server) {
	is := is.New(t)
	session := s.newSession()
	s.send(session, command("true")+thenDone)
	s.allow(s.asked(session, 1))
	s.awaitAnswer(session)
	s.rename(session, "the last event")
	expect.Eventually(t, "the last event is reported", func() bool {
		return slices.ContainsFunc(s.stream.all(), func(f frame) bool {
			return f.Type == "sync" && strings.Contains(string(f.SyncEvent.Data), "the last event")
		})
	})
	next, twins := map[string]int64{}, map[string]frame{}
	for _, f := range s.stream.all() {
		if f.Type == "sync" {
			is.Equal(f.SyncEvent.Seq, next[f.SyncEvent.AggregateID])
			next[f.SyncEvent.AggregateID]++
			twins[f.ID] = f
		}
	}
	for _, f := range slices.DeleteFunc(s.stream.of(session), func(f frame) bool { return f.Type == "sync" }) {
		twin, ok := twins[f.ID]
		if ok != durable(f.Type) {
			t.Fatalf("%s has a twin: %t", f.Type, ok)
		}
		if ok {
			is.Equal(twin.SyncEvent.Type, f.Type+".1")
			is.Equal(string(twin.SyncEvent.Data), string(f.Properties))
		}
	}
	is.True(next[session] > 10)
}

// stored is an event of the history.
type stored struct {
	ID, Type  string
	Aggregate string `json:"aggregate_id"`
	Seq       int64
}

func (s *server) history(known string) (all []stored) {
	s.t.Helper()
	status, body := s.call("POST", "/sync/history", s.client.Password(), known)
	equal(s.t, status, http.StatusOK)
	s.must(json.Unmarshal([]byte(body), &all))
	return all
}

func historyHasTheDurableEvents(t *testing.T, s *server) {
	is := is.New(t)
	session := s.newSession()
	s.say(session, "@@say one")
	expect.Eventually(t, "the history is that of the stream", func() bool {
		var streamed, held []stored
		for _, f := range s.stream.all() {
			if f.Type == "sync" && f.SyncEvent.AggregateID == session {
				streamed = append(streamed, stored{f.ID, f.SyncEvent.Type, session, f.SyncEvent.Seq})
			}
		}
		for _, e := range s.history("{}") {
			if e.Aggregate == session {
				held = append(held, e)
			}
		}
		return len(held) > 5 && slices.Equal(streamed, held)
	})
	for _, e := range s.history(`{"` + session + `":3}`) {
		is.True(e.Aggregate != session || e.Seq > 3)
	}
}
