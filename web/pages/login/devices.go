package login

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"

	"github.com/pocketbase/dbx"

	"pocketcoder/web/api"
	"pocketcoder/web/query"
)

// device is a browser that shows the notifications of an account.
type device struct {
	id, name string
	token    string // hash of its subscription
	active   bool
}

const (
	devices     = "devices"
	maxBrowsers = 50 // on the page
)

// browsers returns the browsers that show the notifications of an account.
func (l Login) browsers(r *http.Request, caller api.Caller) (all []device, err error) {
	c, err := l.API.Collection(devices)
	if err != nil {
		return nil, err
	}
	err = l.API.SlowView(r.Context(), caller.Key(), func(db dbx.Builder, _ uint64) error {
		q := query.Query{Sort: "created", Filter: `push_service = "webpush"`, PerPage: maxBrowsers, SkipTotal: true}
		page, err := query.List(r.Context(), db, l.API.Catalogue, c, caller.Request(), q)
		for _, record := range page.Items {
			sum := sha256.Sum256([]byte(record.Text("push_token")))
			all = append(all, device{record.ID(), record.Text("name"), hex.EncodeToString(sum[:]), record.IsTrue("is_active")})
		}
		return err
	})
	return all, err
}

// addBrowser stores the subscription of a browser as a device of the account.
func (l Login) addBrowser(_ http.ResponseWriter, r *http.Request, caller api.Caller) (string, error) {
	token := r.PostFormValue("push_token")
	var subscription struct{ Endpoint string }
	if json.Unmarshal([]byte(token), &subscription) != nil || subscription.Endpoint == "" {
		return "", api.BadField("push_token", "validation_invalid_value", "The form has no subscription of a browser.")
	}
	_, err := l.Records.Create(r.Context(), caller, devices, map[string]any{
		"name": clientName(r.UserAgent()), "push_service": "webpush", "push_token": token, "is_active": true,
	})
	return "/account", err
}

// testBrowser sends a notification to a device of the account.
func (l Login) testBrowser(_ http.ResponseWriter, r *http.Request, caller api.Caller) (string, error) {
	return "/account", l.API.Push.Test(r.Context(), caller.Account, r.PathValue("device"))
}

func (l Login) removeBrowser(_ http.ResponseWriter, r *http.Request, caller api.Caller) (string, error) {
	return "/account", l.Records.Delete(r.Context(), caller, devices, r.PathValue("device"))
}
