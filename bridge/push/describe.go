package push

import (
	"strings"
	"unicode/utf8"

	"pocketcoder/events"
	"pocketcoder/handlers/permission"
	"pocketcoder/projections"
)

// describeRequest sets the title and the text of a permission request: what an approval would allow, where, and why a
// person has to decide. n.Whole reports whether a phone shows all that an approval would allow.
func (p *Push) describeRequest(n *events.Notice, request projections.Permission, arguments, chat string) {
	c := Card(request, arguments)
	n.Type, n.Request, n.Files = typePermission, request.Request, request.FilesHash
	n.Title, _ = p.shown(c.Line(), maxTitle)
	n.Message, n.Whole = p.shownLines(body(c), maxShown)
	if c.Where != "" {
		where, whole := p.shown(c.Where, maxLine)
		n.Whole = n.Whole && whole
		n.Message += "\nin " + where
	}
	n.Whole = n.Whole && c.Whole && fits(n.Message)
	if why, _ := p.shown(c.Why, maxLine); why != "" {
		n.Message += "\n" + why
	}
	if chat, _ = p.shown(strings.TrimSpace(chat), maxLine); chat != "" {
		n.Message += "\nChat: " + chat
	}
}

// Card returns the card of a request. arguments are those of Model.ToolArguments.
func Card(r projections.Permission, arguments string) permission.Card {
	return permission.CardOf(permission.CardSource{PermissionRequest: r.Content(),
		ViaAPI:  r.Source == projections.SourceAPI,
		Message: r.Message, Arguments: arguments, Cwd: r.Cwd, Why: r.ReferredReason, Files: r.RequestFiles()})
}

// Body returns what an approval of a request would allow as one text, quoted as Quoted does. whole reports whether the
// text shows all of it.
func Body(c permission.Card) (text string, whole bool) {
	text = body(c)
	return Quoted(text), c.Whole && utf8.ValidString(text)
}

// body joins the parts of a card. It leaves out the files that a command names: an approval holds only while they stay
// as they are.
func body(c permission.Card) string {
	var lines []string
	if c.Text != "" {
		lines = append(lines, strings.TrimRight(c.Text, "\n"))
	}
	for _, d := range c.Details {
		lines = append(lines, strings.ReplaceAll(d.Name+": "+d.Value, "\n", "␊"))
	}
	lines = append(lines, c.Risks...)
	for _, f := range c.Files {
		if !c.IsCommand {
			lines = append(lines, f.Text)
		}
	}
	for _, l := range c.Diff {
		lines = append(lines, strings.TrimSuffix(l.Text, "\n"))
	}
	return strings.Join(lines, "\n")
}
