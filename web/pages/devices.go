package pages

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
	devicesCollection = "devices"
	maxBrowsers       = 50 // on the page
)

// browsers returns the browsers that show the notifications of an account.
func (p Pages) browsers(r *http.Request, caller api.Caller) (all []device, err error) {
	err = p.API.SlowView(r.Context(), caller.Key(), func(db dbx.Builder, _ uint64) error {
		found, err := p.List(r.Context(), db, caller, devicesCollection,
			query.Query{Sort: "created", Filter: `push_service = "webpush"`, PerPage: maxBrowsers})
		for _, record := range found {
			sum := sha256.Sum256([]byte(record.Text("push_token")))
			all = append(all, device{record.ID(), record.Text("name"), hex.EncodeToString(sum[:]), record.IsTrue("is_active")})
		}
		return err
	})
	return all, err
}

// addBrowser stores the subscription of a browser as a device of the account.
func (p Pages) addBrowser(_ http.ResponseWriter, r *http.Request, caller api.Caller) (string, error) {
	token := r.PostFormValue("push_token")
	var subscription struct{ Endpoint string }
	if json.Unmarshal([]byte(token), &subscription) != nil || subscription.Endpoint == "" {
		return "", api.BadField("push_token", "validation_invalid_value", "The form has no subscription of a browser.")
	}
	_, err := p.Records.Create(r.Context(), caller, devicesCollection, map[string]any{
		"name": clientName(r.UserAgent()), "push_service": "webpush", "push_token": token, "is_active": true,
	})
	return "/account", err
}

// testBrowser sends a notification to a device of the account.
func (p Pages) testBrowser(_ http.ResponseWriter, r *http.Request, caller api.Caller) (string, error) {
	return "/account", p.API.Push.Test(r.Context(), caller.Account, r.PathValue("device"))
}

func (p Pages) removeBrowser(_ http.ResponseWriter, r *http.Request, caller api.Caller) (string, error) {
	return "/account", p.Records.Delete(r.Context(), caller, devicesCollection, r.PathValue("device"))
}
