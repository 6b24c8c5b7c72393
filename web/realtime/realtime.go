// Package realtime serves PocketBase's realtime protocol: changes of records, and messages of a chat while the
// assistant writes them.
//
// Promises: a change is sent after its commit, once, in order. A client gets only events that its account may see at
// that moment. A client that reconnects with the same login gets the events that it missed. A client that falls behind
// is disconnected; nothing waits for it. The number of clients of an address and of an account is limited, and so are
// the bytes queued for them.
//
// It must not write: it reads the read models and the deltas.
package realtime

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"sync"
	"time"

	"pocketcoder/events/log"
	"pocketcoder/handlers/account"
	"pocketcoder/projections/store"
	"pocketcoder/web/api"
)

// The protocol is PocketBase's (https://pocketbase.io/docs/api-realtime). A client connects as a guest and gets an id.
// A request with that id and a token sets the topics that the client follows. The client then gets the events that the
// account may see. A topic is <collection>, <collection>/* or <collection>/<id>, with ?options= for a filter, expand
// and fields. An event has the topic byte for byte. Any other topic is accepted and has no events, except chats:<id>
// (hot.go).
//
// A change of a row is sent after its commit, once, in the order of changes. An audience (audience.go) is all
// subscriptions of one account to one topic: it reads and encodes a change once. Nothing waits for a client. A client
// is disconnected if its queue is full, or if the bytes queued for all clients of its account exceed the limit.
//
// A reconnecting client first gets the changes that it missed, page by page; PocketBase loses these changes.
// resume.go stores the sequence up to which each topic of a session was delivered. A record that changed several
// times is sent once, in its current state. A record that may have been lost in transit is sent again, whole.

// Realtime serves realtime. Run must run while it serves.
type Realtime struct {
	API *api.Server
	Log *log.Log

	Opened func(ctx context.Context, chat string) // called when a client begins to follow a chat; nil for nothing

	registry registry
}

func (s *Realtime) Routes() []api.Route {
	return []api.Route{
		{Method: "GET", Path: "/api/realtime", About: "Changes of records, and messages of chats while they are written. The first event has the client id.", Access: api.Guests, Media: api.EventStream, Serve: s.connectRealtime},
		{Method: "POST", Path: "/api/realtime", About: "Replace the topics that a connected client follows.", Access: api.Guests, Body: subscribe{}, Serve: s.subscribeRealtime},
	}
}

// registry has the connected clients and their subscriptions. The zero value is ready.
type registry struct {
	mu        sync.Mutex
	clients   map[string]*client
	audiences map[string]*audience // by account and topic
	liveChats map[string]*liveChat // by chat
	ended     resumePoints
	running   chan struct{}  // closed when Run follows the read models
	started   time.Time      // when that happened
	before    uint64         // sequence at which sessions of an earlier process resume
	startedAt map[string]int // number of clients, by address or account
	guests    int            // number of guests

	addressClients, accountClients int // in place of the constants, for tests
}

// open makes the maps. mu must be held.
func (rt *registry) open() {
	if rt.clients == nil {
		rt.clients, rt.audiences, rt.liveChats = map[string]*client{}, map[string]*audience{}, map[string]*liveChat{}
		rt.startedAt = map[string]int{}
		rt.running = make(chan struct{})
	}
}

// Running returns a channel that is closed when Run follows the read models. Clients that connect earlier wait for it,
// because they would miss changes.
func (s *Realtime) Running() <-chan struct{} {
	s.registry.mu.Lock()
	defer s.registry.mu.Unlock()
	s.registry.open()
	return s.registry.running
}

// Run follows the read models for all clients until ctx ends.
func (s *Realtime) Run(ctx context.Context) error {
	feed := s.API.Model.Feed()
	defer feed.Close()
	if err := s.findRestartPoint(ctx); err != nil {
		return fmt.Errorf("run realtime: %w", err)
	}
	for {
		changes, seq, err := feed.Next(ctx)
		if err != nil {
			return fmt.Errorf("run realtime: %w", err)
		}
		s.registry.wake(changes)
		s.wakeHubs(ctx, changes, seq)
	}
}

// findRestartPoint finds the sequence at which sessions of an earlier process resume: some time before the last event
// that it can have sent.
func (s *Realtime) findRestartPoint(ctx context.Context) error {
	last, err := s.Log.Stored(ctx, s.API.Model.Seq())
	if err != nil {
		return err
	}
	before, err := s.Log.At(ctx, last.Add(-deliveryDoubt))
	if err != nil {
		return err
	}
	rt := &s.registry
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.open()
	rt.started, rt.before = time.Now(), before
	close(rt.running)
	return nil
}

// wake wakes the audiences whose rows changed.
func (rt *registry) wake(changes []store.Change) {
	rows := map[string]map[string]bool{}
	for _, c := range changes {
		group, id := groupOfChange(c)
		if rows[group] == nil {
			rows[group] = map[string]bool{}
		}
		rows[group][id] = true
	}
	rt.mu.Lock()
	defer rt.mu.Unlock()
	for _, a := range rt.audiences {
		if ids := rows[a.group]; ids != nil && (a.topic.id == "" || ids[a.topic.id]) {
			wake(a.wake)
		}
	}
}

func (s *Realtime) connectRealtime(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	select {
	case <-s.Running():
	case <-r.Context().Done():
		return r.Context().Err()
	}
	c := &client{api: s.API, id: rand.Text() + rand.Text(), wake: make(chan struct{}, 1),
		subscriptions: map[string]*subscription{}}
	if err := s.registry.connect(c, caller.Client.Address); err != nil {
		return err
	}
	w.Header().Set("Content-Type", api.EventStream)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // otherwise nginx buffers the stream
	out := api.NewDeadlineWriter(w)
	err := send(out, []byte("id:"+c.id+"\nevent:PB_CONNECT\ndata:{\"clientId\":\""+c.id+"\"}\n\n"))
	if err == nil {
		err = s.stream(r.Context(), out, c, defaultTimeouts)
	}
	s.disconnect(context.WithoutCancel(r.Context()), c, err == errClosed && !s.API.Proxied)
	return nil
}

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
