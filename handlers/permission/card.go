package permission

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"pocketcoder/events"
	"pocketcoder/handlers/mcpserver"
	"pocketcoder/handlers/policy/display"
)

// CardSource is a permission request with what is known around it.
type CardSource struct {
	events.PermissionRequest
	ViaAPI    bool   // made over the API: nothing runs
	Message   string // of a direct request
	Arguments string // of the call of a tool of PocketCoder or of an MCP server, a JSON object; empty if not known
	Cwd       string // where its command would run; empty if not known
	Why       string // the reason why the policy left it to a person; empty if not known
	Files     []events.RequestFile
}

// Card is a permission request as a person decides on it.
type Card struct {
	Title     string // on one line
	Text      string // a command, a path, an address, a sentence, or the arguments of a tool
	IsCommand bool
	Diff      []display.DiffLine // of the files that the request changes
	Files     []CardFile         // that a command names, or has created
	Details   []CardDetail       // what the request holds besides
	Risks     []string           // sentences about what the rest of the card does not show
	NoNetwork bool               // the command needs a network, but has none
	Where     string             // the folder; empty if not known. An approval of a command holds in this folder only
	Why       string
	Whole     bool // the card shows all that an approval would allow
}

// CardFile is a file with its content, as far as a person is shown it.
type CardFile struct{ Name, Text string }

// CardDetail is a named value of a request.
type CardDetail struct{ Name, Value string }

// Line describes the request on one line.
func (c Card) Line() string {
	if c.IsCommand {
		return "Run " + display.ShortLine(c.Text, maxLine)
	}
	return c.Title
}

// CardOf returns the card of a request.
func CardOf(r CardSource) Card {
	c := Card{Why: r.Why, Where: r.Cwd, Whole: !r.Redacted()}
	about := r.About()
	writes := r.Permission == events.KindEdit && len(about.Files) > 0 ||
		(r.Permission == events.KindEdit || r.Permission == events.KindWrite) && about.Diff != ""
	switch {
	case r.Permission == events.KindNetwork:
		c.Title, c.Text = "Connect to "+strings.Join(r.Patterns, ", "), r.Message
	case r.Permission == events.KindBudget:
		c.Title, c.Text = "Allow more spending", r.Message
	case r.Permission == events.KindKeep:
		c.keep(r)
	case r.Command() != "":
		c.command(r)
	case writes:
		c.change(r)
	case r.Arguments != "":
		c.Title, c.Text = toolTitle(r.Permission), indentedJSON(r.Arguments)
		c.Whole = c.Whole && !strings.Contains(r.Arguments, events.Redacted)
		c.addPatterns(r, "*")
		c.addMetadata(r)
	default:
		c.use(r)
	}
	if r.Message != c.Text && r.Message != r.Line() && events.RequestKinds[r.Permission].Author == "" && r.Message != "" {
		c.Details = append(c.Details, CardDetail{"message", r.Message})
	}
	return c
}

// keep describes a protected name that a command created.
func (c *Card) keep(r CardSource) {
	about := r.Keep()
	c.Title, c.Text = fmt.Sprintf("Keep %s?", about.Name), r.Message+" If you deny it, it is deleted."
	c.Details = []CardDetail{{"what it is", about.Describe()},
		{"created before this ended", cmp.Or(about.Command, "a person's shell")}, {"in the quarantine", about.Item}}
	if about.Text != "" {
		c.Files = []CardFile{{about.Name, about.Text}}
	}
	if note := about.Note(); note != "" {
		c.Risks, c.Whole = []string{note}, false
	}
}

// command describes a command. The patterns are parts of it, and the description is what the model says of it.
func (c *Card) command(r CardSource) {
	c.Title, c.Text, c.IsCommand = "Run a command", r.Command(), true
	if lines := strings.Count(strings.TrimRight(c.Text, "\n"), "\n") + 1; lines > 1 {
		c.Title = fmt.Sprintf("Run a command of %d lines", lines)
	}
	if r.ViaAPI {
		c.Where = ""
	} else if r.Cwd == "" {
		c.Whole = false
	}
	var others []string
	for _, f := range r.Files {
		if name := strings.TrimPrefix(f.Path, r.Cwd+"/"); f.Text != "" {
			c.Files = append(c.Files, CardFile{name, f.Text})
		} else {
			others = append(others, name)
		}
	}
	if len(others) > 0 {
		c.Details = []CardDetail{{"other files that it names", strings.Join(others, "\n")}}
	}
	var about struct{ Network string }
	_ = json.Unmarshal(r.Metadata, &about) // without the field, or with another type, there is no sentence
	if c.NoNetwork = about.Network != ""; c.NoNetwork && !strings.HasSuffix(r.Why, about.Network) {
		c.Risks = []string{about.Network}
	}
	c.addMetadata(r, "command", "description", "network")
}

