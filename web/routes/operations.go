package routes

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"pocketcoder/events/log"
	"pocketcoder/handlers"
	"pocketcoder/handlers/agent"
	"pocketcoder/handlers/channel"
	"pocketcoder/handlers/mcpserver"
	"pocketcoder/handlers/model"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/policy"
	"pocketcoder/handlers/proposal"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/rule"
	"pocketcoder/handlers/sshkey"
	"pocketcoder/projections"
	"pocketcoder/projections/store"
	"pocketcoder/sandbox/wire"
	"pocketcoder/web/api"
	"pocketcoder/web/stream"
)

// Operations serves what the command line and administrators need besides the records: models, rules in force,
// spending, sandbox workers, the state of the log, and a rebuild of the read models.
type Operations struct {
	API      *api.Server
	Log      *log.Log
	Conn     *nats.Conn // may call sandbox workers
	Pool     string     // of the sandbox workers
	Records  *record.Records
	Gate     permission.Gate
	Channels *channel.Channels
	Secrets  mcpserver.Secrets
	Agents   *Agents
	// the model of the configuration, as provider/model
	Configured func() string
}

var spendingQuery = []api.Param{{Name: "chat", About: "only of this chat, with its delegates"},
	{Name: "user", About: "only in the chats of this account"}, {Name: "day", About: "only of this day in UTC, such as 2026-12-24"}}

func (s *Operations) Routes() []api.Route {
	const (
		ofNotes = "/api/pocketcoder/agents/{id}/notes"
		oneNote = ofNotes + "/{name}"
	)
	return []api.Route{
		{Method: "GET", Path: "/api/pocketcoder/policy/rules", About: "The rules in force in every chat, with the built-in ones.", Access: api.Admins, Answer: []policy.Rule{}, Serve: api.Answers(s.rules)},
		{Method: "GET", Path: "/api/pocketcoder/spending", About: "What chats have spent.", Access: api.Accounts, Query: spendingQuery, Answer: projections.Spending{}, Serve: api.Answers(s.spending)},
		{Method: "GET", Path: "/api/pocketcoder/models", About: "The models that can be used, and the selected one.", Access: api.Accounts, Query: []api.Param{{Name: "chat", About: "for which the model is selected"}}, Answer: model.Models{}, Serve: api.Answers(s.models)},
		{Method: "PUT", Path: "/api/pocketcoder/models/selected", About: "Select the model of a chat, of the chats of an account, or of all chats. An empty model ends the selection.", Access: api.Accounts, Body: modelRequest{}, Answer: modelAnswer{}, Serve: api.Takes(s.selectModel)},
		{Method: "GET", Path: "/api/pocketcoder/sandbox/workers", About: "The sandbox workers, their isolation level and their load.", Access: api.Admins, Answer: []wire.WorkerInfo{}, Serve: api.Answers(s.sandboxWorkers)},
		{Method: "GET", Path: "/api/pocketcoder/log", About: "What is wrong with the log: consumers without progress, and events that cannot be read.", Access: api.Admins, Answer: LogState{}, Serve: api.Answers(s.log)},
		{Method: "POST", Path: "/api/pocketcoder/rebuild", About: "Compute the read models again. The events of the stream are progress, and in the end rebuilt or failed.", Access: api.Admins, Media: api.EventStream, Serve: s.rebuild},
		{Method: "POST", Path: "/api/pocketcoder/ssh_keys/{id}/used", About: "Record that an SSH key has logged in.", Access: api.Admins, Serve: s.useKey},
		{Method: "POST", Path: "/api/pocketcoder/webhook_targets/{id}/replay", About: "Send the events from a sequence on again.", Access: api.Admins, Body: replayFrom{}, Serve: s.replayTarget},
		{Method: "PUT", Path: "/api/mcp/{id}/secrets/{name}", About: "Store the value of a variable or a header of an MCP server. The server is named by its name.", Access: api.Admins, Body: secretValue{}, Serve: s.setSecret},
		{Method: "GET", Path: "/api/agents", About: "The agents.", Access: api.Accounts, Answer: []agent.Listed{}, Serve: api.Answers(s.agents)},
		{Method: "GET", Path: "/api/proposals", About: "The proposals.", Access: api.Accounts, Answer: []proposal.Stored{}, Serve: api.Answers(s.proposals)},
		{Method: "GET", Path: ofNotes, About: "The notes of an agent, which is named by its record or its name.", Access: api.Staff, Query: ofProject, Answer: []noteSummary{}, Serve: api.Answers(s.notes)},
		{Method: "GET", Path: oneNote, About: "A note of an agent.", Access: api.Staff, Query: ofProject, Answer: agent.NoteContent{}, Serve: api.Answers(s.note)},
		{Method: "PUT", Path: oneNote, About: "Write a note of an agent, new or not.", Access: api.Admins, Query: ofProject, Body: noteContent{}, Serve: s.saveNote},
		{Method: "DELETE", Path: oneNote, About: "Delete a note of an agent. Its versions can be restored.", Access: api.Admins, Query: ofProject, Serve: s.deleteNote},
	}
}

