package push

import (
	"cmp"
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	"pocketcoder/events"
	"pocketcoder/handlers/permission/workspace"
	"pocketcoder/projections"
)

// describeRequest sets the title and the text of a permission request: what an approval would allow, where, and why a
// person has to decide. n.Whole reports whether a phone shows all that an approval would allow.
func (p *Push) describeRequest(n *events.Notice, request projections.Permission, arguments, chat, why string) {
	about := describe(request.Ask(), request.Message, arguments)
	n.Type, n.Request, n.Files = typePermission, request.Request, request.FilesHash
	n.Title, _ = p.shown(about.title, maxTitle)
	n.Message, n.Whole = p.shownLines(about.text, maxShown)
	n.Whole = n.Whole && !about.partial && !request.Ask().Redacted()
	// an approval covers the folder too
	if request.Permission == events.KindBash && request.Source != projections.SourceAPI {
		where, whole := p.shown(request.Cwd, maxLine)
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

// Describe describes a permission request in a title and a text, which is quoted as Quoted does. whole reports whether
// the text shows all that an approval would allow. arguments are those of Model.ToolArguments.
func Describe(ask events.PermissionAsk, message, arguments string) (title, text string, whole bool) {
	d := describe(ask, message, arguments)
	return Visible(oneLine(d.title)), Quoted(d.text), !d.partial && !ask.Redacted() && utf8.ValidString(d.text)
}

// description describes what an approval would allow. partial means that the text does not show all of it.
type description struct {
	title, text string
	partial     bool
}

func describe(permission events.PermissionAsk, message, arguments string) description {
	about, patch := permission.About(), workspace.PatchLines(permission, "", func(string) bool { return false })
	switch {
	case permission.Permission == events.KindBudget:
		return description{title: "Allow more spending", text: message}
	case permission.Permission == events.KindNetwork:
		return description{title: "Connect to " + strings.Join(permission.Patterns, ", "), text: message}
	case permission.Permission == events.KindKeep:
		return describeKeep(permission, message)
	case permission.Command() != "":
		return description{title: "Run " + oneLine(about.Command), text: about.Command}
	case len(patch) > 1:
		return description{fmt.Sprintf("Apply a patch to %d files", len(patch)),
			strings.Join(patch, "\n") + "\n" + about.Diff, true}
	case len(patch) == 1 && !strings.HasPrefix(patch[0], "Change "):
		return description{patch[0], patch[0] + "\n" + about.Diff, true}
	case about.Diff != "":
		return change(about.File(), about.Diff)
	case about.File() != "":
		return description{title: verbOf(permission.Permission) + " " + path.Base(about.File()), text: about.File()}
	case about.URL != "":
		return description{title: verbOf(permission.Permission) + " " + about.URL, text: about.URL}
	case arguments != "":
		return description{"Use " + permission.Permission, permission.Permission + "\n" + arguments,
			strings.Contains(arguments, events.Redacted)}
	}
	text := cmp.Or(strings.Join(permission.Patterns, "\n"), message, permission.Permission)
	details := strings.Trim(string(permission.Metadata), "{} \n") // for a search: the folder and the pattern of file names
	partial := details != "" && details != "null" || permission.NamesOnlyTool()
	return description{verbOf(permission.Permission) + " " + oneLine(text), text, partial}
}

// describeKeep describes a protected name that a command created.
func describeKeep(permission events.PermissionAsk, message string) description {
	about := permission.Keep()
	text, note := message+" Approve keeps it, deny deletes it.\n"+about.Describe(), about.Note()
	for _, more := range []string{note, about.Text} { // the note first, so that no content looks like it
		if more != "" {
			text += "\n" + more
		}
	}
	return description{"Keep " + about.Name, text, note != ""}
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

func verbOf(permission string) string {
	switch permission {
	case events.KindEdit, events.KindWrite:
		return "Write"
	case events.KindRead:
		return "Read"
	case events.KindWebfetch:
		return "Fetch"
	}
	return "Use " + permission + ":"
}

// change describes the change of a file by its unified diff: Write for a new file, Edit for an existing one.
func change(file, diff string) description {
	diff = strings.TrimRight(diff, "\n")
	header, hunks, found := strings.Cut("\n"+diff, "\n@@")
	changed := events.ChangedLines(diff)
	if !found && strings.Contains(diff, "\n+++ ") { // the names alone
		return description{title: fmt.Sprintf("Edit %s (%s)", path.Base(file), changed), text: file}
	}
	if !found || strings.Count(header, "\n") > 4 { // not the diff of one file
		return description{title: "Edit " + path.Base(file), text: file + "\n" + diff}
	}
	hunks = "@@" + hunks
	verb := "Edit"
	if strings.HasPrefix(hunks, "@@ -0,0 ") {
		verb = "Write"
		if first, rest, more := strings.Cut(hunks, "\n"); more && !strings.Contains(rest, "\n@@") &&
			strings.HasSuffix(first, "@@") {
			hunks = rest // without the useless line numbers of a new file
		}
	}
	return description{title: fmt.Sprintf("%s %s (%s)", verb, path.Base(file), changed), text: file + "\n" + hunks}
}
