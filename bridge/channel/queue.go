package channel

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"

	"pocketcoder/bridge/push"
	"pocketcoder/events"
	"pocketcoder/handlers/policy/display"
	"pocketcoder/projections"
	"pocketcoder/projections/store"
	"pocketcoder/projections/turnstate"
)

// maxOpen is the number of messages of a conversation that may wait to be sent.
const maxOpen = 100

// queue queues the pending messages of the conversations. If one cannot be queued, the later ones of its conversation
// wait, and the others do not.
func (h *Hub) queue(ctx context.Context) error {
	if !h.connected() {
		return nil
	}
	seq := h.Model.Seq()
	all, err := h.Model.PendingChannelMessages(ctx, h.looked, events.FormatTime(time.Now()))
	if err != nil {
		return err
	}
	queued, hasFailed := map[string]bool{}, map[string]bool{}
	for _, p := range all {
		platform := h.platform(p.Channel)
		if platform == nil || hasFailed[p.Chat] || queued[p.Chat+p.About] { // a chat has one conversation
			continue
		}
		queued[p.Chat+p.About] = true
		if failure := h.queueOne(ctx, platform, p); failure != nil {
			hasFailed[p.Chat] = true
			err = errors.Join(err, fmt.Errorf("chat %s: %w", p.Chat, failure))
		}
	}
	if err == nil {
		h.looked = seq
	}
	return err
}

// queueOne queues a pending message, as several if the platform splits its text.
func (h *Hub) queueOne(ctx context.Context, platform Platform, p projections.PendingChannelMessage) error {
	d, err := h.describe(ctx, p)
	if err != nil {
		return err
	}
	d.Channel, d.Place, d.Type, d.About = p.Channel, p.Place, p.Type, p.About
	for i, text := range platform.Split(d.Text) {
		d.Text, d.Message = text, events.ChannelID(p.Chat, p.About, fmt.Sprint(i))
		if err := h.Channels.Queue(ctx, p.Chat, d); err != nil {
			return err
		}
	}
	return nil
}

// describe returns the message to queue for a pending answer, error, notice, request, question or file.
func (h *Hub) describe(ctx context.Context, p projections.PendingChannelMessage) (d events.ChannelQueued, err error) {
	switch p.Type {
	case events.OutgoingPermission:
		return h.describePermission(ctx, p)
	case events.OutgoingQuestion:
		return h.describeQuestion(ctx, p)
	case events.OutgoingError:
		_, message := projections.ErrorOf(p.Error)
		d.Text = "It went wrong: " + cmp.Or(push.Quoted(message), p.Ending.Sentence(), turnstate.EndFailed.Sentence())
		if p.Domain == "infrastructure" {
			d.Text = "OpenCode stopped in the middle of the turn. Decide what it asked before, or write again to go on."
		}
	case events.OutgoingNotice:
		d.Text = p.Text
	case events.OutgoingFile:
		d.Text = withoutInternal(p.Text)
	default:
		d.Text = strings.TrimSpace(withoutInternal(p.Text) + "\n\n" + p.Ending.Sentence())
		d.Text = cmp.Or(d.Text, "The turn is over, without a text.")
		if p.Ending.CanContinue() {
			d.Text += " Write \"continue\" to go on."
		}
	}
	d.Text = string(h.Channels.Log.Redactor().Bytes([]byte(d.Text)))
	return d, nil
}

var internal = regexp.MustCompile(`(?s)<internal>.*?(</internal>|$)`)

// withoutInternal removes what the assistant marks as not for the conversation.
func withoutInternal(text string) string {
	return strings.TrimSpace(internal.ReplaceAllString(text, ""))
}

// maxRequest is the longest text of a request, in bytes, so that it is one message with its buttons.
const maxRequest = 3000

func (h *Hub) describePermission(ctx context.Context, p projections.PendingChannelMessage) (
	d events.ChannelQueued, err error) {
	request, _, err := h.Model.FindPermission(ctx, p.About)
	if err != nil {
		return d, err
	}
	arguments, err := h.Model.ToolArguments(ctx, request)
	if err != nil {
		return d, err
	}
	card := push.Card(request, arguments)
	text, whole := push.Body(card)
	if card.Where != "" {
		text += "\nin " + oneLine(card.Where)
	}
	clean := string(h.Channels.Log.Redactor().Bytes([]byte(text)))
	d.Whole = whole && clean == text && len(text) <= maxRequest
	title := string(h.Channels.Log.Redactor().Bytes([]byte(oneLine(card.Line()))))
	d.Text = display.Cut(title, 200) + "\n\n" + display.Cut(clean, maxRequest)
	if request.Permission != events.KindKeep { // the assistant has done it
		d.Text = "May the assistant do this? " + d.Text
	}
	if card.Why != "" {
		d.Text += "\n\n" + display.Cut(push.Quoted(card.Why), 300)
	}
	if !d.Whole {
		d.Text += "\n\nThis is not all of it. To approve it, open " + h.requestURL(request.ID)
	}
	return d, nil
}

func (h *Hub) requestURL(id string) string { return h.URL + "/requests/" + url.PathEscape(id) }

// oneLine returns what a model or a program wrote as one line of visible signs.
func oneLine(text string) string {
	return strings.ReplaceAll(push.Visible(text), "\n", "␊")
}

func (h *Hub) question(ctx context.Context, id string) (projections.Question, bool, error) {
	return store.First[projections.Question](ctx, h.Model.Model, "question "+id, "SELECT * FROM questions WHERE id={:id}",
		map[string]any{"id": id})
}

func (h *Hub) describeQuestion(ctx context.Context, p projections.PendingChannelMessage) (
	d events.ChannelQueued, err error) {
	q, _, err := h.question(ctx, p.About)
	if err != nil {
		return d, err
	}
	d.Text = display.Cut(push.Quoted(q.Question), maxRequest)
	if q.Multiple || len(choicesOf(q)) == 0 {
		d.Text += "\n\nAnswer it here: " + h.URL + "/?chat=" + url.QueryEscape(q.Chat)
	}
	d.Text = string(h.Channels.Log.Redactor().Bytes([]byte(d.Text)))
	return d, nil
}

// choicesOf returns the labels that a question offers.
func choicesOf(q projections.Question) (labels []string) {
	_ = json.Unmarshal([]byte(q.Choices), &labels) // a JSON list
	return labels
}
