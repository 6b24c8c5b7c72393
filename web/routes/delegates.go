package routes

import (
	"net/http"

	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/delegate"
	"pocketcoder/projections"
	"pocketcoder/web/api"
)

// Delegates serves the routes of the delegates of chats: the tree of a chat, a delegate with its result, its stop, and
// the messages between the chats of a tree. An account that may see a chat may see its delegates. An account that may
// change a chat may stop them.
type Delegates struct {
	API       *api.Server
	Delegates *delegate.Delegates
}

// maxDelegates is the number of delegates or messages of an answer.
const maxDelegates = 200

// letterRequest is a person's message to a delegate.
type letterRequest struct {
	Text    string `json:"text"`
	Urgency string `json:"urgency,omitempty"` // queue, steer or stop
}

type letterAnswer struct {
	Message string `json:"message"`
}

// Worker and Detail describe the answers with delegates. Their names stay, because the API's description has them.
type (
	Worker projections.Delegate
	Detail projections.DelegateDetail
)

func (s *Delegates) Routes() []api.Route {
	const one, inbox = "/api/agents/workers/{id}", "/api/agents/workers/{id}/inbox"
	return []api.Route{
		{Method: "GET", Path: "/api/agents/workers", About: "The delegates of the tree of a chat, in the order in which they were started, or the newest of all chats.", Access: api.Accounts, Query: []api.Param{{Name: "chat", About: "any chat of the tree; the newest delegates of all chats when absent"}, {Name: "limit", Integer: true, About: "at most 1000; 200 when absent"}}, Answer: []Worker{}, Serve: s.list},
		{Method: "GET", Path: one + "/result", About: "A delegate, with its result once there is one.", Access: api.Accounts, Answer: Detail{}, Serve: s.one},
		{Method: "POST", Path: one + "/stop", About: "Stop a delegate, its commands, and the delegates below it.", Access: api.Accounts, Serve: s.stop},
		{Method: "GET", Path: inbox, About: "The newest messages that other chats of the tree sent to a chat, with how far each is.", Access: api.Accounts, Query: []api.Param{{Name: "limit", Integer: true, About: "at most 200; 20 when absent"}}, Answer: []projections.Letter{}, Serve: s.inbox},
		{Method: "POST", Path: inbox, About: "Write to a delegate: queue waits for its turn, steer reaches the running turn, stop ends that turn first.", Access: api.Accounts, Query: once, Body: letterRequest{}, Answer: letterAnswer{}, Serve: s.write},
	}
}

func (s *Delegates) list(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	id := r.URL.Query().Get("chat")
	limit, err := limitOf(r, maxDelegates, 1000)
	if err != nil {
		return err
	}
	if id == "" {
		return s.listAll(w, r, caller, limit)
	}
	if err := s.API.MayView(r.Context(), caller, "chats", id); err != nil && !caller.IsOperator {
		return err
	}
	all, err := s.API.Model.Delegates(r.Context(), id, limit)
	if err != nil {
		return err
	}
	return api.WriteJSON(w, http.StatusOK, all)
}

// listAll lists the delegates in all chats that the caller sees.
func (s *Delegates) listAll(w http.ResponseWriter, r *http.Request, caller api.Caller, limit int) error {
	user := caller.Account
	if caller.Is(account.Admin) || caller.Is(account.Agent) {
		user = ""
	}
	all, err := s.API.Model.DelegatesOfUser(r.Context(), user, limit)
	if err != nil {
		return err
	}
	return api.WriteJSON(w, http.StatusOK, all)
}

func (s *Delegates) one(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	// the operator also sees a deleted delegate, whose worktree may have been kept
	if err := s.API.MayView(r.Context(), caller, "chats", r.PathValue("id")); err != nil && !caller.IsOperator {
		return err
	}
	found, ok, err := s.API.Model.Delegate(r.Context(), r.PathValue("id"))
	if err == nil && !ok {
		err = handlers.Refuse(handlers.NotFound, "Chat %s is not a delegate.", r.PathValue("id"))
	}
	if err != nil {
		return err
	}
	return api.WriteJSON(w, http.StatusOK, found)
}

func (s *Delegates) stop(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	if err := s.Stop(r, caller, r.PathValue("id")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// Stop stops a delegate that the caller may change.
func (s *Delegates) Stop(r *http.Request, caller api.Caller, id string) error {
	if err := s.API.MayWrite(r, caller, id); err != nil {
		return err
	}
	return s.Delegates.Stop(r.Context(), delegate.Stop{Command: handlers.Command{Actor: caller.Actor()}, Delegate: id})
}

func (s *Delegates) inbox(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	id := r.PathValue("id")
	if err := s.API.MayView(r.Context(), caller, "chats", id); err != nil {
		return err
	}
	limit, err := limitOf(r, 20, maxDelegates)
	if err != nil {
		return err
	}
	all, err := s.API.Model.Inbox(r.Context(), id, limit)
	if err != nil {
		return err
	}
	return api.WriteJSON(w, http.StatusOK, all)
}

func (s *Delegates) write(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	id := r.PathValue("id")
	if err := s.API.MayWrite(r, caller, id); err != nil {
		return err
	}
	var body letterRequest
	if err := api.DecodeBody(r, &body); err != nil {
		return err
	}
	message, err := s.Delegates.Send(r.Context(), delegate.Send{Command: caller.Command(),
		Receiver: id, Text: body.Text, Urgency: body.Urgency})
	if err != nil {
		return err
	}
	return api.WriteJSON(w, http.StatusOK, letterAnswer{message})
}
