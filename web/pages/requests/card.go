package requests

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/a-h/templ"
	"github.com/aymanbagabas/go-udiff"

	"pocketcoder/events"
	"pocketcoder/handlers/mcpserver"
	"pocketcoder/handlers/policy/display"
	"pocketcoder/projections"
	"pocketcoder/projections/timeline"
	"pocketcoder/web/pages/site"
	"pocketcoder/web/pages/visible"
)

// requestContent is what a request asks for, as a card shows it.
type requestContent struct {
	title   string
	text    string   // a command, a diff or a sentence, whole
	diff    bool     // text is a diff
	details []detail // what the request says besides
	command string   // the command, if a person can edit it
	edited  string   // the command that runs instead of text; empty if no person changed it
	noHosts bool     // the command needs a network, but has none
	note    string   // what the text lacks; empty for nothing

	files []projections.RequestFile // whose content is shown
}

// summary is the line that stays of a decided request.
func (a requestContent) summary() string {
	if a.diff {
		return "Details" // the title names the file
	}
	return cmp.Or(visible.Line(cmp.Or(a.edited, a.text)), "Details")
}

type detail struct{ name, value string }

// describe returns all that an approval of a request would allow.
func describe(r *timeline.Request) (a requestContent) {
	ask := r.Ask()
	about := ask.About()
	switch {
	case r.Permission.Permission == events.KindNetwork:
		a = requestContent{title: fmt.Sprintf("Connect to %s", strings.Join(ask.Patterns, ", ")), text: r.Message}
	case r.Permission.Permission == events.KindBudget:
		a = requestContent{title: "Allow more spending", text: r.Message}
	case r.Permission.Permission == events.KindKeep:
		return describeKeep(ask)
	case ask.Command() != "": // its patterns are parts of the command
		a = requestContent{title: commandTitle(about.Command), text: about.Command, noHosts: missingNetwork(r) != "",
			edited: r.Edited, details: otherDetails(ask, "command", "description", saidInReason(r))}
		var others []string
		for _, f := range r.RequestFiles() {
			if f.Path = strings.TrimPrefix(f.Path, r.Cwd+"/"); f.Text != "" {
				a.files = append(a.files, f)
			} else {
				others = append(others, f.Path)
			}
		}
		if len(others) > 0 {
			a.details = append(a.details, detail{"other files that it names", strings.Join(others, "\n")})
		}
		if editable(about.Command) {
			a.command = about.Command
		}
	case r.Permission.Permission == events.KindEdit && about.Diff != "":
		a = requestContent{title: diffTitle(about), text: about.Diff, diff: true, details: patchedFiles(about)}
		if others := otherPatterns(ask); len(others) > 0 {
			a.details = append(a.details, detail{"patterns", strings.Join(others, "\n")})
		}
		a.details = append(a.details, otherDetails(ask, "diff", "files", "filepath")...)
	case r.Arguments != "":
		a = requestContent{title: toolTitle(r.Permission.Permission), text: indented(r.Arguments), details: otherDetails(ask)}
	default:
		a = requestContent{title: fmt.Sprintf("Use %s", r.Permission.Permission), text: strings.Join(ask.Patterns, "\n"),
			details: otherDetails(ask)}
	}
	a.title = visible.Line(a.title)
	if a.diff {
		a.title = joinCounts(a.title)
	}
	return a
}

// joinCounts keeps the counts of changed lines at the end of a title on one line: "(+3 −0)".
func joinCounts(title string) string {
	if at := strings.LastIndex(title, " −"); at >= 0 {
		return title[:at] + "\u00a0" + title[at+1:]
	}
	return title
}

// describeKeep returns what a person keeps or deletes: the name, and its content as far as it is text.
func describeKeep(ask events.PermissionAsk) requestContent {
	about := ask.Keep()
	return requestContent{title: visible.Line(fmt.Sprintf("Keep %s?", about.Name)), text: about.Text, note: about.Note(),
		details: []detail{{"what it is", about.Describe()}, {"created before this ended", cmp.Or(about.Command, "a person's shell")},
			{"in the quarantine", about.Item}}}
}

