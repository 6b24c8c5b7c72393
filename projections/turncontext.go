package projections

import (
	"context"
	"encoding/xml"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/pocketbase/dbx"

	"pocketcoder/projections/store"
)

// TurnContext describes where a turn happens. Its text goes to the model with every turn. Empty values are left out.
type TurnContext struct {
	Chat      string `db:"chat"`     // title
	Person    string `db:"person"`   // name of the chat's owner
	Agent     string `db:"-"`        // name of the chosen agent
	Workspace string `db:"-"`        // directory of the session
	Schedule  string `db:"schedule"` // name of the schedule that submitted the message
	Parent    string `db:"parent"`   // of a delegate: the title of the chat that delegated to it

	// Of the agent, for plugin.js, which sets them in the requests to the model; nil for none.
	Temperature *float64 `db:"-"`
	TopP        *float64 `db:"-"`

	// Of a message from a messenger: the name of the channel, and who wrote it there.
	Channel string `db:"channel"`
	Speaker string `db:"speaker"`
}

// TurnContext returns the context of a message in a chat, without its agent and its directory. The person of an account
// without a name is the part of its email before the @, because the model needs no address.
func (m *Model) TurnContext(ctx context.Context, chat, message string) (TurnContext, error) {
	c, _, err := store.First[TurnContext](ctx, m.Model, "context of chat "+chat, `
		SELECT c.title AS chat, coalesce(nullif(u.name, ''), substr(u.email, 1, instr(u.email, '@')-1), '') AS person,
			coalesce(p.title, '') AS parent, coalesce(k.fields->>'$.name', '') AS schedule,
			coalesce(nullif(s.origin, '')->>'$.name', '') AS channel, coalesce(nullif(s.origin, '')->>'$.sender', '') AS speaker
		FROM chats c LEFT JOIN users u ON u.id=c.user LEFT JOIN chats p ON p.id=c.parent AND c.parent<>''
		LEFT JOIN messages s ON s.id={:message}
		LEFT JOIN config k ON k.id='schedules/'||s.schedule AND s.schedule<>'' WHERE c.id={:id}`,
		dbx.Params{"id": chat, "message": message})
	return c, err
}

// maxContextLength bounds the text, in characters.
const maxContextLength = 199

// String returns the context as an XML element of fewer than 200 characters. The longest values are cut until the
// element is short enough; "…" marks what was left out.
func (c TurnContext) String() string {
	for most := maxContextLength; ; most-- {
		if text := c.element(most); utf8.RuneCountInString(text) <= maxContextLength {
			return text
		}
	}
}

// element returns the XML element, with values of at most most characters. The end of a path says most about it, so its
// beginning is cut.
func (c TurnContext) element(most int) string {
	var b strings.Builder
	b.WriteString("<context")
	for _, a := range []struct {
		name, value string
		path        bool
	}{
		{"chat", c.Chat, false}, {"person", c.Person, false}, {"agent", c.Agent, false}, {"workspace", c.Workspace, true},
		{"schedule", c.Schedule, false}, {"parent", c.Parent, false},
		{"channel", c.Channel, false}, {"speaker", c.Speaker, false},
	} {
		value := []rune(printable(a.value))
		switch {
		case len(value) == 0:
			continue
		case len(value) > most && a.path:
			value = append([]rune("…"), value[len(value)-most+1:]...)
		case len(value) > most:
			value = append(value[:most-1:most-1], '…')
		}
		b.WriteString(" " + a.name + `="`)
		_ = xml.EscapeText(&b, []byte(string(value))) // a Builder does not fail
		b.WriteString(`"`)
	}
	for _, a := range []struct {
		name  string
		value *float64
	}{{"temperature", c.Temperature}, {"top_p", c.TopP}} {
		if a.value != nil {
			b.WriteString(" " + a.name + `="` + strconv.FormatFloat(*a.value, 'g', 4, 64) + `"`)
		}
	}
	b.WriteString("/>")
	return b.String()
}

// printable returns a text on one line, without characters that do not show.
func printable(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, text)
	return strings.Join(strings.Fields(text), " ")
}
