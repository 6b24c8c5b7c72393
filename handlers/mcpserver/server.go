// Package mcpserver has the records of MCP servers, and the rules for those that the gateway runs: what an
// administrator approves, what is pinned by the approval, and what a change of the pinned tools is. It stores the
// values of the names in their environment as secrets.
//
// Promises: two descriptions of a tool have the same hash only if name, description and input schema are equal. Two
// tools that are offered never have the same name. A changed definition needs a new approval. No secret value is stored
// in an event, and all are redacted.
//
// It must not know how a server is started.
package mcpserver

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"pocketcoder/events"
	"pocketcoder/handlers/policy"
	"pocketcoder/handlers/record"
)

// The statuses of a server.
const (
	Pending  = "pending"
	Approved = "approved"
	Denied   = "denied"
	Revoked  = "revoked"
)

// Server is the record of a server. An approval pins Command or URL, Environment, Hosts, Limits and Programs. It then
// pins Version and Tools, as the server reports them first.
type Server struct {
	Name        string   `json:"name"`
	Status      string   `json:"status"`
	Reason      string   `json:"reason,omitempty"`
	Command     string   `json:"command,omitempty"`     // runs in the sandbox and speaks MCP on stdin and stdout
	URL         string   `json:"url,omitempty"`         // of a remote server, in place of a command
	Environment []string `json:"environment,omitempty"` // names of variables of the command, or of headers for the URL
	Hosts       []string `json:"hosts,omitempty"`       // that the command may reach, each as in a network rule
	Limits      Limits   `json:"limits,omitzero"`       // of the command
	Programs    []string `json:"programs,omitempty"`    // files that the command names, with hashes
	Version     string   `json:"version,omitempty"`     // pinned
	Tools       []Tool   `json:"tools,omitempty"`       // pinned; nil until the server has listed them

	// what the server reported last, if that is not what is pinned. The next approval pins it
	FoundVersion string `json:"found_version,omitempty"`
	FoundTools   []Tool `json:"found_tools,omitempty"`
	Difference   string `json:"difference,omitempty"` // lines for a person

	// Hash, as it is stored. An approval names the one that was shown
	Definition string `json:"definition,omitempty"`

	Problem    string `json:"problem,omitempty"`     // why it does not work, for a person
	NotOffered string `json:"not_offered,omitempty"` // a line for each tool that is not offered
}

// Runs reports whether the gateway runs the server. Other records are for gateways elsewhere.
func (s Server) Runs() bool { return s.Command != "" || s.URL != "" }

// State returns the status, or active for an approved server that has listed its tools and works.
func (s Server) State() string {
	if s.Status == Approved && s.Tools != nil && s.Problem == "" {
		return "active"
	}
	return s.Status
}

// Hash returns the SHA-256 of all that an approval would pin.
func (s Server) Hash() string {
	pinned := []any{s.Name, s.Command, s.URL, s.Environment, s.Hosts, s.Version, s.Tools, s.FoundVersion, s.FoundTools}
	if s.Limits != (Limits{}) { // servers without limits keep the hash that they had before there were limits
		pinned = append(pinned, s.Limits)
	}
	if len(s.Programs) > 0 {
		pinned = append(pinned, s.Programs)
	}
	body, err := json.Marshal(pinned)
	if err != nil {
		panic(err) // the schemas of tools were decoded
	}
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// Changes compares what is pinned before the server starts. It returns one line for each change, "" if there is none.
func (s Server) Changes(to Server) string {
	var lines []string
	for _, c := range []struct {
		name     string
		old, now []string
	}{
		{"name", []string{s.Name}, []string{to.Name}}, {"command", []string{s.Command}, []string{to.Command}},
		{"url", []string{s.URL}, []string{to.URL}}, {"environment", s.Environment, to.Environment},
		{"host", s.Hosts, to.Hosts}, {"limit", s.Limits.Lines(), to.Limits.Lines()},
	} {
		for _, value := range c.old {
			if value != "" && !slices.Contains(c.now, value) {
				lines = append(lines, "- "+c.name+": "+value)
			}
		}
		for _, value := range c.now {
			if value != "" && !slices.Contains(c.old, value) {
				lines = append(lines, "+ "+c.name+": "+value)
			}
		}
	}
	return strings.Join(lines, "\n")
}

// withPrograms returns the server with the files that its command names now. If they differ from those that were
// approved, the server is pending, and the difference names the files.
func (s Server) withPrograms(now []string) Server {
	if slices.Equal(s.Programs, now) {
		return s
	}
	lines := []string{}
	if s.Difference != "" {
		lines = append(lines, s.Difference)
	}
	for _, line := range s.Programs {
		if !slices.Contains(now, line) {
			lines = append(lines, "- program: "+line)
		}
	}
	for _, line := range now {
		if !slices.Contains(s.Programs, line) {
			lines = append(lines, "+ program: "+line)
		}
	}
	if s.Status == Approved {
		s.Status = Pending
	}
	s.Programs, s.Difference = now, strings.Join(lines, "\n")
	return s
}

// Tool is a tool as a server lists it.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"inputSchema"`
	SHA256      string          `json:"sha256"`
}

