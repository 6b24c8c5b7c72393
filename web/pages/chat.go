package pages

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/a-h/templ"
	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/handlers/chat"
	"pocketcoder/projections/timeline"
	"pocketcoder/projections/turnstate"
	"pocketcoder/web/api"
	"pocketcoder/web/pages/texts"
	"pocketcoder/web/query"
)

// maxMessages is the number of messages that a page shows at once.
const maxMessages = 200

// chatView is a chat, or what changed in it, at one moment.
type chatView struct {
	chat    timeline.Chat
	pending int // requests and questions that wait for a person, of all chats
	window  timeline.Window
	earlier bool // there are messages before the window
	entries []timeline.Entry
	aside   timeline.Aside
	work    timeline.Work
	seq     uint64
}

func (p *Pages) showChat(r *http.Request, who api.Caller) (templ.Component, error) {
	before, err := positionOf(r, "before")
	if err != nil {
		return nil, err
	}
	var v chatView
	err = p.API.Ask(r.Context(), who.Key(), func(db dbx.Builder, seq uint64) (err error) {
		if v, err = p.chatIn(r.Context(), db, who, r.PathValue("id")); err != nil {
			return err
		}
		v.seq = seq
		if v.window, v.earlier, err = timeline.Latest(r.Context(), db, v.chat.ID, before, maxMessages); err != nil {
			return err
		}
		if v.work, err = timeline.WorkOf(r.Context(), db, v.chat); err != nil {
			return err
		}
		v.entries, err = timeline.Entries(r.Context(), db, v.chat.ID, v.window, 0)
		return err
	})
	if err != nil {
		return nil, err
	}
	return chatPage(who, v), nil
}

// chatIn returns a chat that the account may view, without its entries.
func (p *Pages) chatIn(ctx context.Context, db dbx.Builder, who api.Caller, id string) (v chatView, err error) {
	c, err := p.API.Collection("chats")
	if err != nil {
		return v, err
	}
	if _, err := query.View(ctx, db, p.API.Catalogue, c, id, who.Request(), query.Query{Fields: "id"}); err != nil {
		return v, err
	}
	chats, err := timeline.Chats(ctx, db, []string{id})
	if err != nil {
		return v, err
	}
	v.chat = chats[0] // in the same transaction
	if v.aside, err = timeline.AsideOf(ctx, db, v.chat); err != nil {
		return v, err
	}
	waiting, err := p.pendingIn(ctx, db, who)
	v.pending = len(waiting)
	return v, err
}

// positionOf returns a position that the query names, 0 for none.
func positionOf(r *http.Request, name string) (int64, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return 0, nil
	}
	position, err := strconv.ParseInt(text, 10, 64)
	if err != nil || position < 0 {
		return 0, api.BadField(name, "validation_invalid_type", "want the sequence of an event, got %q", api.Shortened(text, 40))
	}
	return position, nil
}

// running reports whether the chat's turn can be stopped.
func running(c timeline.Chat) bool { return !turnstate.Over(c.State) }

func chatPath(id string) string { return "/chats/" + id }

func (p *Pages) sendMessage(_ http.ResponseWriter, r *http.Request, who api.Caller) (string, error) {
	chat, text := r.PathValue("id"), field(r, "text")
	if strings.TrimSpace(text) == "" {
		return "", api.BadField("text", "validation_required", texts.NothingToSend)
	}
	return chatPath(chat), p.send(r, who, chat, r.PostFormValue("id"), text)
}

func (p *Pages) abortTurn(_ http.ResponseWriter, r *http.Request, who api.Caller) (string, error) {
	chat := r.PathValue("id")
	return chatPath(chat), p.Chats.Abort(r, who, chat)
}

// changeChat renames, archives or unarchives a chat.
func (p *Pages) changeChat(_ http.ResponseWriter, r *http.Request, who api.Caller) (string, error) {
	chat, fields := r.PathValue("id"), map[string]any{}
	if r.PostForm.Has("title") {
		fields["title"] = field(r, "title")
	}
	if r.PostForm.Has("archived") {
		fields["archived"] = r.PostFormValue("archived") == "true"
	}
	return chatPath(chat), p.Records.Update(r.Context(), who, "chats", chat, fields)
}

