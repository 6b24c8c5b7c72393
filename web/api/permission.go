package api

import (
	"encoding/json"
	"net/http"

	"github.com/pocketbase/dbx"

	"pocketcoder/handlers"
	"pocketcoder/projections"
	"pocketcoder/web/query"
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

// permissionAnswer says what a rule says now. When a person has to decide, the record's status tells later.
type permissionAnswer struct {
	Permitted bool   `json:"permitted"`
	ID        string `json:"id"`
	Status    string `json:"status"` // draft, authorized, denied
}

func (s *Server) requestPermission(w http.ResponseWriter, r *http.Request, who caller) error {
	var body permissionRequest
	if err := decodeBody(r, &body); err != nil {
		return err
	}
	if body.Permission == "" {
		return badField("permission", "validation_required", "Cannot be blank.")
	}
	if err := s.see(r.Context(), who, r, "chats", body.Chat); err != nil {
		return badField("chat_id", "validation_missing_rel_records", "There is no such chat.")
	}
	id := ""
	if body.EngineID != "" {
		id = projections.RecordID(who.Account + "/" + body.Chat + "/" + body.EngineID)
	}
	id, status, seq, err := s.Gate.Request(r.Context(), handlers.RequestPermission{
		Command: handlers.Command{Actor: who.actor()}, Chat: body.Chat, Permission: id, Type: body.Permission, Patterns: body.Patterns,
		Metadata: body.Metadata, Message: body.Message, Session: body.Session, MessageID: body.MessageID, Call: body.Call,
	})
	if err == nil {
		err = s.Model.Wait(r.Context(), seq)
	}
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, permissionAnswer{status == "authorized", id, status})
}

// listSSHKeys gives the keys with which the caller may log in to the sandbox, as an authorized_keys file has them.
func (s *Server) listSSHKeys(w http.ResponseWriter, r *http.Request, who caller) error {
	c, _ := collectionNamed("ssh_keys")
	var text []byte
	err := s.Model.View(r.Context(), func(db dbx.Builder, _ uint64) error {
		q := query.Query{Filter: `is_active = true && (expires_at = "" || expires_at > @now)`, Sort: "created", PerPage: 1000, SkipTotal: true}
		found, err := query.List(r.Context(), db, catalogue, c, who.request(r, nil), q)
		for _, key := range found.Items {
			line, _ := key.Get("public_key").(string)
			text = append(append(text, line...), '\n')
		}
		return err
	})
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	_, err = w.Write(text)
	return err
}