// toolTitle names a tool of PocketCoder, or the MCP server of another tool.
func toolTitle(permission string) string {
	if server, tool, ok := mcpserver.OfPermission(permission); ok {
		return fmt.Sprintf("Use %s of the MCP server %s", tool, server)
	}
	return fmt.Sprintf("Use %s", permission)
}

// indented returns a JSON object with one line for each value.
func indented(object string) string {
	var b bytes.Buffer
	if json.Indent(&b, []byte(object), "", "  ") != nil {
		return object
	}
	return b.String()
}

func commandTitle(command string) string {
	if lines := strings.Count(strings.TrimRight(command, "\n"), "\n") + 1; lines > 1 {
		return fmt.Sprintf("Run a command of %d lines", lines)
	}
	return "Run a command"
}

func diffTitle(about events.PermissionMetadata) string {
	if n := len(about.Files); n > 1 {
		return fmt.Sprintf("Change %d files", n)
	}
	return fmt.Sprintf("Change %s (%s)", path.Base(about.File()), events.ChangedLines(about.Diff))
}

// patchedFiles names the files that a diff changes.
func patchedFiles(about events.PermissionMetadata) (all []detail) {
	for _, f := range about.Files {
		name := f.FilePath
		if f.MovePath != "" {
			name += " → " + f.MovePath
		}
		all = append(all, detail{f.Type, name})
	}
	if len(all) == 0 {
		all = []detail{{"file", about.File()}}
	}
	return all
}

// otherPatterns returns the patterns that are not the end of the path of a file that the diff changes.
func otherPatterns(ask events.PermissionAsk) (others []string) {
	about := ask.About()
	files := append(about.Patched(), about.File())
	for _, p := range ask.Patterns {
		if !slices.ContainsFunc(files, func(f string) bool { return f == p || strings.HasSuffix(f, "/"+p) }) {
			others = append(others, p)
		}
	}
	return others
}

// otherDetails returns what the metadata say besides what is shown already.
func otherDetails(ask events.PermissionAsk, but ...string) (all []detail) {
	var metadata map[string]json.RawMessage
	_ = json.Unmarshal(ask.Metadata, &metadata) // the column is an object
	for _, name := range slices.Sorted(maps.Keys(metadata)) {
		if !slices.Contains(but, name) {
			all = append(all, detail{name, textOf(metadata[name])})
		}
	}
	return all
}

// saidInReason returns "network" if the reason on the card ends with the sentence in that field of the metadata, else
// "".
func saidInReason(r *timeline.Request) string {
	if text := missingNetwork(r); text == "" || !strings.HasSuffix(r.ReferredReason, text) {
		return ""
	}
	return "network"
}

// missingNetwork returns the sentence that says why the command of a request would have no network, "" if it would have
// one or needs none.
func missingNetwork(r *timeline.Request) string {
	var metadata struct{ Network string }
	_ = json.Unmarshal([]byte(r.Metadata), &metadata) // without the field, or with another type, there is no sentence
	return metadata.Network
}

// textOf returns a text as it is, and any other value as JSON.
func textOf(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text
	}
	var b bytes.Buffer
	_ = json.Compact(&b, value) // it was decoded from an object
	return b.String()
}

// editLines compares the command that runs with the one that was asked for.
func editLines(original, edited string) []visible.DiffLine {
	diff := udiff.Unified("", "", strings.TrimSuffix(original, "\n")+"\n", strings.TrimSuffix(edited, "\n")+"\n")
	lines := visible.DiffLines(diff)
	return lines[min(1, len(lines)):] // the first one says where in the command the others are
}

// describeServer returns the fields of a pending MCP server that an approval would accept, its name first, the lines in
// which it differs from the approved one, and its definition.
func describeServer(s *timeline.Server) (fields []detail, difference, definition string) {
	var values map[string]json.RawMessage
	_ = json.Unmarshal([]byte(s.Fields), &values) // the column is an object
	text := func(name string) string { return textOf(json.RawMessage(cmp.Or(string(values[name]), `""`))) }
	fields = []detail{{"name", text("name")}}
	for _, name := range []string{"command", "programs", "url", "image", "catalog", "environment", "hosts", "limits",
		"reason", "requested_by"} {
		if value := text(name); value != "" && value != "null" && value != "[]" && value != "{}" {
			fields = append(fields, detail{strings.ReplaceAll(name, "_", " "), value})
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
