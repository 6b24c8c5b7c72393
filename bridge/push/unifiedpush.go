package push

import (
	"bytes"
	"cmp"
	"context"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"pocketcoder/events"
)

// payload is the JSON for an app. Existing apps read type and chat at the top level; data repeats them, as Firebase's
// messages do.
type payload struct {
	ID      string            `json:"id"`
	Title   string            `json:"title"`
	Message string            `json:"message"`
	Type    string            `json:"type"`
	Chat    string            `json:"chat,omitempty"`
	Data    map[string]string `json:"data"`
	Click   string            `json:"click"`
	Done    bool              `json:"done,omitempty"` // the earlier notification with this id is to be removed
	Actions []Button          `json:"actions,omitempty"`
}

// Button is a button of a notification. A POST to its URL carries out the action.
type Button struct {
	Action string `json:"action"` // approve, deny
	Title  string `json:"title"`
	URL    string `json:"url"`
}

func (s *Sender) payload(m Message) payload {
	body := payload{ID: m.ID, Title: m.Title, Message: m.Message, Type: m.Type, Chat: m.Chat,
		Data: map[string]string{"type": m.Type}, Click: s.click(m), Done: m.Done}
	for name, value := range map[string]string{"chat": m.Chat, "permission": m.Permission, "question": m.Question,
		"server": m.Server} {
		if value != "" {
			body.Data[name] = value
		}
	}
	if m.Done {
		body.Title, body.Message = cmp.Or(m.Title, "PocketCoder"), "It is decided."
	}
	return body
}

// click returns the URL that a tap opens: the page of a permission request, or else the web interface.
func (s *Sender) click(m Message) string {
	switch {
	case m.Permission != "":
		return s.URL + "/requests/" + url.PathEscape(m.Permission)
	case m.Chat == "":
		return s.URL + "/"
	}
	return s.URL + "/?chat=" + url.QueryEscape(m.Chat)
}

// sendUnifiedPush posts to a UnifiedPush endpoint (https://unifiedpush.org/developers/spec/server) or to a topic of an
// ntfy server (https://docs.ntfy.sh/publish). The body is JSON for an app that gets it from its distributor (?up=1,
// where ntfy ignores headers). Other clients get the same content from the headers, and Template makes ntfy show the
// JSON's message.
func (s *Sender) sendUnifiedPush(ctx context.Context, d Device, m Message) error {
	client, err := s.client(d.Token)
	if err != nil {
		return err
	}
	if m.Done {
		return s.clear(ctx, client, d.Token, m.ID)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, d.Token, bytes.NewReader(events.MustEncode(s.payload(m))))
	if err != nil {
		return permanentError{Reason: "the endpoint is not a URL"}
	}
	priority, tags := "high", "raised_hand"
	switch m.Type {
	case taskComplete:
		priority, tags = "default", "white_check_mark"
	case taskError:
		tags = "warning"
	}
	header := map[string]string{
		"Content-Type": "application/json", "TTL": lifetime, "Urgency": "high",
		"Title": encodedWord(strings.ReplaceAll(m.Title, "{", "{ ")), "Template": "yes", "Message": "{{.message}}",
		"Click": s.click(m), "Priority": priority, "Tags": tags + "," + m.Type, "X-Sequence-ID": m.ID,
	}
	if actions := ntfyActions(m.Buttons); actions != "" {
		header["Actions"] = actions
	}
	for name, value := range header {
		r.Header.Set(name, value)
	}
	return checkResponse(client.Do(r))
}

// lifetime is how long a push service stores an undelivered message, in seconds: a day.
const lifetime = "86400"

// encodedWord encodes a header value that is not ASCII (RFC 2047), which ntfy decodes.
func encodedWord(s string) string { return mime.BEncoding.Encode("UTF-8", s) }

// ntfyActions encodes buttons in ntfy's short form (https://docs.ntfy.sh/publish/#action-buttons).
func ntfyActions(buttons []Button) string {
	var all []string
	for _, b := range buttons {
		all = append(all, "http, "+b.Title+", "+b.URL+", method=POST, clear=true")
	}
	return strings.Join(all, "; ")
}

// clear removes a notification: PUT <topic>/<sequence id>/clear, ntfy 2.16 and later. Other servers answer 404, which
// says nothing about the device.
func (s *Sender) clear(ctx context.Context, client *http.Client, endpoint, id string) error {
	u, err := url.Parse(endpoint)
	if err != nil {
		return permanentError{Reason: "the endpoint is not a URL"}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, u.JoinPath(id, "clear").String(), nil)
	if err != nil {
		return permanentError{Reason: "the endpoint is not a URL"}
	}
	return checkResponse(client.Do(r))
}
