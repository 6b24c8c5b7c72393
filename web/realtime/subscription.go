package realtime

import (
	"context"
	"net/http"
	"time"

	"pocketcoder/web/api"
)

// subscribe is what a client follows from now on, in place of what it followed.
type subscribe struct {
	ClientID      string   `json:"clientId"`
	Subscriptions []string `json:"subscriptions"`
}

func (s *Realtime) subscribeRealtime(w http.ResponseWriter, r *http.Request, who api.Caller) error {
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
	if err := s.subscribe(r, c, who, topics); err != nil {
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

// subscribe replaces what a client follows. Topics it followed already go on as they were. A guest sees nothing, so that
// nothing is kept for one.
func (s *Realtime) subscribe(r *http.Request, c *client, who api.Caller, topics []topic) error {
	c.subscribing.Lock()
	defer c.subscribing.Unlock()
	rt := &s.registry
	fresh, err := rt.fresh(c, who, topics)
	if err != nil || who.Identity == nil {
		return err
	}
	for i := range fresh {
		if err := s.admit(r, who, &fresh[i]); err != nil {
			return err
		}
	}
	doubtful := uint64(0) // what went over a connection that still seems open is certain up to here
	if len(fresh) > 0 {
		if doubtful, err = s.Log.At(r.Context(), time.Now().Add(-doubt)); err != nil {
			return err
		}
	}
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if err := rt.owns(c, who); err != nil { // it may have gone meanwhile
		return err
	}
	if err := rt.boundFilters(c, *who.Identity, topics); err != nil {
		return err
	}
	if err := rt.own(c, *who.Identity); err != nil {
		return err
	}
	rt.keepOnly(c, topics)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.who = who.Identity
	c.ended, c.expires = s.API.Accounts.Ended(c.who.Session), c.who.Expires
	for _, t := range fresh {
		s.follow(r.Context(), c, who, t, doubtful)
	}
	wake(c.news)
	return nil
}

// owns refuses whoever is not the account that a client belongs to. Nobody's client may become somebody's. mu is held.
func (rt *registry) owns(c *client, who api.Caller) error {
	if rt.clients[c.id] != c {
		return api.Problem{Status: http.StatusNotFound, Message: "Missing or invalid client id."}
	}
	if was := c.who; was != nil && (who.Identity == nil || who.Account != was.Account || who.Collection != was.Collection) {
		return api.Forbidden("The current and the previous request authorization don't match.")
	}
	return nil
}

// fresh gives the topics that a client does not follow yet.
func (rt *registry) fresh(c *client, who api.Caller, topics []topic) (fresh []topic, err error) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if err := rt.owns(c, who); err != nil {
		return nil, err
	}
	for _, t := range topics {
		if c.follows[t.text] == nil {
			fresh = append(fresh, t)
		}
	}
	return fresh, nil
}

// keepOnly ends the subscriptions that are not among topics. mu is held.
func (rt *registry) keepOnly(c *client, topics []topic) {
	kept := map[string]bool{}
	for _, t := range topics {
		kept[t.text] = true
	}
	for text, sub := range c.follows {
		if !kept[text] {
			rt.unfollow(c, sub)
		}
	}
}

// unfollow ends a subscription. mu is held.
func (rt *registry) unfollow(c *client, sub *subscription) {
	c.mu.Lock()
	sub.over = true
	c.mu.Unlock()
	delete(c.follows, sub.topic.text)
	if sub.source != nil {
		rt.leave(sub)
	}
}

// leave takes a subscription from its source; one that nobody listens to any more ends. mu is held.
func (rt *registry) leave(sub *subscription) {
	if delete(sub.source.subs, sub); len(sub.source.subs) == 0 {
		sub.source.end()
		rt.forgetSource(sub.source)
	}
}

func (rt *registry) forgetSource(s *source) {
	if a := rt.audiences[s.key]; a != nil && &a.source == s {
		delete(rt.audiences, s.key)
	}
	if h := rt.hubs[s.key]; h != nil && &h.source == s {
		delete(rt.hubs, s.key)
	}
}

// follow begins a subscription: with what its session has missed, when there was a connection before. mu and the client's
// are held.
func (s *Realtime) follow(ctx context.Context, c *client, who api.Caller, t topic, doubtful uint64) {
	rt, now := &s.registry, s.API.Model.Seq()
	sub := &subscription{client: c, topic: t, from: now, lead: []byte("id:" + c.id + "\nevent:" + t.text + "\ndata:")}
	c.follows[t.text] = sub
	if !t.admitted {
		return
	}
	since, known := rt.missed(c, *who.Identity, t.text, doubtful)
	if known && since < now {
		sub.from = since
	}
	ctx = context.WithoutCancel(ctx) // who informs it goes on when the request that began it has ended
	if t.chat != "" {
		h := rt.hubs[t.chat]
		if h == nil {
			h = s.newHub(ctx, t.chat, now)
		}
		sub.source, sub.behind = &h.source, true // until it was told what has been said
		h.subs[sub] = true
		wake(h.news)
		return
	}
	key := api.AccountKey(*who.Identity) + "\n" + t.text
	a := rt.audiences[key]
	if a == nil {
		a = s.newAudience(ctx, key, t, now)
	}
	sub.source = &a.source
	a.subs[sub] = true
	if sub.from < now {
		sub.behind = true
		c.behind = append(c.behind, sub)
	}
}
