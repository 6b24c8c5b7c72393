package bridgetest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"pocketcoder/bridge/opencode/client"
)

// become makes a durable event true and streams it; the lock is held.
func (o *OpenCode) become(session, typ, properties string) {
	for _, f := range o.durablyLocked(session, typ, properties) {
		o.hold(f)
		o.stream(f)
	}
}

func (o *OpenCode) updateSession(r *http.Request) (any, int) {
	var in struct{ Metadata json.RawMessage }
	decode(r, &in)
	s, ok := o.Sessions[r.PathValue("id")]
	if !ok {
		return nil, 404
	}
	info := fmt.Sprintf(`{"id":%q,"directory":%q,"title":%q,"metadata":%s}`, s.ID, s.Directory, s.Title, in.Metadata)
	o.become(s.ID, "session.updated", fmt.Sprintf(`{"sessionID":%q,"info":%s}`, s.ID, info))
	return json.RawMessage(info), 200
}

func (o *OpenCode) deleteSession(r *http.Request) (any, int) {
	id := r.PathValue("id")
	if _, ok := o.Sessions[id]; !ok {
		return nil, 404
	}
	o.become(id, "session.deleted", fmt.Sprintf(`{"sessionID":%q,"info":{"id":%q}}`, id, id))
	return true, 200
}

// messages are those of a session, as the history tells.
func (o *OpenCode) messages(session string) []json.RawMessage {
	list := []json.RawMessage{}
	for _, h := range o.history {
		var e struct {
			Session string `json:"aggregate_id"`
			Type    string
			Data    struct {
				MessageID string
				Info      json.RawMessage
			}
		}
		_ = json.Unmarshal(h, &e)
		switch {
		case e.Session != session:
		case e.Type == "message.updated.1":
			list = append(list, fmt.Appendf(nil, `{"info":%s,"parts":[]}`, e.Data.Info))
		case e.Type == "message.removed.1":
			kept := list[:0]
			for _, m := range list {
				if !strings.Contains(string(m), `"id":"`+e.Data.MessageID+`"`) {
					kept = append(kept, m)
				}
			}
			list = kept
		}
	}
	return list
}

func (o *OpenCode) message(r *http.Request) (any, int) {
	for _, m := range o.messages(r.PathValue("id")) {
		if strings.Contains(string(m), `"id":"`+r.PathValue("message")+`"`) {
			return m, 200
		}
	}
	return nil, 404
}

func (o *OpenCode) deleteMessage(r *http.Request) (any, int) {
	session := r.PathValue("id")
	o.become(session, "message.removed", fmt.Sprintf(`{"sessionID":%q,"messageID":%q}`, session, r.PathValue("message")))
	return true, 200
}

func (o *OpenCode) ForkSession(r *http.Request) (any, int) {
	s, ok := o.Sessions[r.PathValue("id")]
	if !ok {
		return nil, 404
	}
	id := client.NewID("ses", time.Now())
	info := fmt.Sprintf(`{"id":%q,"directory":%q,"title":"t (fork #1)","metadata":%s}`, id, s.Directory, s.Metadata)
	o.become(id, "session.created", fmt.Sprintf(`{"sessionID":%q,"info":%s}`, id, info))
	for _, m := range o.messages(s.ID) {
		var of client.Message
		_ = json.Unmarshal(m, &of)
		copied := strings.NewReplacer(s.ID, id, of.Info.ID, client.NewID("msg", time.Now())).Replace(string(of.Info.Raw))
		o.become(id, "message.updated", fmt.Sprintf(`{"sessionID":%q,"info":%s}`, id, copied))
	}
	return json.RawMessage(info), 200
}
