package push

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"pocketcoder/events"
	"pocketcoder/handlers/permission/workspace"
	"pocketcoder/projections"
)

// describeAsk writes the title and the text of a permission request: what an approval would allow, where, and why a person is
// asked. n.Whole reports whether a phone shows all that an approval would allow.
func (p *Push) describeAsk(n *events.Notice, ask projections.Permission, chat, why string) {
	about := requestOf(ask)
	about.partial = about.partial || strings.Contains(string(ask.Metadata)+string(ask.Patterns), "[redacted]")
	n.Type = typePermission
	n.Title, _ = p.shown(about.title, maxTitle)
	n.Message, n.Whole = p.shownLines(about.text, maxShown)
	if about.partial {
		n.Whole = false
	}
	if ask.Permission == "bash" && ask.Source != projections.SourceAPI { // where it runs is part of what is allowed
		where, whole := p.shown(ask.Cwd, maxLine)
		n.Whole = n.Whole && whole && where != ""
		n.Message += "\nin " + cmp.Or(where, "an unknown folder")
	}
	n.Whole = n.Whole && fits(n.Message)
	if why, _ = p.shown(why, maxLine); why != "" {
		n.Message += "\n" + why
	}
	if chat, _ = p.shown(strings.TrimSpace(chat), maxLine); chat != "" {
		n.Message += "\nChat: " + chat
	}
}

// request is what a permission request asks for. The text is all that an approval would allow, unless it is partial.
type request struct {
	title, text string
	partial     bool
}

func requestOf(ask projections.Permission) request {
	var m struct{ Command, Filepath, Diff, URL string }
	var patterns []string
	patch := workspace.PatchLines(events.PermissionAsk{Metadata: json.RawMessage(ask.Metadata)}, "", func(string) bool { return false })
	_ = json.Unmarshal([]byte(ask.Metadata), &m) // on an error the patterns describe the request
	_ = json.Unmarshal([]byte(ask.Patterns), &patterns)
	switch {
	case ask.Permission == "budget":
		return request{title: "Allow more spending", text: ask.Message}
	case ask.Permission == "network":
		return request{title: "Reach " + strings.Join(patterns, ", "), text: ask.Message}
	case m.Command != "":
		return request{title: "Run " + oneLine(m.Command), text: m.Command}
	case len(patch) > 1:
		return request{fmt.Sprintf("Apply a patch to %d files", len(patch)), strings.Join(patch, "\n") + "\n" + m.Diff, true}
	case len(patch) == 1 && !strings.HasPrefix(patch[0], "Change "):
		return request{patch[0], patch[0] + "\n" + m.Diff, true}
	case m.Diff != "":
		return change(m.Filepath, m.Diff)
	case m.Filepath != "":
		return request{title: verbOf(ask.Permission) + " " + path.Base(m.Filepath), text: m.Filepath}
	case m.URL != "":
		return request{title: verbOf(ask.Permission) + " " + m.URL, text: m.URL}
	}
	text := cmp.Or(strings.Join(patterns, "\n"), ask.Message, ask.Permission)
	return request{title: verbOf(ask.Permission) + " " + oneLine(text), text: text}
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
		return request{title: "Edit " + path.Base(file), text: file + "\n" + diff}
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
	return request{title: fmt.Sprintf("%s %s (+%d −%d)", verb, path.Base(file), added, removed), text: file + "\n" + hunks}
}
