package conversation

import (
	"net/http"
	"strings"

	"github.com/pocketbase/dbx"

	"pocketcoder/handlers/chat"
	"pocketcoder/projections/timeline"
	"pocketcoder/web/api"
	"pocketcoder/web/pages/site"
	"pocketcoder/web/pages/texts"
)

// command is what a person can write into the composer instead of a message.
type command struct {
	name, about string
	run         func(c Conversation, r *http.Request, who api.Caller, argument string) (next string, err error)
}

// commands are all commands, in the order in which the composer lists them.
var commands = []command{
	{"/stop", texts.CommandStop, func(c Conversation, r *http.Request, who api.Caller, _ string) (string, error) {
		return c.abortTurn(nil, r, who)
	}},
	{"/undo", texts.CommandUndo, Conversation.undoLast},
	{"/redo", texts.CommandRedo, Conversation.redo},
	{"/fork", texts.CommandFork, func(c Conversation, r *http.Request, who api.Caller, _ string) (string, error) {
		return c.forkBefore(r, who, "")
	}},
	{"/model", texts.CommandModel, Conversation.useModel},
	{"/rename", texts.CommandRename, func(c Conversation, r *http.Request, who api.Caller, title string) (string, error) {
		return c.update(r, who, map[string]any{"title": title})
	}},
	{"/archive", texts.CommandArchive, func(c Conversation, r *http.Request, who api.Caller, _ string) (string, error) {
		return c.update(r, who, map[string]any{"archived": true})
	}},
	{"/changes", texts.CommandChanges, func(_ Conversation, r *http.Request, _ api.Caller, _ string) (string, error) {
		return site.ChatPath(r.PathValue("id")) + "/changes", nil
	}},
	{"/requests", texts.CommandRequests, func(Conversation, *http.Request, api.Caller, string) (string, error) { return "/requests", nil }},
}

// commandIn returns the command that a text is, with its argument. A text of several lines, or one that begins with
// another word, is a message, even if it begins with a slash: it may name a file.
func commandIn(text string) (c command, argument string, ok bool) {
	text = strings.TrimSpace(text)
	word, argument, _ := strings.Cut(text, " ")
	for _, c := range commands {
		takes := c.name == "/model" || c.name == "/rename"
		if c.name == word && !strings.Contains(text, "\n") && (takes || argument == "") {
			return c, strings.TrimSpace(argument), true
		}
	}
	return c, "", false
}

// undoLast takes back the last message, and what followed it.
func (c Conversation) undoLast(r *http.Request, caller api.Caller, _ string) (string, error) {
	var v chatView
	err := c.API.SlowView(r.Context(), caller.Key(), func(db dbx.Builder, _ uint64) (err error) {
		v, err = c.chatIn(r.Context(), db, caller, r.PathValue("id"))
		return err
	})
	if err == nil && v.aside.Prompt == "" {
		err = api.BadField("text", "validation_invalid_value", texts.NoPrompt)
	}
	if err != nil {
		return "", err
	}
	return c.revert(r, caller, v.aside.Prompt)
}

func (c Conversation) redo(r *http.Request, caller api.Caller, _ string) (string, error) {
	return c.revert(r, caller, "")
}

// forkBefore begins a new chat as this one was before a message, and leads there.
func (c Conversation) forkBefore(r *http.Request, caller api.Caller, message string) (string, error) {
	id, seq, err := c.Chats.Fork(r, caller, chat.Fork{Chat: r.PathValue("id"), Message: message})
	if err != nil {
		return "", err
	}
	return site.ChatPath(id), c.API.Model.Wait(r.Context(), seq)
}

func (c Conversation) update(r *http.Request, caller api.Caller, fields map[string]any) (string, error) {
	id := r.PathValue("id")
	return site.ChatPath(id), c.Records.Update(r.Context(), caller, "chats", id, fields)
}

// selectModel uses the model of a form.
func (c Conversation) selectModel(_ http.ResponseWriter, r *http.Request, caller api.Caller) (string, error) {
	id := r.PathValue("id")
	if model := r.PostFormValue("model"); model != "" {
		return c.useModel(r, caller, model)
	}
	var models timeline.Models
	err := c.API.SlowView(r.Context(), caller.Key(), func(db dbx.Builder, _ uint64) (err error) {
		if _, err := c.Chat(r.Context(), db, caller, id); err != nil {
			return err
		}
		models, err = timeline.ModelsOf(r.Context(), db, id)
		return err
	})
	if err != nil || models.Record == "" {
		return site.ChatPath(id), err
	}
	return site.ChatPath(id), c.Records.Delete(r.Context(), caller, "model_selection", models.Record)
}

// useModel selects a model for the next messages of a chat.
func (c Conversation) useModel(r *http.Request, caller api.Caller, model string) (string, error) {
	if model == "" {
		return "", api.BadField("text", "validation_required", texts.UnknownModel)
	}
	id := r.PathValue("id")
	_, err := c.Records.Create(r.Context(), caller, "model_selection",
		map[string]any{"model": model, "user": caller.Account, "chat": id})
	return site.ChatPath(id), err
}
