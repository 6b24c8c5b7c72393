package realtime

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strings"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/projections/store"
	"pocketcoder/web/api"
	"pocketcoder/web/query"
	"pocketcoder/web/records"
)

// topic is what a client follows: the text, and what it means.
type topic struct {
	text       string
	collection query.Collection  // without a table if the topic is not about records
	id         string            // of one record; empty for all
	query      map[string]string // of the options
	slotKey    string            // the key whose query slots it uses; empty for the server's
	request    query.Request     // on whose behalf it is followed
	chat       string            // set for a hot stream
	admitted   bool              // the account may see events of the topic
}

const (
	maxTopics    = 1000      // PocketBase's
	maxTopic     = 2500      // bytes; PocketBase's
	maxAllTopics = 256 << 10 // bytes of all topics of a client
)

// parseTopics parses the topics of a request, each once. It ignores empty ones, as PocketBase does.
func parseTopics(catalogue query.Catalogue, texts []string) (topics []topic, err error) {
	if len(texts) > maxTopics {
		return nil, api.BadField("subscriptions", "validation_length_too_long", "the length must be no more than %d",
			maxTopics)
	}
	seen, size := map[string]bool{"": true}, 0
	for i, text := range texts {
		if len(text) > maxTopic {
			return nil, api.BadField("subscriptions", "validation_length_too_long", "%d: the length must be no more than %d", i,
				maxTopic)
		}
		if size += len(text); size > maxAllTopics {
			return nil, api.BadField("subscriptions", "validation_length_too_long", "the length of all must be no more than %d",
				maxAllTopics)
		}
		if strings.ContainsAny(text, "\r\n\x00") { // a line break would end the event's line
			return nil, api.BadField("subscriptions", "validation_match_invalid", "%d: a topic is one line", i)
		}
		if !seen[text] {
			seen[text] = true
			topics = append(topics, parseTopic(catalogue, text))
		}
	}
	return topics, nil
}

func parseTopic(catalogue query.Catalogue, text string) topic {
	t := topic{text: text}
	what, options, _ := strings.Cut(text, "?")
	if chat, ok := strings.CutPrefix(what, "chats:"); ok {
		if _, err := events.ParseID(chat); err == nil {
			t.chat = chat
		}
		return t
	}
	name, id, one := strings.Cut(what, "/")
	if one && id == "" {
		return t
	}
	if c, ok := catalogue.Get(name); ok && c.Type != "view" { // a view has no rows that change
		t.collection = c
	}
	if id != "*" {
		t.id = id
	}
	t.query = parseOptions(options)
	return t
}

// parseOptions reads the query of ?options={"query":{},"headers":{}}. As in PocketBase, values of other types become
// text, and options that cannot be read are ignored.
func parseOptions(text string) map[string]string {
	query := map[string]string{}
	values, _ := url.ParseQuery(text)
	var o struct{ Query map[string]any }
	_ = json.Unmarshal([]byte(values.Get("options")), &o)
	for name, v := range o.Query {
		query[name] = optionText(v)
	}
	return query
}

func optionText(v any) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(v)
}

// admit sets the account of a topic and whether the account may follow it. A filter with a mistake is an error; a
// chat that the account may not see is silent.
func (s *Realtime) admit(r *http.Request, caller api.Caller, t *topic) error {
	t.slotKey, t.request = caller.Key(), caller.Request()
	if t.chat == "" && t.collection.Table == "" {
		return nil
	}
	err := s.API.Model.View(r.Context(), func(db dbx.Builder, _ uint64) (err error) {
		if t.chat != "" {
			chats, _ := s.API.Catalogue.Get("chats")
			t.admitted, err = query.Allowed(r.Context(), db, s.API.Catalogue, chats, t.chat, chats.View, t.request)
			return err
		}
		_, err = query.Changed(r.Context(), db, s.API.Catalogue, t.collection, t.request, t.rule(), t.includes(), t.ids(),
			math.MaxInt64, 1)
		t.admitted = err == nil
		return err
	})
	if errors.Is(err, query.ErrSuperusers) {
		return nil
	}
	return err
}

// rule is the rule for the events of the topic: view for one record, list for several.
func (t topic) rule() *string {
	if t.id != "" {
		return t.collection.View
	}
	return t.collection.List
}

func (t topic) ids() []string {
	if t.id == "" {
		return nil
	}
	return []string{t.id}
}

func (t topic) includes() query.Query {
	return query.Query{Filter: t.query["filter"], Expand: t.query["expand"], Fields: t.query["fields"]}
}

// groupOfCollection names the rows of a collection, as groupOfChange names rows that changed.
func groupOfCollection(c query.Collection) string {
	if c.Table == records.ConfigTable {
		return c.Table + "/" + c.ID
	}
	return c.Table
}

func groupOfChange(c store.Change) (group, id string) {
	if collection, id, ok := strings.Cut(c.ID, "/"); ok && c.Table == records.ConfigTable {
		return c.Table + "/" + collection, id
	}
	return c.Table, c.ID
}

// IsViewing reports whether an account is viewing a chat: one of its clients follows the hot stream, the record of
// the chat, or a list with a filter for the chat.
func (s *Realtime) IsViewing(user, chat string) bool {
	rt := &s.registry
	rt.mu.Lock()
	defer rt.mu.Unlock()
	for _, c := range rt.clients {
		if c.identity == nil || c.identity.Account != user {
			continue
		}
		for _, sub := range c.subscriptions {
			if sub.topic.admitted && sub.topic.concerns(chat) {
				return true
			}
		}
	}
	return false
}

// concerns reports whether a topic concerns one chat alone.
func (t topic) concerns(chat string) bool {
	return t.chat == chat || t.collection.Name == "chats" && t.id == chat || strings.Contains(t.query["filter"], chat)
}
