package realtime

import (
	"context"
	"net/http"
	"time"

	"pocketcoder/web/api"
)

// subscribe is the request to replace the topics of a client.
type subscribe struct {
	ClientID      string   `json:"clientId"`
	Subscriptions []string `json:"subscriptions"`
}

func (s *Realtime) subscribeRealtime(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	var body subscribe
	if err := api.DecodeBody(r, &body); err != nil {
		return err
	}
	if body.ClientID == "" {
		return api.BadField("clientId", "validation_required", "Cannot be blank.")
	}
	c := s.registry.client(body.ClientID)
	if c == nil {
		return api.Problem{Status: http.StatusNotFound, Message: "Missing or invalid client id."}
	}
	topics, err := parseTopics(s.API.Catalogue, body.Subscriptions)
	if err != nil {
		return err
	}
	if err := s.subscribe(r, c, caller, topics); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (rt *registry) client(id string) *client {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	return rt.clients[id]
}

// subscribe replaces the topics of a client. Topics that stay keep their subscription. A guest sees nothing, so
// nothing is stored for a guest.
func (s *Realtime) subscribe(r *http.Request, c *client, caller api.Caller, topics []topic) error {
	c.subscribing.Lock()
	defer c.subscribing.Unlock()
	rt := &s.registry
	fresh, err := rt.newTopics(c, caller, topics)
	if err != nil || caller.Identity == nil {
		return err
	}
	for i := range fresh {
		if err := s.admit(r, caller, &fresh[i]); err != nil {
			return err
		}
	}
	doubtful := uint64(0) // changes sent over another open connection have arrived, up to here
	if len(fresh) > 0 {
		if doubtful, err = s.Log.At(r.Context(), time.Now().Add(-deliveryDoubt)); err != nil {
			return err
		}
	}
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if err := rt.checkOwner(c, caller); err != nil { // it may have disconnected meanwhile
		return err
	}
	if err := rt.limitCostly(c, *caller.Identity, topics); err != nil {
		return err
	}
	if err := rt.assign(c, *caller.Identity); err != nil {
		return err
	}
	rt.removeOthers(c, topics)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.identity = caller.Identity
	c.ended, c.expires, c.account = s.API.Accounts.Ended(c.identity.Session), c.identity.Expires, caller.Key()
	for _, t := range fresh {
		s.follow(r.Context(), c, caller, t, doubtful)
	}
	wake(c.wake)
	return nil
}

// checkOwner refuses a caller that is not the account of the client. A guest's client may become an account's. mu must
// be held.
func (rt *registry) checkOwner(c *client, caller api.Caller) error {
	if rt.clients[c.id] != c {
		return api.Problem{Status: http.StatusNotFound, Message: "Missing or invalid client id."}
	}
	if was := c.identity; was != nil && (caller.Identity == nil || caller.Account != was.Account ||
		caller.Collection != was.Collection) {
		return api.Forbidden("The current and the previous request authorization don't match.")
	}
	return nil
}

// newTopics returns the topics that a client does not follow yet.
func (rt *registry) newTopics(c *client, caller api.Caller, topics []topic) (fresh []topic, err error) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if err := rt.checkOwner(c, caller); err != nil {
		return nil, err
	}
	for _, t := range topics {
		if c.subscriptions[t.text] == nil {
			fresh = append(fresh, t)
		}
	}
	return fresh, nil
}

// removeOthers ends the subscriptions that are not among topics. mu must be held.
func (rt *registry) removeOthers(c *client, topics []topic) {
	kept := map[string]bool{}
	for _, t := range topics {
		kept[t.text] = true
	}
	for text, sub := range c.subscriptions {
		if !kept[text] {
			rt.unfollow(c, sub)
		}
	}
}

// unfollow ends a subscription. mu is held.
func (rt *registry) unfollow(c *client, sub *subscription) {
	c.mu.Lock()
	sub.ended = true
	c.mu.Unlock()
	delete(c.subscriptions, sub.topic.text)
	if sub.source != nil {
		rt.leave(sub)
	}
}

// leave removes a subscription from its source. A source without subscriptions ends. mu must be held.
func (rt *registry) leave(sub *subscription) {
	if delete(sub.source.subs, sub); len(sub.source.subs) == 0 {
		sub.source.end()
		rt.removeSource(sub.source)
	}
}

func (rt *registry) removeSource(s *source) {
	if a := rt.audiences[s.key]; a != nil && &a.source == s {
		delete(rt.audiences, s.key)
	}
	if h := rt.liveChats[s.key]; h != nil && &h.source == s {
		delete(rt.liveChats, s.key)
	}
}

// follow starts a subscription. If its session had one before, it starts with the changes that the session missed. The
// mutexes of the registry and of the client must be held.
func (s *Realtime) follow(ctx context.Context, c *client, caller api.Caller, t topic, doubtful uint64) {
	rt, now := &s.registry, s.API.Model.Seq()
	sub := &subscription{client: c, topic: t, from: now, lead: []byte("id:" + c.id + "\nevent:" + t.text + "\ndata:")}
	c.subscriptions[t.text] = sub
	if !t.admitted {
		return
	}
	since, known := rt.resumeAfter(c, *caller.Identity, t.text, doubtful)
	if known { // may be after now: changes are readable shortly before Seq includes them
		sub.from = since
	}
	ctx = context.WithoutCancel(ctx) // the audience lives longer than this request
	if t.chat != "" {
		h := rt.liveChats[t.chat]
		if h == nil {
			h = s.newLiveChat(ctx, t.chat, now)
		}
		sub.source, sub.catchUp = &h.source, true // until the snapshots are queued
		h.subs[sub] = true
		wake(h.wake)
		return
	}
	key := api.AccountKey(*caller.Identity) + "\n" + t.text
	a := rt.audiences[key]
	if a == nil {
		a = s.newAudience(ctx, key, t, now)
	}
	sub.source = &a.source
	a.subs[sub] = true
	if sub.from < now {
		sub.catchUp = true
		c.catchingUp = append(c.catchingUp, sub)
	}
}
