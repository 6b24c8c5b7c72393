package pages

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/a-h/templ"
	"github.com/pocketbase/dbx"

	"pocketcoder/projections/timeline"
	"pocketcoder/web/api"
	"pocketcoder/web/pages/texts"
	"pocketcoder/web/query"
)

// maxChats is the number of chats in the list.
const maxChats = 100

// chatList is the list of chats that an account sees, at one moment.
type chatList struct {
	chats   []timeline.Chat
	pending int // requests and questions that wait for a person, of all chats
	seq     uint64

	archived bool // the archived chats alone, else the others
}

func (p *Pages) listChats(r *http.Request, who api.Caller) (templ.Component, error) {
	l, err := p.chatList(r.Context(), who, archivedOnly(r))
	if err != nil {
		return nil, err
	}
	return listPage(who, l), nil
}

// archivedOnly reports whether a request is about the list of archived chats.
func archivedOnly(r *http.Request) bool { return r.URL.Query().Get("archived") == "true" }

// livePath is the address of the stream of the list.
func (l chatList) livePath() string {
	path := livePath("/live", l.seq)
	if l.archived {
		path += "&archived=true"
	}
	return path
}

func (p *Pages) chatList(ctx context.Context, who api.Caller, archived bool) (l chatList, err error) {
	l.archived = archived
	err = p.API.Ask(ctx, who.Key(), func(db dbx.Builder, seq uint64) error {
		l.seq = seq
		ids, err := p.visible(ctx, db, who, "chats", query.Query{Sort: "-last_active", Filter: "archived = " + strconv.FormatBool(archived), PerPage: maxChats})
		if err != nil {
			return err
		}
		if l.chats, err = timeline.Chats(ctx, db, ids); err != nil {
			return err
		}
		waiting, err := p.pendingIn(ctx, db, who)
		l.pending = len(waiting)
		return err
	})
	return l, err
}

// maxPending is the number of requests, and of questions, that the page of what waits shows at most.
const maxPending = 200

// pendingIn returns what waits for a person in the chats that an account sees.
func (p *Pages) pendingIn(ctx context.Context, db dbx.Builder, who api.Caller) ([]timeline.Entry, error) {
	requests, err := p.visible(ctx, db, who, "permissions", query.Query{Sort: "created", Filter: `status = "draft"`, PerPage: maxPending})
	if err != nil {
		return nil, err
	}
	questions, err := p.visible(ctx, db, who, "questions", query.Query{Sort: "created", Filter: `status = "asked"`, PerPage: maxPending})
	if err != nil {
		return nil, err
	}
	return timeline.Pending(ctx, db, requests, questions)
}

// visible returns the ids of the records that the rules let an account list.
func (p *Pages) visible(ctx context.Context, db dbx.Builder, who api.Caller, collection string, q query.Query) (ids []string, err error) {
	c, err := p.API.Collection(collection)
	if err != nil {
		return nil, err
	}
	q.Fields, q.SkipTotal = "id", true
	page, err := query.List(ctx, db, p.API.Catalogue, c, who.Request(), q)
	for _, r := range page.Items {
		ids = append(ids, r.ID())
	}
	return ids, err
}

// startChat creates a chat with its first message.
func (p *Pages) startChat(_ http.ResponseWriter, r *http.Request, who api.Caller) (string, error) {
	text := field(r, "text")
	if r.PostFormValue("demo") != "" {
		text = texts.Demo
	}
	if strings.TrimSpace(text) == "" {
		return "", api.BadField("text", "validation_required", texts.NothingToSend)
	}
	chat, err := p.Records.Create(r.Context(), who, "chats", map[string]any{"id": r.PostFormValue("id"), "title": titleOf(text)})
	if err != nil {
		return "", err
	}
	return "/chats/" + chat, p.send(r, who, chat, r.PostFormValue("message"), text)
}

// send submits a message. A form that is sent twice has the same id twice, and is one message.
func (p *Pages) send(r *http.Request, who api.Caller, chat, id, text string) error {
	_, err := p.Records.Create(r.Context(), who, "messages", map[string]any{
		"id": id, "chat": chat, "role": "user", "parts": []map[string]string{{"type": "text", "text": text}},
	})
	return err
}

// maxTitle is the length of the title that a chat gets from its first message, in runes.
const maxTitle = 60

// titleOf returns the beginning of the first line of a message as the title of its chat.
func titleOf(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	line = strings.Join(strings.Fields(line), " ")
	if utf8.RuneCountInString(line) > maxTitle {
		line = string([]rune(line)[:maxTitle-1]) + "…"
	}
	return line
}
