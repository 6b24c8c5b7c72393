package pages

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

// maxPairings is the number of channels and of pairings that the page shows.
const maxPairings = 200

// messengersView is the content of the page.
type messengersView struct {
	channels []query.Record    // the enabled ones
	names    map[string]string // of channels and accounts, by id
	mailbox  map[string]string // addresses of channels that are mailboxes, by id
	pairings []query.Record
	code     *channel.Code // nil before one was requested
	channel  string        // id of the code's channel
}

func (p Pages) showMessengers(r *http.Request, caller api.Caller) (templ.Component, error) {
	v, err := p.readMessengers(r.Context(), caller)
	return messengersPage(caller, v), err
}

func (p Pages) showPairingCode(r *http.Request, caller api.Caller) (templ.Component, error) {
	id := site.Field(r, "channel")
	code, err := p.Channels.Code(r.Context(), caller, id)
	if err != nil {
		return nil, err
	}
	v, err := p.readMessengers(r.Context(), caller)
	v.code, v.channel = &code, id
	return messengersPage(caller, v), err
}

func (p Pages) revokePairing(_ http.ResponseWriter, r *http.Request, caller api.Caller) (string, error) {
	return "/messengers", p.Records.Delete(r.Context(), caller, channel.Pairings, r.PathValue("id"))
}

func (p Pages) readMessengers(ctx context.Context, caller api.Caller) (v messengersView, err error) {
	v.names, v.mailbox = map[string]string{}, map[string]string{}
	err = p.API.SlowView(ctx, caller.Key(), func(db dbx.Builder, _ uint64) error {
		list := func(collection string) ([]query.Record, error) {
			return p.List(ctx, db, caller, collection, query.Query{Sort: "-created", PerPage: maxPairings})
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
	return v, err
}

// howToSend says what to do with the code.
func (v messengersView) howToSend() string {
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
