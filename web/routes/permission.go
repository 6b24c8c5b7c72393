package routes

import (
	"encoding/json"
	"net/http"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/permission"
	"pocketcoder/projections/store"
	"pocketcoder/web/api"
)

// permissionRequest is an agent's ask.
type permissionRequest struct {
	Permission string          `json:"permission"` // bash, edit, …
	Patterns   []string        `json:"patterns,omitempty"`
	Chat       string          `json:"chat_id"`
	Session    string          `json:"session_id,omitempty"`
	EngineID   string          `json:"opencode_id,omitempty"` // the asker's id for it: asking twice is asking once
	Metadata   json.RawMessage `json:"metadata,omitempty"`    // object; command for bash
	Message    string          `json:"message,omitempty"`
	MessageID  string          `json:"message_id,omitempty"`
	Call       string          `json:"call_id,omitempty"`
}

// permissionAnswer is the decision of a rule. If a person has to decide, the status of the record has the decision
// later.
type permissionAnswer struct {
	Permitted bool   `json:"permitted"`
	ID        string `json:"id"`
	Status    string `json:"status"` // draft, authorized, denied
}

func (s *Chats) requestPermission(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	var body permissionRequest
	if err := api.DecodeBody(r, &body); err != nil {
		return err
	}
	if body.Permission == "" {
		return api.BadField("permission", "validation_required", "Cannot be blank.")
	}
	if err := s.API.MayView(r.Context(), caller, "chats", body.Chat); err != nil {
		return api.BadField("chat_id", "validation_missing_rel_records", "There is no such chat.")
	}
	id := ""
	if body.EngineID != "" {
		id = store.RecordID(caller.Account + "/" + body.Chat + "/" + body.EngineID)
	}
	id, status, seq, err := s.Gate.Submit(r.Context(), permission.Submit{
		Command: handlers.Command{Actor: caller.Actor()}, Chat: body.Chat, Permission: id, Type: body.Permission, Patterns: body.Patterns,
		Metadata: body.Metadata, Message: body.Message, Session: body.Session, MessageID: body.MessageID, Call: body.Call,
	})
	if err == nil {
		err = s.API.Model.Wait(r.Context(), seq)
	}
	if err != nil {
		return err
	}
	return api.WriteJSON(w, http.StatusOK, permissionAnswer{status == events.Authorized, id, status})
}
