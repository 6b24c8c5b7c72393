package routes

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"pocketcoder/events"
	"pocketcoder/handlers/chat"
	"pocketcoder/projections"
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
	// keep or overwrite files that were changed later; without it the revert is refused if there are any
	Changed string `json:"changed,omitempty"`
}

// ChangedFault says which files a revert would change although they were changed later.
type ChangedFault struct {
	api.Fault
	Files []string `json:"files"` // absolute paths
}

// revertAnswer names what a revert puts back.
type revertAnswer struct {
	// absolute paths of the files that changed since the message; with "keep" those that were changed later stay
	Files []string `json:"files"`
	Note  string   `json:"note,omitempty"` // why no file is put back
}

// omitAnswer names the files that the model no longer gets.
type omitAnswer struct {
	Files []string `json:"files"`
}

func (s *Chats) omitFiles(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	files, err := s.Omit(r, caller, r.PathValue("id"), "")
	if err != nil {
		return err
	}
	answer := omitAnswer{Files: []string{}}
	for _, f := range files {
		answer.Files = append(answer.Files, f.Name)
	}
	return api.WriteJSON(w, http.StatusOK, answer)
}

// Omit leaves files out of a chat that the caller may change, after the provider refused its last message. A second
// command with the same id, which may be empty, has no effect.
func (s *Chats) Omit(r *http.Request, caller api.Caller, chatID, id string) ([]events.OmittedFile, error) {
	if err := s.API.MayWrite(r, caller, chatID); err != nil {
		return nil, err
	}
	c := chat.Omit{Chat: chatID, Command: caller.Command()}
	c.ID = cmp.Or(id, c.ID)
	files, seq, err := s.Chats.Omit(r.Context(), c)
	if err != nil {
		return nil, err
	}
	return files, s.API.Model.Wait(r.Context(), seq)
}

func (s *Chats) abortChat(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	if err := s.Abort(r, caller, r.PathValue("id")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// Abort stops the turn of a chat that the caller may change.
func (s *Chats) Abort(r *http.Request, caller api.Caller, chatID string) error {
	if err := s.API.MayWrite(r, caller, chatID); err != nil {
		return err
	}
	seq, err := s.Chats.AbortTurn(r.Context(), chat.AbortTurn{Command: caller.Command(),
		Chat: chatID})
	if err != nil {
		return err
	}
	return s.API.Model.Wait(r.Context(), seq) // the page says which messages wait
}

func (s *Chats) forkChat(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	if err := s.API.MayWrite(r, caller, r.PathValue("id")); err != nil {
		return err
	}
	var body forkRequest
	if err := api.DecodeBody(r, &body); err != nil {
		return err
	}
	id, seq, err := s.Fork(r, caller, chat.Fork{Chat: r.PathValue("id"), Message: body.Message, Into: body.Chat,
		Title: body.Title})
	if err != nil {
		return err
	}
	c, _ := s.API.Collection("chats")
	return s.API.AnswerWritten(w, r, caller, c, id, seq)
}

// Fork begins a new chat as one that the caller may change. It returns the id of the new chat and the sequence of its
// event.
func (s *Chats) Fork(r *http.Request, caller api.Caller, c chat.Fork) (id string, seq uint64, err error) {
	if err := s.API.MayWrite(r, caller, c.Chat); err != nil {
		return "", 0, err
	}
	c.Command = caller.Command()
	return s.Chats.Fork(r.Context(), c)
}

func (s *Chats) revertChat(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	chatID := r.PathValue("id")
	if err := s.API.MayWrite(r, caller, chatID); err != nil {
		return err
	}
	var body revertRequest
	if err := api.DecodeBody(r, &body); err != nil {
		return err
	}
	answer := revertAnswer{Files: []string{}} // an undone revert names none
	if body.Message != "" {
		var err error
		if answer.Files, err = s.API.Model.FilesSince(r.Context(), chatID, body.Message); err != nil {
			return err
		}
		if len(answer.Files) == 0 {
			answer.Note = projections.NoFiles
		}
	}
	if _, err := s.Revert(r, caller, chatID, body.Message, body.Changed); err != nil {
		return err
	}
	return api.WriteJSON(w, http.StatusOK, answer)
}

// Revert takes back a message, by OpenCode's id, of a chat that the caller may change, and all that followed it.
// Without a message, it undoes the last revert. It returns the sequence of the event. changed says what becomes of
// files that were changed later. If it is empty and there are any, Revert returns a Problem with a ChangedFault.
func (s *Chats) Revert(r *http.Request, caller api.Caller, chatID, message, changed string) (uint64, error) {
	if err := s.API.MayWrite(r, caller, chatID); err != nil {
		return 0, err
	}
	if message != "" {
		known, err := s.API.Model.HasMessage(r.Context(), chatID, message)
		if err != nil {
			return 0, err
		}
		if !known {
			return 0, api.BadField("message", "validation_missing_rel_records", "The chat has no message %q.",
				message)
		}
	}
	switch changed {
	case chat.KeepChanged, chat.OverwriteChanged:
	case "":
		if err := s.checkUnchanged(r.Context(), chatID, message); err != nil {
			return 0, err
		}
	default:
		return 0, api.BadField("changed", "validation_invalid_value", "want keep or overwrite")
	}
	return s.Chats.Revert(r.Context(), chat.Revert{Command: caller.Command(), Chat: chatID,
		Message: message, Overwrite: changed == chat.OverwriteChanged})
}

func (s *Chats) checkUnchanged(ctx context.Context, chatID, message string) error {
	files, err := s.Engine.Changed(ctx, chatID, message)
	if err != nil || len(files) == 0 {
		return err
	}
	const text = `These files were changed later, or cannot be compared. Send changed with "keep" or "overwrite".`
	return api.Problem{Status: http.StatusConflict, Message: text + " " + strings.Join(files, ", "),
		Data: map[string]any{"changed": ChangedFault{api.Fault{Code: "validation_conflict", Message: text}, files}}}
}

func (s *Chats) diffChat(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	diff, err := s.Diff(r, caller, r.PathValue("id"), r.URL.Query().Get("message"))
	if err != nil {
		return err
	}
	return api.WriteJSON(w, http.StatusOK, diff)
}

// Diff returns what a turn of a chat that the caller may view changed in files: a list of {file, patch, additions,
// deletions, status}. message is OpenCode's id of the message that began the turn; without one, the last turn is
// meant.
func (s *Chats) Diff(r *http.Request, caller api.Caller, chatID, message string) (json.RawMessage, error) {
	if err := s.API.MayView(r.Context(), caller, "chats", chatID); err != nil {
		return nil, err
	}
	if _, err := events.ParseID(message); message != "" && err != nil {
		return nil, api.BadField("message", "validation_match_invalid", "want OpenCode's id of a message")
	}
	return s.Engine.Diff(r.Context(), chatID, message)
}

func (s *Chats) todoOfChat(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	if err := s.API.MayView(r.Context(), caller, "chats", r.PathValue("id")); err != nil {
		return err
	}
	todo, err := s.Engine.Todo(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return api.WriteJSON(w, http.StatusOK, todo)
}
