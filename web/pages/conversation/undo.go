package conversation

import (
	"errors"
	"net/http"
	"net/url"

	"github.com/a-h/templ"
	"github.com/pocketbase/dbx"

	"pocketcoder/projections/timeline"
	"pocketcoder/web/api"
	"pocketcoder/web/pages/site"
)

// revert takes back a message and what followed it, or, without a message, undoes that. changed says what becomes of
// files that were changed later: keep or overwrite. If it is empty and there are any, revert leads to that question.
func (c Conversation) revert(r *http.Request, caller api.Caller, message, changed string) (string, error) {
	id := r.PathValue("id")
	seq, err := c.Chats.Revert(r, caller, id, message, changed)
	var p api.Problem
	if errors.As(err, &p) && p.Status == http.StatusConflict {
		return site.ChatPath(id) + "/undo?" + url.Values{"message": {message}}.Encode(), nil
	}
	if err != nil {
		return "", err
	}
	return site.ChatPath(id), c.API.Model.Wait(r.Context(), seq)
}

// askUndo asks what becomes of the files that were changed later.
func (c Conversation) askUndo(r *http.Request, caller api.Caller) (templ.Component, error) {
	var one timeline.Chat
	err := c.API.SlowView(r.Context(), caller.Key(), func(db dbx.Builder, _ uint64) (err error) {
		one, err = c.Chat(r.Context(), db, caller, r.PathValue("id"))
		return err
	})
	if err != nil {
		return nil, err
	}
	message := r.URL.Query().Get("message")
	files, err := c.Chats.Engine.Changed(r.Context(), one.ID, message)
	return undoQuestion(one, message, files), err
}
