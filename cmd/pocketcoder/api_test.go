package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/cmdtest"
	"pocketcoder/cmd/datadir"
	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/web/webtest"
)

// apiSystem is a system without OpenCode and without a sandbox, for tests of commands. The tests append to the log what
// OpenCode would send.
type apiSystem struct {
	*process
	api *webtest.System
}

// startAPI starts such a system, which stops with the test.
func startAPI(t *testing.T) apiSystem {
	t.Helper()
	s := webtest.NewSystem(t)
	_, seq, err := s.Accounts.CreateAccount(t.Context(), account.CreateAccount{
		Command: handlers.Command{Actor: events.ActorSystem}, Email: adminEmail, Name: "admin", Role: account.Admin,
		Password: adminPassword,
	})
	webtest.Check(t, err)
	webtest.Check(t, s.Model.Wait(t.Context(), seq))
	data := cmdtest.Running(t, s.Web.Local())
	running := datadir.Running{PID: os.Getpid(), HTTP: s.URL, Workspace: s.Workspace}
	webtest.Check(t, data.Announce(running))
	p := &process{t: t, inside: true, data: data, workspace: s.Workspace, Running: running, Log: s.Log, Conn: s.Conn}
	p.System, err = client.Connect(t.Context(), client.Address{Data: data})
	webtest.Check(t, err)
	t.Cleanup(p.System.Close)
	return apiSystem{p, s}
}

// begin appends a turn of a chat that begins, and returns OpenCode's id of the message. The session is named after the
// chat.
func (a apiSystem) begin(t *testing.T, chat, text string) (engineMessage string) {
	t.Helper()
	message, session := a.submit(t, chat, text), "ses_"+chat
	engineMessage = "msg_" + message
	a.api.Append(t, chat, events.SessionBound{Session: session, Directory: a.workspace})
	a.api.Append(t, chat, events.MessageSending{Message: message, Session: session, EngineMessage: engineMessage})
	a.api.Append(t, chat, events.MessageDelivered{Message: message, EngineMessage: engineMessage})
	a.say(t, chat, "session.status", `{"sessionID":%q,"status":{"type":"busy"}}`, session)
	a.say(t, chat, "message.updated", `{"sessionID":%q,"info":{"id":%q,"role":"user","sessionID":%[1]q}}`, session,
		engineMessage)
	return engineMessage
}

// turn appends a whole turn with an answer.
func (a apiSystem) turn(t *testing.T, chat, text, answer string) {
	t.Helper()
	question, session, id := a.begin(t, chat, text), "ses_"+chat, "msg_"+events.NewID()
	a.say(t, chat, "message.updated", `{"sessionID":%q,"info":{"id":%q,"role":"assistant","sessionID":%[1]q,`+
		`"parentID":%[3]q,"tokens":{"input":7},"finish":"stop","time":{"created":1,"completed":2}}}`, session, id, question)
	a.say(t, chat, "message.part.updated", `{"sessionID":%q,"part":{"id":"prt_%s","messageID":%[2]q,"sessionID":%[1]q,`+
		`"type":"text","text":%[3]q,"time":{"start":1,"end":2}}}`, session, id, answer)
	a.say(t, chat, "session.status", `{"sessionID":%q,"status":{"type":"idle"}}`, session)
	a.say(t, chat, "session.idle", `{"sessionID":%q}`, session)
}

// say appends an event of OpenCode.
func (a apiSystem) say(t *testing.T, chat, typ, format string, values ...any) {
	t.Helper()
	a.api.AppendOpenCode(t, chat, typ, fmt.Sprintf(format, values...))
}

// ask appends a request to run a command, which the policy leaves to a person.
func (a apiSystem) ask(t *testing.T, chat, id, command string) (request events.PermissionRequest) {
	t.Helper()
	a.api.AppendCommandRequest(t, chat, id, command)
	a.api.Append(t, chat, events.PermissionReferred{Permission: id, Reason: "no rule allows it", Cwd: a.workspace})
	asked := a.event(t, chat, "opencode."+events.PermissionAsked, func(e events.Event) bool {
		return strings.Contains(string(e.Data), `"id":"`+id+`"`)
	})
	if err := json.Unmarshal(asked.Data, &request); err != nil {
		t.Fatal(err)
	}
	return request
}
