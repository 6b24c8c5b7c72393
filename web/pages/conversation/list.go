package conversation

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"pocketcoder/events"
	"pocketcoder/web/pages/site"

	"github.com/a-h/templ"
	"github.com/pocketbase/dbx"

	"pocketcoder/projections/timeline"
	"pocketcoder/web/api"
	"pocketcoder/web/query"
)

const nothingToSend = "Write a message first."

const (
	maxChats  = 100  // in the list
	maxTagged = 1000 // with any tag, that are looked at for those with one
)

// chatList is the list of chats that an account sees, at one moment.
type chatList struct {
	chats []timeline.Chat
	seq   uint64

	listFilter
	projects projects      // that the account sees
	choices  []site.Option // projects of a new chat; nil if there is nothing to choose
	chosen   string        // of them
	away     absenceSummary
	offerKey bool // only the demo model answers, and the account may store the key of another
}

// listFilter selects the chats that a list shows.
type listFilter struct {
	archived bool   // the archived chats alone, else the others
	tag      string // those with it alone; "" for all
	project  string // those in it alone; "" for all
}

func (c Conversation) listChats(r *http.Request, caller api.Caller) (templ.Component, error) {
	l, err := c.chatList(r.Context(), caller, listedIn(r))
	if err != nil {
		return nil, err
	}
	if len(l.projects) > 1 && !l.archived {
		if err := c.addChoices(r.Context(), caller, &l); err != nil {
			return nil, err
		}
	}
	l.away, err = c.away(r.Context(), caller, l.chats)
	return listPage(caller, l), err
}

func listedIn(r *http.Request) listFilter {
	q := r.URL.Query()
	return listFilter{archived: q.Get("archived") == "true", tag: q.Get("tag"), project: q.Get("project")}
}

func (l listFilter) query() string {
	q := url.Values{}
	if l.archived {
		q.Set("archived", "true")
	}
	if l.tag != "" {
		q.Set("tag", l.tag)
	}
	if l.project != "" {
		q.Set("project", l.project)
	}
	return q.Encode()
}

// with returns the address of the list narrowed by another tag, "" for none.
func (l listFilter) with(tag string) string {
	l.tag = tag
	return "/?" + l.query()
}

// in returns the address of the list narrowed to another project, "" for all.
func (l listFilter) in(project string) string {
	l.project, l.tag = project, "" // its chats have other tags
	return "/?" + l.query()
}

// archive returns the address of the list of archived chats, or of the others.
func (l listFilter) archive(archived bool) string {
	return strings.TrimSuffix("/?"+listFilter{archived: archived, project: l.project}.query(), "?")
}

// livePath is the address of the stream of the list.
func (l chatList) livePath() string {
	return site.LivePath("/live", l.seq) + "&" + l.query()
}

func (c Conversation) chatList(ctx context.Context, caller api.Caller, which listFilter) (l chatList, err error) {
	l.listFilter = which
	err = c.API.SlowView(ctx, caller.Key(), func(db dbx.Builder, seq uint64) error {
		l.seq = seq
		if l.projects, err = c.projectsOf(ctx, db, caller); err != nil {
			return err
		}
		filter := `parent = "" && archived = ` + strconv.FormatBool(l.archived) // a delegate is shown in its parent
		if l.project != "" {
			if l.projects.name(l.project) == "" {
				return query.ErrNotFound
			}
			filter += ` && project = "` + l.project + `"`
		}
		q := query.Query{Sort: "-last_active", Filter: filter, PerPage: maxChats}
		if l.tag != "" {
			q.Filter, q.PerPage = q.Filter+` && tags != ""`, maxTagged
		}
		ids, err := c.Visible(ctx, db, caller, "chats", q)
		if err != nil {
			return err
		}
		if l.chats, err = timeline.Chats(ctx, db, caller.Account, ids); err != nil {
			return err
		}
		if l.tag != "" {
			l.chats = tagged(l.chats, l.tag)
		}
		if err := c.CountPending(ctx, db); !caller.Is("admin") || err != nil {
			return err
		}
		models, err := timeline.ModelsOf(ctx, db, "")
		l.offerKey = models.OnlyDemo()
		return err
	})
	return l, err
}

// startChat creates a chat with its first message.
func (c Conversation) startChat(_ http.ResponseWriter, r *http.Request, caller api.Caller) (string, error) {
	text := site.Field(r, "text")
	if r.PostFormValue("demo") != "" {
		text = "Run `echo Hello from PocketCoder > hello-from-pocketcoder.txt`"
	}
	files, err := filesIn(r)
	if err == nil && strings.TrimSpace(text) == "" && len(files) == 0 {
		err = api.BadField("text", "validation_required", nothingToSend)
	}
	if err != nil {
		return "", err
	}
	if err := checkSize(files); err != nil { // before there is a chat without a message
		return "", err
	}
	fields := map[string]any{"id": r.PostFormValue("id")}
	if project := r.PostFormValue("project"); project != "" {
		fields["project"] = project
	}
	chat, err := c.Records.Create(r.Context(), caller, "chats", fields)
	if err != nil {
		return "", err
	}
	return site.ChatPath(chat), c.send(r, caller, chat, r.PostFormValue("message"), text, files)
}

// send submits a message. A form that is sent twice has the same id twice, and is one message.
func (c Conversation) send(r *http.Request, caller api.Caller, chat, id, text string, files []events.Part) error {
	var parts []events.Part
	if strings.TrimSpace(text) != "" {
		parts = append(parts, events.Part{Type: "text", Text: text})
	}
	parts = append(parts, files...)
	if len(parts) == 0 {
		return api.BadField("text", "validation_required", nothingToSend)
	}
	if err := checkSize(parts); err != nil {
		return err
	}
	_, err := c.Records.Create(r.Context(), caller, "messages", map[string]any{"id": id, "chat": chat, "role": "user",
		"parts": parts, "delivery": r.PostFormValue("delivery")})
	return err
}

// openChat redirects the address /?chat=ID, which is in notifications, to the page of the chat.
func openChat(list http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if chat := r.URL.Query().Get("chat"); chat != "" {
			http.Redirect(w, r, site.ChatPath(url.PathEscape(chat)), http.StatusSeeOther)
			return
		}
		list.ServeHTTP(w, r)
	})
}
