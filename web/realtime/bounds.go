package realtime

import (
	"cmp"
	"net/http"
	"time"

	"pocketcoder/handlers/account"
	"pocketcoder/web/api"
)

// The largest numbers of connected clients, which bound the memory that they use. An official client connects as a
// guest and logs in within a second.
const (
	maxClients        = 20_000
	maxGuests         = 2_000
	maxAddressClients = 1_500 // guests of one address
	maxAccountClients = 2_000
	maxAccountCostly  = 50 // topics of an account with a filter or an expand
)

func tooMany(what string) api.Problem {
	return api.Problem{Status: http.StatusTooManyRequests, Message: what, Retry: time.Minute}
}

// connect adds the client of a guest.
func (rt *registry) connect(c *client, address string) error {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if len(rt.clients) >= maxClients || rt.guests >= maxGuests {
		return api.Problem{Status: http.StatusServiceUnavailable,
			Message: "Too many clients are connected; try again later.", Retry: time.Minute}
	}
	c.countedFor = "address " + address
	if rt.startedAt[c.countedFor] >= cmp.Or(rt.addressClients, maxAddressClients) {
		return tooMany("Too many clients of this address are connected and have not logged in.")
	}
	rt.clients[c.id] = c
	rt.startedAt[c.countedFor]++
	rt.guests++
	return nil
}

// assign makes the client of a guest the client of an account. mu must be held.
func (rt *registry) assign(c *client, identity account.Identity) error {
	if c.identity != nil {
		return nil
	}
	holder := "account " + api.AccountKey(identity)
	if rt.startedAt[holder] >= cmp.Or(rt.accountClients, maxAccountClients) {
		return tooMany("Too many clients of this account are connected.")
	}
	rt.release(c)
	c.countedFor = holder
	rt.startedAt[holder]++
	return nil
}

// release removes a client from the count of its address or account. mu must be held.
func (rt *registry) release(c *client) {
	if c.identity == nil {
		rt.guests--
	}
	if rt.startedAt[c.countedFor]--; rt.startedAt[c.countedFor] == 0 {
		delete(rt.startedAt, c.countedFor)
	}
}

// limitCostly refuses topics if the account would have too many costly ones. Each costly topic needs a query of its
// own at every change. mu must be held.
func (rt *registry) limitCostly(c *client, identity account.Identity, topics []topic) error {
	costly := map[string]bool{}
	for _, t := range topics {
		if t.costly() {
			costly[t.text] = true
		}
	}
	if len(costly) == 0 {
		return nil
	}
	for _, other := range rt.clients {
		if other == c || other.identity == nil || api.AccountKey(*other.identity) != api.AccountKey(identity) {
			continue
		}
		for text, sub := range other.subscriptions {
			if sub.topic.costly() {
				costly[text] = true
			}
		}
	}
	if len(costly) > maxAccountCostly {
		return api.BadField("subscriptions", "validation_length_too_long",
			"an account follows at most %d topics that have a filter or an expand", maxAccountCostly)
	}
	return nil
}

// costly reports whether a change of the topic can be slow to read.
func (t topic) costly() bool { return t.query["filter"] != "" || t.query["expand"] != "" }