// Limits of what a server lists.
const (
	maxTools    = 128
	maxToolSize = 32 << 10  // bytes of one tool
	maxAllTools = 256 << 10 // bytes of all tools
)

// Canonical returns the tools sorted by name, with canonical schemas and their hashes.
func Canonical(tools []Tool) ([]Tool, error) {
	all, size := slices.Clone(tools), 0
	for i, t := range all {
		schema, err := canonicalJSON(t.InputSchema)
		if err != nil {
			return nil, fmt.Errorf("input schema of tool %q: %w", t.Name, err)
		}
		all[i].InputSchema = schema
		body, err := json.Marshal(map[string]any{"name": t.Name, "description": t.Description, "inputSchema": schema})
		if err != nil {
			return nil, fmt.Errorf("encode tool %q: %w", t.Name, err)
		}
		if size += len(body); len(body) > maxToolSize {
			return nil, fmt.Errorf("tool %q has %d bytes, at most %d are allowed", t.Name, len(body), maxToolSize)
		}
		sum := sha256.Sum256(body)
		all[i].SHA256 = hex.EncodeToString(sum[:])
	}
	if len(all) > maxTools || size > maxAllTools {
		return nil, fmt.Errorf("the server lists %d tools of %d bytes, at most %d of %d are allowed", len(all), size, maxTools,
			maxAllTools)
	}
	slices.SortFunc(all, func(a, b Tool) int { return cmp.Compare(a.Name, b.Name) })
	for i := range all[:max(0, len(all)-1)] {
		if all[i].Name == all[i+1].Name {
			return nil, fmt.Errorf("the server lists the tool %q twice", all[i].Name)
		}
	}
	return all, nil
}

// canonicalJSON returns a JSON object with sorted keys. Numbers stay as they are written.
func canonicalJSON(raw json.RawMessage) (json.RawMessage, error) {
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	var value map[string]any
	if err := d.Decode(&value); err != nil {
		return nil, err
	}
	return json.Marshal(value)
}

// difference compares canonical tools and versions. It returns one line for each change, "" if there is none.
func difference(oldVersion, newVersion string, old, found []Tool) string {
	var lines []string
	if oldVersion != newVersion {
		lines = append(lines, fmt.Sprintf("version: %q → %q", oldVersion, newVersion))
	}
	was := map[string]Tool{}
	for _, t := range old {
		was[t.Name] = t
	}
	for _, t := range found {
		before, known := was[t.Name]
		delete(was, t.Name)
		switch {
		case !known:
			lines = append(lines, fmt.Sprintf("+ tool %s: %q %s", t.Name, t.Description, t.InputSchema))
		case before.SHA256 != t.SHA256:
			lines = append(lines, changeOf(before, t)...)
		}
	}
	for _, t := range old {
		if _, gone := was[t.Name]; gone {
			lines = append(lines, "- tool "+t.Name)
		}
	}
	return strings.Join(lines, "\n")
}