// change describes a change of files by its diff. The policy evaluates the list of files only in requests of the kind
// edit, and one file in all others.
func (c *Card) change(r CardSource) {
	about := r.About()
	if r.Permission != events.KindEdit {
		about.Files = nil
	}
	if about.Diff == "" {
		c.Whole = false
	} else {
		c.Diff = display.Diff(strings.TrimRight(about.Diff, "\n") + "\n")
	}
	verb, isHead := "Edit", func(l display.DiffLine) bool { return l.Kind == '@' }
	if first := slices.IndexFunc(c.Diff, isHead); first >= 0 && strings.HasPrefix(c.Diff[first].Text, "@@ -0,0 ") {
		verb = "Write"
		if first == 0 && strings.HasSuffix(c.Diff[0].Text, "@@\n") && !slices.ContainsFunc(c.Diff[1:], isHead) {
			c.Diff = c.Diff[1:] // the line numbers of a new file say nothing
		}
	}
	c.Title = fmt.Sprintf("%s %s (%s)", verb, path.Base(about.File()), events.ChangedLines(about.Diff))
	switch n := len(about.Files); {
	case n > 1:
		c.Title, c.Whole = fmt.Sprintf("Change %d files", n), false
	case n == 1 && about.Files[0].MovePath != "":
		c.Title, c.Whole = "Move "+about.Files[0].FilePath+" to "+about.Files[0].MovePath, false
	case n == 1 && about.Files[0].Type == "delete":
		c.Title, c.Whole = "Delete "+about.Files[0].FilePath, false
	case n == 1 && about.Files[0].Type == "add":
		c.Whole = false // it may exist
	}
	for _, f := range about.Files {
		name := f.FilePath
		if f.MovePath != "" {
			name += " → " + f.MovePath
		}
		c.Details = append(c.Details, CardDetail{cmp.Or(f.Type, "change"), name})
	}
	shown := []string{"diff", "filepath", "files"}
	if len(about.Files) == 0 {
		c.Details, shown = []CardDetail{{"file", about.File()}}, shown[:2]
	}
	if about.Diff != "" && len(c.Diff) == 0 {
		c.Risks = []string{"No line changes: the file is empty, or it already has this content."}
	}
	c.addPatterns(r, append(about.Patched(), about.File())...)
	c.addMetadata(r, shown...)
}

// use describes a request by what it names.
func (c *Card) use(r CardSource) {
	subject := r.Subject()
	c.Text = cmp.Or(subject, onLines(r.Patterns), r.Message, r.Permission)
	switch name := display.ShortLine(c.Text, maxLine); r.Permission {
	case events.KindRead:
		c.Title = "Read " + path.Base(name)
	case events.KindWebfetch:
		c.Title = "Fetch " + name
	default:
		c.Title = fmt.Sprintf("Use %s: %s", r.Permission, name)
	}
	c.Whole = c.Whole && !r.NamesOnlyTool()
	if subject != "" {
		c.addPatterns(r, subject)
	}
	c.addMetadata(r)
}

// onLines returns texts, each on a line of its own.
func onLines(texts []string) string {
	lines := make([]string, len(texts))
	for i, text := range texts {
		lines[i] = strings.ReplaceAll(text, "\n", "␊")
	}
	return strings.Join(lines, "\n")
}

// toolTitle names a tool of PocketCoder, or the MCP server of another tool.
func toolTitle(permission string) string {
	if server, tool, ok := mcpserver.OfPermission(permission); ok {
		return fmt.Sprintf("Use %s of the MCP server %s", tool, server)
	}
	return "Use " + permission
}

// addPatterns adds the patterns that the card does not show yet, not even as the end of a path.
func (c *Card) addPatterns(r CardSource, shown ...string) {
	var others []string
	for _, p := range r.Patterns {
		if !slices.ContainsFunc(shown, func(s string) bool { return s == p || strings.HasSuffix(s, "/"+p) }) {
			others = append(others, p)
		}
	}
	if len(others) > 0 {
		c.Details = append(c.Details, CardDetail{"patterns", onLines(others)})
	}
}

// addMetadata adds the metadata that the card does not show yet. It always adds a folder, even if the folder has the
// name that is searched for in it.
func (c *Card) addMetadata(r CardSource, but ...string) {
	var metadata map[string]json.RawMessage
	if json.Unmarshal(r.Metadata, &metadata) != nil && len(r.Metadata) > 0 {
		c.Whole = false
	}
	for _, name := range slices.Sorted(maps.Keys(metadata)) {
		if text := TextOf(metadata[name]); (text != c.Text || name == "path") && !slices.Contains(but, name) {
			c.Details = append(c.Details, CardDetail{name, text})
		}
	}
}

// TextOf returns the text of a JSON string, and any other value as JSON.
func TextOf(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text
	}
	var b bytes.Buffer
	_ = json.Compact(&b, value) // it was decoded from an object
	return b.String()
}

// indentedJSON returns a JSON object with one line for each value.
func indentedJSON(object string) string {
	var b bytes.Buffer
	if json.Indent(&b, []byte(object), "", "  ") != nil {
		return object
	}
	return b.String()
}

// maxLine is the longest line, in runes.
const maxLine = 200
