package push

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"pocketcoder/events"
	"pocketcoder/projections"
)

// describeAsk writes the title and the text of a permission request: what an approval would allow, where, and why a person is
// asked. n.Whole reports whether the text shows all that an approval would allow.
func (p *Push) describeAsk(ctx context.Context, n *events.Notice, chat, why string) error {
	ask, _, err := p.Model.AskIn(ctx, n.Chat, n.Permission)
	if err != nil {
		return err
	}
	about := requestOf(ask)
	n.Type = typePermission
	n.Title, _ = p.shown(about.title, maxTitle)
	n.Message, n.Whole = p.shownLines(about.text, maxShown)
	if ask.Permission == "bash" && ask.Source != projections.SourceAPI { // where it runs is part of what is allowed
		where, whole := p.shown(ask.Cwd, maxLine)
		n.Whole = n.Whole && whole && where != ""
		n.Message += "\nin " + cmp.Or(where, "an unknown folder")
	}
	if why, _ = p.shown(why, maxLine); why != "" {
		n.Message += "\n" + why
	}
	if chat, _ = p.shown(strings.TrimSpace(chat), maxLine); chat != "" {
		n.Message += "\nChat: " + chat
	}
	return nil
}

// request is what a permission request asks for. The text is all that an approval would allow.
type request struct{ title, text string }

func requestOf(ask projections.Permission) request {
	var m struct{ Command, Filepath, Diff, URL string }
	var patterns []string
	_ = json.Unmarshal([]byte(ask.Metadata), &m) // on an error the patterns describe the request
	_ = json.Unmarshal([]byte(ask.Patterns), &patterns)
	switch {
	case ask.Permission == "budget":
		return request{"Allow more spending", ask.Message}
	case ask.Permission == "network":
		return request{"Reach " + strings.Join(patterns, ", "), ask.Message}
	case m.Command != "":
		return request{"Run " + oneLine(m.Command), m.Command}
	case m.Diff != "":
		return change(m.Filepath, m.Diff)
	case m.Filepath != "":
		return request{verbOf(ask.Permission) + " " + path.Base(m.Filepath), m.Filepath}
	case m.URL != "":
		return request{verbOf(ask.Permission) + " " + m.URL, m.URL}
	}
	text := cmp.Or(strings.Join(patterns, "\n"), ask.Message, ask.Permission)
	return request{verbOf(ask.Permission) + " " + oneLine(text), text}
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// verbOf says in words what a permission is for.
func verbOf(permission string) string {
	switch permission {
	case "edit", "write":
		return "Write"
	case "read":
		return "Read"
	case "webfetch":
		return "Fetch"
	}
	return "Use " + permission + ":"
}

// change describes a file's change by its unified diff: Write for a new file, Edit for an existing one.
func change(file, diff string) request {
	diff = strings.TrimRight(diff, "\n")
	header, hunks, found := strings.Cut(diff, "\n@@")
	if !found || strings.Count(header, "\n") > 3 { // not the diff of one file
		return request{"Edit " + path.Base(file), file + "\n" + diff}
	}
	hunks = "@@" + hunks
	added, removed := 0, 0
	for line := range strings.SplitSeq(hunks, "\n") {
		switch {
		case strings.HasPrefix(line, "+"):
			added++
		case strings.HasPrefix(line, "-"):
			removed++
		}
	}
	verb := "Edit"
	if strings.HasPrefix(hunks, "@@ -0,0 ") {
		verb = "Write"
		if first, rest, more := strings.Cut(hunks, "\n"); more && !strings.Contains(rest, "\n@@") && strings.HasSuffix(first, "@@") {
			hunks = rest // the line numbers of a new file are of no use
		}
	}
	return request{fmt.Sprintf("%s %s (+%d −%d)", verb, path.Base(file), added, removed), file + "\n" + hunks}
}