// undo takes back a message and what followed it, or, without a message, undoes that.
func (p *Pages) undo(_ http.ResponseWriter, r *http.Request, who api.Caller) (string, error) {
	chat := r.PathValue("id")
	seq, err := p.Chats.Revert(r, who, chat, r.PostFormValue("message"))
	if err != nil {
		return "", err
	}
	return chatPath(chat), p.API.Model.Wait(r.Context(), seq)
}

// fork begins a new chat as this one was before a message, and leads there.
func (p *Pages) fork(_ http.ResponseWriter, r *http.Request, who api.Caller) (string, error) {
	id, seq, err := p.Chats.Fork(r, who, chat.Fork{Chat: r.PathValue("id"), Message: r.PostFormValue("message")})
	if err != nil {
		return "", err
	}
	return chatPath(id), p.API.Model.Wait(r.Context(), seq)
}

// decide decides a request that the form shows: the API refuses a decision about any other.
func (p *Pages) decide(_ http.ResponseWriter, r *http.Request, who api.Caller) (string, error) {
	shown := r.PostFormValue("shown_request")
	if shown == "" { // the API takes it for a caller who checks nothing
		return "", api.BadField("shown_request", "validation_required", texts.NothingShown)
	}
	fields := map[string]any{"status": r.PostFormValue("decision"), "shown_request": shown}
	for _, name := range []string{"reason", "edited"} {
		if text := field(r, name); text != "" {
			fields[name] = text
		}
	}
	return p.afterDecision(r), p.Records.Update(r.Context(), who, "permissions", r.PathValue("request"), fields)
}

func (p *Pages) answerQuestion(_ http.ResponseWriter, r *http.Request, who api.Caller) (string, error) {
	fields := map[string]any{"status": "rejected"}
	if r.PostFormValue("decision") != "rejected" {
		answers := r.PostForm["choice"]
		if own := strings.TrimSpace(field(r, "own")); own != "" {
			answers = append(answers, own)
		}
		if len(answers) == 0 {
			return "", api.BadField("choice", "validation_required", texts.NoAnswer)
		}
		fields = map[string]any{"status": "replied", "reply": string(api.MustJSON(answers))}
	}
	return p.afterDecision(r), p.Records.Update(r.Context(), who, "questions", r.PathValue("question"), fields)
}

// afterDecision returns the page from which a form came.
func (p *Pages) afterDecision(r *http.Request) string {
	switch r.PostFormValue("from") {
	case fromRequests:
		return "/requests"
	case fromRequest:
		return singleRequestPath(r.PathValue("request"))
	}
	return chatPath(r.PathValue("id"))
}

// The pages that show cards, as their forms name them.
const (
	fromChat     = "chat"
	fromRequests = "requests"
)

// elementID is the id of the element of an entry.
func elementID(e timeline.Entry) string {
	switch {
	case e.Message != nil:
		return "m-" + e.ID
	case e.Request != nil:
		return "r-" + e.ID
	}
	return "q-" + e.ID
}

// livePath is the address of the stream of a page at a sequence. app.js replaces the sequence when it reconnects.
func livePath(path string, seq uint64) string { return path + "?after=" + strconv.FormatUint(seq, 10) }

// liveAttributes let a page with the end of a chat follow it. Earlier messages are shown as they were.
func liveAttributes(v chatView) templ.Attributes {
	if v.window.Before != 0 {
		return nil
	}
	path := livePath(chatPath(v.chat.ID)+"/live", v.seq)
	return templ.Attributes{"data-live": path + "&from=" + strconv.FormatInt(v.window.From, 10)}
}

// order is the place of an entry among all of its chat, as a text that sorts.
func order(e timeline.Entry) string {
	pad := func(n int64, width int) string {
		text := strconv.FormatInt(n, 10)
		return strings.Repeat("0", max(0, width-len(text))) + text
	}
	return pad(e.Position, 16) + "." + pad(e.Index, 3)
}

func newID() string { return events.NewID() }