// noContent answers without a body once the read models hold the event with a sequence.
func (s *Operations) noContent(w http.ResponseWriter, r *http.Request, seq uint64, err error) error {
	if err == nil {
		err = s.API.Model.Wait(r.Context(), seq)
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func commandOf(caller api.Caller) handlers.Command { return handlers.Command{Actor: caller.Actor()} }

func (s *Operations) rules(r *http.Request, _ api.Caller) ([]policy.Rule, error) {
	return s.Gate.InForce(r.Context(), rule.Scope{At: time.Now()})
}

// spending answers to everybody about the chats that they see.
func (s *Operations) spending(r *http.Request, caller api.Caller) (spent projections.Spending, err error) {
	v := r.URL.Query()
	span := projections.SpendingSpan{Chat: v.Get("chat"), User: v.Get("user"), Day: v.Get("day")}
	if span.Chat != "" {
		err = s.API.MayView(r.Context(), caller, "chats", span.Chat)
	} else if span.User != caller.Account {
		err = api.Staff(caller)
	}
	if err != nil {
		return spent, err
	}
	return s.API.Model.Spending(r.Context(), span)
}

func (s *Operations) models(r *http.Request, caller api.Caller) (m model.Models, err error) {
	chat := r.URL.Query().Get("chat")
	if chat != "" {
		if err := s.API.MayView(r.Context(), caller, "chats", chat); err != nil {
			return m, err
		}
	}
	return model.Usable(r.Context(), s.Records, model.List{Chat: chat}, s.Configured)
}

// modelRequest selects a model.
type modelRequest struct {
	Model string `json:"model"`          // provider/model; empty to end the selection
	Chat  string `json:"chat,omitempty"` // the only chat for which it is selected
	User  string `json:"user,omitempty"` // the account for whose chats it is selected
}

type modelAnswer struct {
	Record string `json:"record"` // of the selection
}

// selectModel needs an administrator, unless it selects for a chat or an account of the caller.
func (s *Operations) selectModel(r *http.Request, caller api.Caller, body modelRequest) (a modelAnswer, err error) {
	if body.Chat != "" {
		err = s.API.MayWrite(r, caller, body.Chat)
	} else if body.User != caller.Account {
		err = api.Admins(caller)
	}
	if err != nil {
		return a, err
	}
	id, seq, err := model.Choose(r.Context(), s.Records, model.Select{Command: commandOf(caller), Chat: body.Chat,
		User: body.User, Model: body.Model})
	if err == nil {
		err = s.API.Model.Wait(r.Context(), seq)
	}
	return modelAnswer{id}, err
}

func (s *Operations) sandboxWorkers(r *http.Request, _ api.Caller) ([]wire.WorkerInfo, error) {
	all, err := wire.Workers(r.Context(), s.Conn, s.Pool)
	return append([]wire.WorkerInfo{}, all...), err
}

// LogState says what is wrong with the log. It is about the process that answers.
type LogState struct {
	Stalled     []string          `json:"stalled"` // why consumers make no progress
	DeadLetters store.DeadLetters `json:"dead_letters"`
}

// NamedEvents is how many events that cannot be read are named.
const NamedEvents = 5

func (s *Operations) log(r *http.Request, _ api.Caller) (l LogState, err error) {
	l.Stalled = append([]string{}, s.Log.StalledConsumers()...)
	l.DeadLetters, err = s.API.Model.DeadLetters(r.Context(), NamedEvents)
	return l, err
}

// Rebuilding is the progress of a rebuild of the read models.
type Rebuilding struct {
	Done  uint64 `json:"done"` // sequence reached
	Total uint64 `json:"total"`
}

// Rebuilt is the result of a rebuild of the read models.
type Rebuilt struct {
	Events  uint64  `json:"events"`
	Seconds float64 `json:"seconds"`
	Before  string  `json:"before"` // SHA-256 of the old read models
	After   string  `json:"after"`  // and of the new ones, at the same sequence
}

// progressPause is the shortest time between two progress events of a rebuild.
const progressPause = 100 * time.Millisecond

func (s *Operations) rebuild(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	return stream.ServeEvents(s.API, w, r, s.API.Accounts.Ended(caller.Session),
		func(ctx context.Context, out *stream.EventWriter) error {
			send := func(name string, v any) error {
				body, err := json.Marshal(v)
				if err != nil {
					return err
				}
				return out.Send("", name, body)
			}
			sent := time.Now()
			result, err := s.API.Model.Rebuild(ctx, func(done, total uint64) {
				if time.Since(sent) >= progressPause {
					sent = time.Now()
					_ = send("progress", Rebuilding{done, total}) // the end of the client ends ctx
				}
			})
			if err != nil {
				return send("failed", err.Error())
			}
			return send("rebuilt", Rebuilt{result.Events, result.Duration.Seconds(), result.Before, result.After})
		})
}

func (s *Operations) useKey(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	use := sshkey.Use{Command: commandOf(caller), Key: r.PathValue("id")}
	seq, err := use.Execute(r.Context(), s.Records)
	return s.noContent(w, r, seq, err)
}

// replayFrom names the first event that is sent again.
type replayFrom struct {
	From uint64 `json:"from"` // sequence
}

func (s *Operations) replayTarget(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	var body replayFrom
	if err := api.DecodeBody(r, &body); err != nil {
		return err
	}
	seq, err := s.Channels.Replay(r.Context(), channel.Replay{Command: commandOf(caller), Target: r.PathValue("id"),
		From: body.From})
	return s.noContent(w, r, seq, err)
}

type secretValue struct {
	Value string `json:"value"`
}

func (s *Operations) setSecret(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	var body secretValue
	if err := api.DecodeBody(r, &body); err != nil {
		return err
	}
	return s.noContent(w, r, 0, s.Secrets.Set(r.Context(), mcpserver.SetSecret{Command: commandOf(caller),
		Server: r.PathValue("id"), Name: r.PathValue("name"), Value: body.Value}))
}

func (s *Operations) agents(r *http.Request, _ api.Caller) ([]agent.Listed, error) {
	all, err := s.Agents.Files.List(r.Context())
	return append([]agent.Listed{}, all...), err
}

func (s *Operations) proposals(r *http.Request, _ api.Caller) ([]proposal.Stored, error) {
	all, err := s.Agents.Proposals.List(r.Context())
	return append([]proposal.Stored{}, all...), err
}

func (s *Operations) notes(r *http.Request, _ api.Caller) ([]agent.ListedNote, error) {
	return s.Agents.Notes.List(r.Context(), agent.ListNotes{Agent: r.PathValue("id"),
		Project: r.URL.Query().Get("project")})
}

func (s *Operations) note(r *http.Request, _ api.Caller) (agent.NoteContent, error) {
	return s.Agents.Notes.Read(r.Context(), agent.ReadNote{NoteName: noteIn(r)})
}

// noteSummary describes an element of a list of notes. The API's description has its name.
type noteSummary agent.ListedNote

type noteContent struct {
	Content string `json:"content"`
}

func (s *Operations) saveNote(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	var body noteContent
	if err := api.DecodeBody(r, &body); err != nil {
		return err
	}
	_, seq, err := s.Agents.Notes.Save(r.Context(), agent.SaveNote{Command: commandOf(caller), NoteName: noteIn(r),
		Content: body.Content})
	return s.noContent(w, r, seq, err)
}

func (s *Operations) deleteNote(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	seq, err := s.Agents.Notes.Delete(r.Context(), agent.DeleteNote{Command: commandOf(caller), NoteName: noteIn(r)})
	return s.noContent(w, r, seq, err)
}

// limitOf returns the number of rows that the query asks for.
func limitOf(r *http.Request, otherwise, most int) (int, error) {
	text := r.URL.Query().Get("limit")
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, api.BadField("limit", "validation_invalid_value", "want a number from 1 to %d", most)
	}
	return n, nil
}
