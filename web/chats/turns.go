package chats

import (
	"net/http"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/chat"
	"pocketcoder/projections/turns"
	"pocketcoder/web/api"
)

// forkRequest names the OpenCode id of the message before which the new chat ends. Without one, the new chat has all
// messages.
type forkRequest struct {
	Message string `json:"message,omitempty"`
	Chat    string `json:"chat,omitempty"` // id for the new chat
	Title   string `json:"title,omitempty"`
}

// revertRequest names the OpenCode id of the message to revert. Without one, the last revert is undone.
type revertRequest struct {
	Message string `json:"message,omitempty"`
}

// revertAnswer names what a revert puts back.
type revertAnswer struct {
	Files []string `json:"files"` // absolute paths of all that changed since the message, whoever changed it
}

func (s *Chats) abortChat(w http.ResponseWriter, r *http.Request, who api.Caller) error {
	if err := s.Abort(r, who, r.PathValue("id")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// Abort stops the turn of a chat that the caller may change.
func (s *Chats) Abort(r *http.Request, who api.Caller, chatID string) error {
	if err := s.API.MayWrite(r, who, chatID); err != nil {
		return err
	}
	_, err := s.Chats.AbortTurn(r.Context(), chat.AbortTurn{Command: handlers.Command{Actor: who.Actor()}, Chat: chatID})
	return err
}

func (s *Chats) forkChat(w http.ResponseWriter, r *http.Request, who api.Caller) error {
	chatID := r.PathValue("id")
	if err := s.API.MayWrite(r, who, chatID); err != nil {
		return err
	}
	var body forkRequest
	if err := api.DecodeBody(r, &body); err != nil {
		return err
	}
	id, seq, err := s.Chats.Fork(r.Context(), chat.Fork{
		Command: handlers.Command{Actor: who.Actor()}, Chat: chatID, Message: body.Message, Into: body.Chat, Title: body.Title,
	})
	if err != nil {
		return err
	}
	c, _ := s.API.Collection("chats")
	return s.API.AnswerWritten(w, r, who, c, id, seq)
}

func (s *Chats) revertChat(w http.ResponseWriter, r *http.Request, who api.Caller) error {
	chatID := r.PathValue("id")
	if err := s.API.MayWrite(r, who, chatID); err != nil {
		return err
	}
	var body revertRequest
	if err := api.DecodeBody(r, &body); err != nil {
		return err
	}
	files := []string{} // an undone revert names none
	if body.Message != "" {
		var err error
		if files, err = turns.Files(r.Context(), s.API.Model, chatID, body.Message); err != nil {
			return err
		}
	}
	if _, err := s.Chats.Revert(r.Context(), chat.Revert{Command: handlers.Command{Actor: who.Actor()}, Chat: chatID, Message: body.Message}); err != nil {
		return err
	}
	return api.WriteJSON(w, http.StatusOK, revertAnswer{files})
}

func (s *Chats) diffChat(w http.ResponseWriter, r *http.Request, who api.Caller) error {
	if err := s.API.MayView(r.Context(), who, "chats", r.PathValue("id")); err != nil {
		return err
	}
	message := r.URL.Query().Get("message")
	if _, err := events.ParseID(message); message != "" && err != nil {
		return api.BadField("message", "validation_match_invalid", "want OpenCode's id of a message")
	}
	diff, err := s.Engine.Diff(r.Context(), r.PathValue("id"), message)
	if err != nil {
		return err
	}
	return api.WriteJSON(w, http.StatusOK, diff)
}

func (s *Chats) todoOfChat(w http.ResponseWriter, r *http.Request, who api.Caller) error {
	if err := s.API.MayView(r.Context(), who, "chats", r.PathValue("id")); err != nil {
		return err
	}
	todo, err := s.Engine.Todo(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return api.WriteJSON(w, http.StatusOK, todo)
}
