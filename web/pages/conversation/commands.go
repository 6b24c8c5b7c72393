package conversation

import (
	"net/http"
	"strings"

	"github.com/a-h/templ"
	"github.com/pocketbase/dbx"

	"pocketcoder/handlers/chat"
	"pocketcoder/projections/timeline"
	"pocketcoder/web/api"
	"pocketcoder/web/pages/site"
)

// runCommand carries out what a person wrote into the composer instead of a message.
type runCommand func(c Conversation, r *http.Request, who api.Caller, argument string) (next string, err error)

// commands carry out the commands that package chat lists for a page.
var commands = map[string]runCommand{
	chat.SlashHelp:     leadTo("/help"),
	chat.SlashNew:      leadTo("/"),
	chat.SlashChats:    leadTo("/"),
	chat.SlashRequests: leadTo("/requests"),
	chat.SlashChanges: func(_ Conversation, r *http.Request, _ api.Caller, _ string) (string, error) {
		return site.ChatPath(r.PathValue("id")) + "/changes", nil
	},
	chat.SlashModel: Conversation.useModel,
	chat.SlashAgent: Conversation.useAgent,
	chat.SlashUndo:  Conversation.undoLast,
	chat.SlashOmit: func(c Conversation, r *http.Request, who api.Caller, _ string) (string, error) {
		return c.omitAndContinue(nil, r, who)
	},
	chat.SlashRedo: func(c Conversation, r *http.Request, who api.Caller, changed string) (string, error) {
		return c.revert(r, who, "", changed)
	},
	chat.SlashFork: func(c Conversation, r *http.Request, who api.Caller, _ string) (string, error) {
		return c.forkBefore(r, who, "")
	},
	chat.SlashRename: func(c Conversation, r *http.Request, who api.Caller, title string) (string, error) {
		return c.update(r, who, map[string]any{"title": title})
	},
	chat.SlashArchive: func(c Conversation, r *http.Request, who api.Caller, _ string) (string, error) {
		return c.update(r, who, map[string]any{"archived": true})
	},
	chat.SlashStop: func(c Conversation, r *http.Request, who api.Caller, _ string) (string, error) {
		return c.abortTurn(nil, r, who)
	},
}

func leadTo(path string) runCommand {
	return func(Conversation, *http.Request, api.Caller, string) (string, error) { return path, nil }
}

// runnerOf returns the function that carries out the command in a text, and its argument. It is nil for a message. A
// text of several lines is a message. So is a text with another first word, even one with a slash: it may name a file.
func runnerOf(text string) (run runCommand, argument string) {
	command, argument, ok := chat.FindSlashCommand(chat.Page, text)
	if !ok || strings.Contains(strings.TrimSpace(text), "\n") || command.Argument == "" && argument != "" {
		return nil, ""
	}
	return commands[command.Name], argument
}

func (c Conversation) showHelp(*http.Request, api.Caller) (templ.Component, error) {
	return helpPage(), nil
}

// undoLast takes back the last message, and what followed it.
func (c Conversation) undoLast(r *http.Request, caller api.Caller, changed string) (string, error) {
	var v chatView
	err := c.API.SlowView(r.Context(), caller.Key(), func(db dbx.Builder, _ uint64) (err error) {
		v, err = c.chatIn(r.Context(), db, caller, r.PathValue("id"))
		return err
	})
	if err == nil && v.aside.Prompt == "" {
		err = api.BadField("text", "validation_invalid_value", "There is no message to undo.")
	}
	if err != nil {
		return "", err
	}
	return c.revert(r, caller, v.aside.Prompt, changed)
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
		return "", api.BadField("text", "validation_required", "Write a model after the command: /model PROVIDER/MODEL.")
	}
	id := r.PathValue("id")
	_, err := c.Records.Create(r.Context(), caller, "model_selection",
		map[string]any{"model": model, "user": caller.Account, "chat": id})
	return site.ChatPath(id), err
}

// useAgent lets another agent answer the next messages of a chat, or OpenCode alone.
func (c Conversation) useAgent(r *http.Request, caller api.Caller, name string) (string, error) {
	var agents []timeline.Agent
	err := c.API.SlowView(r.Context(), caller.Key(), func(db dbx.Builder, _ uint64) (err error) {
		agents, err = timeline.Agents(r.Context(), db)
		return err
	})
	if err != nil {
		return "", err
	}
	names := []string{"none"}
	for _, a := range agents {
		if a.Name == name {
			return c.update(r, caller, map[string]any{"agent": a.ID})
		}
		names = append(names, a.Name)
	}
	if name != "none" {
		return "", api.BadField("text", "validation_invalid_value", "There is no such agent. Write one of these "+
			"after the command: %s.", strings.Join(names, ", "))
	}
	return c.update(r, caller, map[string]any{"agent": ""})
}