func changeOf(before, now Tool) (lines []string) {
	if before.Description != now.Description {
		lines = append(lines, fmt.Sprintf("- %s, description: %q", now.Name, before.Description),
			fmt.Sprintf("+ %s, description: %q", now.Name, now.Description))
	}
	if string(before.InputSchema) != string(now.InputSchema) {
		lines = append(lines, fmt.Sprintf("- %s, input schema: %s", now.Name, before.InputSchema),
			fmt.Sprintf("+ %s, input schema: %s", now.Name, now.InputSchema))
	}
	return lines
}

var (
	serverName   = regexp.MustCompile(`^[A-Za-z0-9-]{1,24}$`)
	variableName = regexp.MustCompile(`^[A-Z_][A-Z0-9_]{0,63}$`)
	headerName   = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]{0,63}$`)
	unnamed      = regexp.MustCompile(`[^A-Za-z0-9_-]`)
	pinnedNPM    = regexp.MustCompile(`^(@[^@/\s]+/)?[^@/\s]+@\d+\.\d+\.\d+\S*$`)
	pinnedPython = regexp.MustCompile(`^[^@=\s]+(@|==)\d+(\.\d+)+\S*$`)
)

// Limits of a definition.
const (
	maxDefinition = 4 << 10 // bytes of the command and the URL
	maxHosts      = 64
)

// Check refuses a server that the gateway could not run, or whose version is not exact. The field is that of a record.
func (s Server) Check() error {
	names, what := variableName, "a variable, such as API_TOKEN"
	switch {
	case !serverName.MatchString(s.Name):
		return record.Invalid("name", "The name of an MCP server must be 1 to 24 letters, digits and -.")
	case s.Command != "" && s.URL != "":
		return record.Invalid("url", "An MCP server has a command or a URL, not both.")
	case len(s.Command)+len(s.URL) > maxDefinition || strings.ContainsAny(s.Command, "\x00\n\r"):
		return record.Invalid("command", "The command must be one line of at most %d bytes.", maxDefinition)
	case s.URL != "":
		names, what = headerName, "a header, such as Authorization"
		u, err := url.Parse(s.URL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil ||
			u.Fragment != "" {
			return record.Invalid("url", "The URL must begin with http:// or https:// and have no user name.")
		}
	}
	for _, name := range s.Environment {
		if !names.MatchString(name) {
			return record.Invalid("environment", "%q is no name of %s.", name, what)
		}
	}
	if err := s.checkHosts(); err != nil {
		return err
	}
	if s.URL != "" && s.Limits != (Limits{}) {
		return record.Invalid("limits", "A remote MCP server has no limits: it does not run here.")
	}
	if _, err := s.Limits.Parse(); err != nil {
		return err
	}
	return checkExact(s.Command)
}

// checkHosts refuses a host that the egress proxy could not match. A private host must be an IP address, because a name
// could mean another one tomorrow.
func (s Server) checkHosts() error {
	switch {
	case s.URL != "" && len(s.Hosts) > 0:
		return record.Invalid("hosts", "A remote MCP server has no hosts: PocketCoder reaches only its URL.")
	case len(s.Hosts) > maxHosts:
		return record.Invalid("hosts", "An MCP server may have at most %d hosts.", maxHosts)
	}
	for _, pattern := range s.Hosts {
		at, err := policy.ParseAddress(pattern)
		if err == nil && at.Private() != "" {
			if _, err := netip.ParseAddr(at.Host); err != nil {
				return record.Invalid("hosts", "%s; a private host is named by its IP address.", at.Private())
			}
			continue
		}
		if err := (policy.Rule{Permission: events.KindNetwork, Pattern: pattern}).Check(); err != nil {
			return record.Invalid("hosts",
				"%q is no host such as api.example.org, *.example.org or git.example.org:22: %s", pattern, err)
		}
	}
	return nil
}

// checkExact refuses a package of npx or uvx without an exact version, because another one could run tomorrow.
func checkExact(command string) error {
	words := strings.Fields(command)
	if len(words) == 0 {
		return nil
	}
	pinned := map[string]*regexp.Regexp{"npx": pinnedNPM, "bunx": pinnedNPM, "uvx": pinnedPython}[words[0]]
	if pinned == nil {
		return nil
	}
	for _, word := range words[1:] {
		if !strings.HasPrefix(word, "-") {
			if !pinned.MatchString(word) {
				return record.Invalid("command",
					"The command must name the exact version of its package %s, such as 1.2.3.", word)
			}
			return nil
		}
	}
	return record.Invalid("command", "The command names no package.")
}

// maxToolName is the longest name, in bytes, that model providers accept. OpenCode adds events.OwnTools to a name.
const maxToolName = 64

// prefix begins the names under which the tools of all servers are offered.
const prefix = "mcp_"

// OfferedName returns the name under which PocketCoder's MCP server offers a tool.
func (s Server) OfferedName(tool string) string {
	return prefix + s.Name + "_" + unnamed.ReplaceAllString(tool, "_")
}

// OfPermission returns the server and the tool of a permission request, as OpenCode names it. ok is false for another
// request.
func OfPermission(permission string) (server, tool string, ok bool) {
	name, isOffered := strings.CutPrefix(permission, events.OwnTools+prefix)
	server, tool, ok = strings.Cut(name, "_")
	return server, tool, ok && isOffered
}

// Offered returns the pinned tools of an approved server by the names under which they are offered, and a sentence for
// each tool that is not offered.
func (s Server) Offered() (offered map[string]Tool, refused []string) {
	if s.Status != Approved {
		return nil, nil
	}
	return s.offered(s.Tools)
}

func (s Server) offered(tools []Tool) (offered map[string]Tool, refused []string) {
	offered = map[string]Tool{}
	for _, t := range tools {
		name := s.OfferedName(t.Name)
		switch other, taken := offered[name]; {
		case t.Name == "":
			refused = append(refused, "A tool has no name.")
		case len(events.OwnTools)+len(name) > maxToolName:
			refused = append(refused, fmt.Sprintf(
				"The name %s of the tool %q is too long: with %s it has %d bytes, and %d are allowed.",
				name, t.Name, events.OwnTools, len(events.OwnTools)+len(name), maxToolName))
		case taken:
			refused = append(refused, fmt.Sprintf("The tools %q and %q would have the same name %s. Only the first is offered.",
				other.Name, t.Name, name))
		case hasCaller(t.InputSchema):
			refused = append(refused, fmt.Sprintf("The tool %q has an argument caller, which PocketCoder needs itself.", t.Name))
		default:
			offered[name] = t
		}
	}
	return offered, refused
}

// hasCaller reports whether a schema has a property with the name of the argument that the plugin in OpenCode adds.
func hasCaller(schema json.RawMessage) bool {
	var s struct{ Properties map[string]json.RawMessage }
	_ = json.Unmarshal(schema, &s) // it was checked
	_, has := s.Properties["caller"]
	return has
}

// Report is what a started server says of itself. With Problem it does not work, and the rest is empty.
type Report struct {
	Version string
	Tools   []Tool
	Problem string
}

// Apply returns the server after a report of it while it is approved. The first list of tools is pinned. A later list
// that differs makes the server pending again. A list that is invalid, or from which nothing can be offered, is
// a problem.
func (s Server) Apply(r Report) Server {
	if r.Problem != "" {
		s.Problem = r.Problem
		return s
	}
	found, err := Canonical(r.Tools)
	if err != nil {
		s.Problem = err.Error()
		return s
	}
	if s.Tools == nil {
		s.Version, s.Tools = r.Version, append([]Tool{}, found...)
	} else if d := difference(s.Version, r.Version, s.Tools, found); d != "" {
		s.Status, s.FoundVersion, s.FoundTools, s.Difference = Pending, r.Version, append([]Tool{}, found...), d
	}
	offered, refused := s.offered(s.Tools)
	s.Problem, s.NotOffered = "", strings.Join(refused, "\n")
	if len(offered) == 0 && len(refused) > 0 {
		s.Problem = "none of its tools can be offered to the model"
	}
	return s
}
