package requests

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/a-h/templ"
	"github.com/aymanbagabas/go-udiff"

	"pocketcoder/events"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/policy/display"
	"pocketcoder/projections"
	"pocketcoder/projections/timeline"
	"pocketcoder/web/pages/site"
	"pocketcoder/web/pages/visible"
)

// cardOf returns the card of a request.
func cardOf(r *timeline.Request) permission.Card {
	return permission.CardOf(permission.CardSource{PermissionRequest: r.Content(),
		ViaAPI:  r.Source == projections.SourceAPI,
		Message: r.Message, Arguments: r.Arguments, Cwd: r.Cwd, Why: r.ReferredReason, Files: r.RequestFiles()})
}

// heading returns the title of a card. It keeps the counts of changed lines at its end on one line: "(+3 −0)".
func heading(c permission.Card) string {
	title := visible.Line(c.Title)
	if at := strings.LastIndex(title, " −"); at >= 0 && len(c.Diff) > 0 {
		return title[:at] + "\u00a0" + title[at+1:]
	}
	return title
}

// summary is the line that stays of a decided request.
func summary(c permission.Card, edited string) string {
	return cmp.Or(visible.Line(cmp.Or(edited, c.Text)), "Details") // the title names the file of a change
}

// editLines compares the command that runs with the one that was asked for.
func editLines(original, edited string) []visible.DiffLine {
	diff := udiff.Unified("", "", strings.TrimSuffix(original, "\n")+"\n", strings.TrimSuffix(edited, "\n")+"\n")
	lines := visible.DiffLines(diff)
	return lines[min(1, len(lines)):] // the first one says where in the command the others are
}

// describeServer returns the fields of a pending MCP server that an approval would accept, its name first, the lines in
// which it differs from the approved one, and its definition.
func describeServer(s *timeline.Server) (fields []permission.CardDetail, difference, definition string) {
	var values map[string]json.RawMessage
	_ = json.Unmarshal([]byte(s.Fields), &values) // the column is an object
	text := func(name string) string {
		return permission.TextOf(json.RawMessage(cmp.Or(string(values[name]), `""`)))
	}
	fields = []permission.CardDetail{{Name: "name", Value: text("name")}}
	for _, name := range []string{"command", "programs", "url", "image", "catalog", "environment", "hosts", "limits",
		"reason", "requested_by"} {
		if value := text(name); value != "" && value != "null" && value != "[]" && value != "{}" {
			fields = append(fields, permission.CardDetail{Name: strings.ReplaceAll(name, "_", " "), Value: value})
		}
	}
	return fields, text("difference"), text("definition")
}

// editable reports whether a person sees in a text field all that a command holds.
func editable(command string) bool {
	return !slices.ContainsFunc(visible.Exact(command), func(p display.Piece) bool { return p.Hidden })
}

// decision says what became of a request, and who decided.
func decision(r *timeline.Request) string {
	by := Decider(r.Decider, r.DecidedBy)
	switch {
	case r.Applied && r.Status == events.Authorized:
		return fmt.Sprintf("kept by %s", by)
	case r.Applied:
		return fmt.Sprintf("deleted by %s", by)
	}
	switch r.Status {
	case events.Authorized:
		if r.Edited != "" {
			return fmt.Sprintf("approved with an edit by %s", by)
		}
		return fmt.Sprintf(site.ApprovedBy, by)
	case events.Denied:
		return fmt.Sprintf(site.DeniedBy, by)
	case events.Expired:
		return "expired"
	}
	return "waits for you"
}

// Decider names who decided: an account by its email, or the part of the system.
func Decider(email, actor string) string {
	switch {
	case email != "":
		return visible.Line(email)
	case actor == events.ActorPolicy:
		return "a rule"
	}
	return visible.Line(actor)
}

// answer says what became of a question.
func answer(q *timeline.Question) string {
	by := Decider(q.Decider, q.RepliedBy)
	switch q.Status {
	case projections.QuestionReplied:
		answers, _ := q.Answers() // the column is a list
		return fmt.Sprintf("answered by %s: %s", by, display.Prose(strings.Join(answers, ", ")))
	case projections.QuestionRejected:
		return fmt.Sprintf("dismissed by %s", by)
	case projections.QuestionExpired:
		return "expired"
	}
	return "waits for you"
}

// decidedAt is the time of a decision.
func decidedAt(r *timeline.Request) string { return cmp.Or(r.ApprovedAt, r.Updated) }

func requestPath(r *timeline.Request) templ.SafeURL {
	return templ.SafeURL(site.ChatPath(r.Chat) + "/requests/" + r.ID)
}

func questionPath(q *timeline.Question) templ.SafeURL {
	return templ.SafeURL(site.ChatPath(q.Chat) + "/questions/" + q.ID)
}

// choice is an answer that a question offers.
type choice struct{ label, description string }

func choicesOf(q *timeline.Question) (all []choice) {
	var labels, descriptions []string
	_ = json.Unmarshal([]byte(q.Choices), &labels) // the columns are lists of texts
	_ = json.Unmarshal([]byte(q.Descriptions), &descriptions)
	for i, label := range labels {
		c := choice{label: label}
		if i < len(descriptions) {
			c.description = descriptions[i]
		}
		all = append(all, c)
	}
	return all
}
