package push

import (
	"cmp"
	"fmt"
	"path"
	"strings"

	"pocketcoder/events"
	"pocketcoder/handlers/permission/workspace"
	"pocketcoder/projections"
)

// describeAsk writes the title and the text of a permission request: what an approval would allow, where, and why a
// person is asked. n.Whole reports whether a phone shows all that an approval would allow.
func (p *Push) describeAsk(n *events.Notice, ask projections.Permission, chat, why string) {
	about := requestOf(ask.Ask(), ask.Message)
	n.Type = typePermission
	n.Title, _ = p.shown(about.title, maxTitle)
	n.Message, n.Whole = p.shownLines(about.text, maxShown)
	n.Whole = n.Whole && !about.partial && !ask.Ask().Redacted()
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

func requestOf(ask events.PermissionAsk, message string) request {
	about, patch := ask.About(), workspace.PatchLines(ask, "", func(string) bool { return false })
	switch {
	case ask.Permission == "budget":
		return request{title: "Allow more spending", text: message}
	case ask.Permission == "network":
		return request{title: "Connect to " + strings.Join(ask.Patterns, ", "), text: message}
	case about.Command != "":
		return request{title: "Run " + oneLine(about.Command), text: about.Command}
	case len(patch) > 1:
		return request{fmt.Sprintf("Apply a patch to %d files", len(patch)), strings.Join(patch, "\n") + "\n" + about.Diff,
			true}
	case len(patch) == 1 && !strings.HasPrefix(patch[0], "Change "):
		return request{patch[0], patch[0] + "\n" + about.Diff, true}
	case about.Diff != "":
		return change(about.File(), about.Diff)
	case about.File() != "":
		return request{title: verbOf(ask.Permission) + " " + path.Base(about.File()), text: about.File()}
	case about.URL != "":
		return request{title: verbOf(ask.Permission) + " " + about.URL, text: about.URL}
	}
	text := cmp.Or(strings.Join(ask.Patterns, "\n"), message, ask.Permission)
	details := strings.Trim(string(ask.Metadata), "{} \n") // for a search: the folder and the pattern of file names
	return request{verbOf(ask.Permission) + " " + oneLine(text), text, details != "" && details != "null"}
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
		if first, rest, more := strings.Cut(hunks, "\n"); more && !strings.Contains(rest, "\n@@") &&
			strings.HasSuffix(first, "@@") {
			hunks = rest // the line numbers of a new file are of no use
		}
	}
	return request{title: fmt.Sprintf("%s %s (+%d −%d)", verb, path.Base(file), added, removed), text: file + "\n" + hunks}
}
