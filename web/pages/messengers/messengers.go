// Package messengers serves the page of messengers: it shows a code that pairs an account with a messenger, and lists
// and revokes pairings.
//
// Promises: a code is shown once, to the account that it pairs. A page revokes a pairing only as the API does.
//
// It must not know how a code is used.
package messengers

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/a-h/templ"
	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/handlers/channel"
	"pocketcoder/web/api"
	"pocketcoder/web/pages/site"
	"pocketcoder/web/pages/visible"
	"pocketcoder/web/query"
)

// Messengers serves the page.
type Messengers struct{ *site.Site }

// Handle adds the page to a mux.
func (m Messengers) Handle(mux *http.ServeMux) {
	mux.Handle("GET /messengers", m.Page(m.show))
	mux.Handle("POST /messengers/code", m.Page(m.showCode))
	mux.Handle("POST /messengers/pairings/{id}/revoke", m.Command(m.revoke))
}

// maxShown is the number of channels and of pairings that the page shows.
const maxShown = 200

// view is the content of the page.
type view struct {
	pending  int               // requests and questions that wait for a person, of all chats
	channels []query.Record    // the enabled ones
	names    map[string]string // of channels and accounts, by id
	mailbox  map[string]string // addresses of channels that are mailboxes, by id
	pairings []query.Record
	code     *channel.Code // nil before one was requested
	channel  string        // id of the code's channel
}

func (m Messengers) show(r *http.Request, caller api.Caller) (templ.Component, error) {
	v, err := m.view(r.Context(), caller)
	return page(caller, v), err
}

func (m Messengers) showCode(r *http.Request, caller api.Caller) (templ.Component, error) {
	if err := site.ParseForm(r); err != nil {
		return nil, err
	}
	id := site.Field(r, "channel")
	code, err := m.Channels.Code(r.Context(), caller, id)
	if err != nil {
		return nil, err
	}
	v, err := m.view(r.Context(), caller)
	v.code, v.channel = &code, id
	return page(caller, v), err
}

func (m Messengers) revoke(_ http.ResponseWriter, r *http.Request, caller api.Caller) (string, error) {
	return "/messengers", m.Records.Delete(r.Context(), caller, channel.Pairings, r.PathValue("id"))
}

func (m Messengers) view(ctx context.Context, caller api.Caller) (v view, err error) {
	v.names, v.mailbox = map[string]string{}, map[string]string{}
	err = m.API.SlowView(ctx, caller.Key(), func(db dbx.Builder, _ uint64) error {
		list := func(collection string) ([]query.Record, error) {
			c, err := m.API.Collection(collection)
			if err != nil {
				return nil, err
			}
			page, err := query.List(ctx, db, m.API.Catalogue, c, caller.Request(),
				query.Query{Sort: "-created", PerPage: maxShown, SkipTotal: true})
			return page.Items, err
		}
		all, err := list(channel.Collection)
		if err != nil {
			return err
		}
		for _, c := range all {
			v.names[c.ID()], v.mailbox[c.ID()] = c.Text("name"), c.Text("address")
			if c.IsTrue("enabled") {
				v.channels = append(v.channels, c)
			}
		}
		users, err := list("users")
		if err != nil {
			return err
		}
		for _, u := range users {
			v.names[u.ID()] = u.Text("email")
		}
		v.pairings, err = list(channel.Pairings)
		return err
	})
	if err != nil {
		return v, err
	}
	v.pending, err = m.PendingCount(ctx, caller)
	return v, err
}

// howToSend says what to do with the code.
func (v view) howToSend() string {
	if address := v.mailbox[v.channel]; address != "" {
		return fmt.Sprintf("Send this as the subject or the first line of a mail to %s, from the address that you "+
			"want to pair.", visible.Line(address))
	}
	return fmt.Sprintf("Send this message to %s from the conversation that you want to pair. In a group, every "+
		"member sends a code.", visible.Line(v.names[v.channel]))
}

func isExpired(pairing query.Record, now time.Time) bool {
	expires, err := time.Parse(events.TimeFormat, pairing.Text("expires_at"))
	return err == nil && !now.Before(expires)
}

func revokePath(id string) string { return "/messengers/pairings/" + url.PathEscape(id) + "/revoke" }
