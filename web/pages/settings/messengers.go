package settings

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/a-h/templ"

	"pocketcoder/events"
	"pocketcoder/handlers/channel"
	"pocketcoder/web/api"
	"pocketcoder/web/pages/site"
	"pocketcoder/web/pages/visible"
	"pocketcoder/web/query"
)

// pairingView is how an account is paired with a messenger.
type pairingView struct {
	channels []query.Record // also those that are not enabled
	code     *channel.Code  // nil before one was requested
	channel  query.Record   // that the code is for
}

// showPairingCode shows a code that pairs the account with a messenger, once.
func (s Settings) showPairingCode(r *http.Request, caller api.Caller) (templ.Component, error) {
	id := site.Field(r, "channel")
	code, err := s.Channels.Code(r.Context(), caller, id)
	if err != nil {
		return nil, err
	}
	v, err := s.read(r, caller)
	if err != nil {
		return nil, err
	}
	v.pairing.code = &code
	if i := slices.IndexFunc(v.pairing.channels, func(c query.Record) bool { return c.ID() == id }); i >= 0 {
		v.pairing.channel = v.pairing.channels[i]
	}
	return recordsPage(caller, v), nil
}

// canPair reports whether a messenger is set up.
func (v pairingView) canPair() bool {
	return slices.ContainsFunc(v.channels, func(c query.Record) bool { return c.IsTrue("enabled") })
}

// howToSend says what to do with the code.
func (v pairingView) howToSend() string {
	if address := v.channel.Text("address"); address != "" {
		return fmt.Sprintf("Send this as the subject or the first line of a mail to %s, from the address that you "+
			"want to pair.", visible.Line(address))
	}
	return fmt.Sprintf("Send this message to %s from the conversation that you want to pair. In a group, every "+
		"member sends a code.", visible.Line(v.channel.Text("name")))
}

// pairingState says whether a pairing has expired.
func pairingState(r query.Record, now time.Time) string {
	expires, err := time.Parse(events.TimeFormat, r.Text("expires_at"))
	if err == nil && !now.Before(expires) {
		return "expired"
	}
	return ""
}
