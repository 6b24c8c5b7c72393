package events

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
)

// PermissionRequest is the content of a permission request in OpenCode's form: of permission.asked, of OpenCode's list
// of pending requests, or of a PermissionRequested of our API. It has only the fields that PocketCoder reads.
type PermissionRequest struct {
	ID         string          `json:"id"` // per_…
	SessionID  string          `json:"sessionID"`
	Permission string          `json:"permission"` // bash, edit, …
	Patterns   []string        `json:"patterns"`
	Metadata   json.RawMessage `json:"metadata"` // bash: {command}; edit: {filepath, diff}; …
	Always     []string        `json:"always"`
	Tool       Call            `json:"tool"`
}

// NamesOnlyTool reports whether the request is for a tool of PocketCoder or of an MCP server. Such a request has no
// arguments.
func (a PermissionRequest) NamesOnlyTool() bool { return strings.HasPrefix(a.Permission, OwnTools) }

// Call names the tool call of a permission request or a question.
type Call struct {
	MessageID string `json:"messageID"`
	CallID    string `json:"callID"`
}

// Types of the OpenCode events that open a permission request or a question, and of those that close it.
const (
	PermissionAsked   = "permission.asked"
	PermissionReplied = "permission.replied"
	QuestionAsked     = "question.asked"
	QuestionReplied   = "question.replied"
	QuestionRejected  = "question.rejected"
)

// PermissionRequestOf returns the request that an event makes. direct reports whether the request was made over our
// API, not by OpenCode.
func PermissionRequestOf(e Event) (request PermissionRequest, direct bool, err error) {
	d, err := Decode(e)
	if err != nil {
		return request, false, err
	}
	if requested, ok := d.(PermissionRequested); ok {
		return requested.Request(), true, nil
	}
	err = json.Unmarshal(e.Data, &request)
	return request, false, err
}

// Request returns the request, which was made over the API, in the form of OpenCode's requests.
func (d PermissionRequested) Request() PermissionRequest {
	return PermissionRequest{
		ID: d.Permission, SessionID: d.Session, Permission: d.Type, Patterns: d.Patterns, Metadata: d.Metadata,
		Tool: Call{MessageID: d.MessageID, CallID: d.Call},
	}
}

// PermissionMetadata holds the fields of a permission request's metadata that PocketCoder reads. A field that is
// missing, or has another form, is empty.
type PermissionMetadata struct {
	Command     string `json:"command"`  // bash, and external_directory of the bash tool
	Filepath    string `json:"filepath"` // edit, external_directory
	Lsp         string `json:"filePath"` // lsp
	Diff        string `json:"diff"`     // edit
	Folder      string `json:"path"`     // grep, glob: the folder or file, absolute or relative to the session's directory
	Include     string `json:"include"`  // grep: a glob of the files that are searched
	URL         string `json:"url"`      // webfetch
	Description string `json:"description"`

	// Of a patch, each file absolute, and where it is moved. Its filepath holds the names alone, from OpenCode's worktree.
	Files []struct {
		FilePath string `json:"filePath"`
		MovePath string `json:"movePath"`
		Type     string `json:"type"` // add, update, delete, move
	} `json:"files"`
}

// About decodes the metadata of a request.
func (a PermissionRequest) About() (m PermissionMetadata) {
	_ = json.Unmarshal(a.Metadata, &m) // the policy asks a person about a request that lacks what it needs
	return m
}

// Keep decodes the metadata of a request of type keep.
func (a PermissionRequest) Keep() (m KeepMetadata) {
	_ = json.Unmarshal(a.Metadata, &m) // the sandbox wrote it
	return m
}

// File returns the one file that a request names, "" for none.
func (m PermissionMetadata) File() string { return cmp.Or(m.Filepath, m.Lsp) }

// Patched returns every file that a patch writes.
func (m PermissionMetadata) Patched() (paths []string) {
	for _, f := range m.Files {
		paths = append(paths, f.FilePath)
		if f.MovePath != "" {
			paths = append(paths, f.MovePath)
		}
	}
	return paths
}

// Command returns the command of a bash request, "" for others.
func (a PermissionRequest) Command() string {
	if a.Permission != KindBash {
		return ""
	}
	return a.About().Command
}

// Subject returns the command, the file or the address that a request is about. It returns "" if only the patterns say
// it.
func (a PermissionRequest) Subject() string {
	about := a.About()
	switch kind := RequestKinds[a.Permission]; {
	case kind.About == AboutCommand:
		return about.Command
	case kind.About == AboutPath, a.Permission == KindLSP:
		return about.File()
	case kind.About == AboutURL:
		return about.URL
	}
	return ""
}

// Text returns what a request is about: the subject, or else the patterns.
func (a PermissionRequest) Text() string { return cmp.Or(a.Subject(), strings.Join(a.Patterns, " ")) }

// Line describes a request in one line: its kind, and what it is about.
func (a PermissionRequest) Line() string {
	text := a.Text()
	if a.Permission == KindTask {
		text = cmp.Or(a.About().Description, text)
	}
	if text = strings.Join(strings.Fields(text), " "); text != "" {
		return a.Permission + ": " + text
	}
	return a.Permission
}

// ContentHash returns the SHA-256, in hex, of type, patterns and metadata. A request that is repeated byte for byte has
// the same.
func (a PermissionRequest) ContentHash() string {
	patterns, _ := json.Marshal(a.Patterns)
	var metadata bytes.Buffer
	if json.Compact(&metadata, a.Metadata) != nil {
		metadata.Write(a.Metadata)
	}
	sum := sha256.Sum256([]byte(a.Permission + "\n" + string(patterns) + "\n" + metadata.String()))
	return hex.EncodeToString(sum[:])
}

// Redacted reports whether the log holds [redacted] in place of a part of the request.
func (a PermissionRequest) Redacted() bool {
	texts := append([]string{string(a.Metadata), a.ID, a.SessionID, a.Permission, a.Tool.MessageID, a.Tool.CallID},
		a.Patterns...)
	return strings.Contains(strings.Join(texts, "\n"), Redacted)
}

// QuestionRequest is OpenCode's question.asked, or an entry of its list of pending questions. It has only the fields
// that PocketCoder reads.
type QuestionRequest struct {
	ID        string     `json:"id"` // que_…
	SessionID string     `json:"sessionID"`
	Questions []Question `json:"questions"`
	Tool      Call       `json:"tool"`
}

// ElicitationPrefix begins the ids of questions that an MCP server asks while a tool of it is called. They end with the
// call: their answers are for the server alone.
const ElicitationPrefix = "que_mcp_"

// IsElicitation reports whether an MCP server asks a question.
func IsElicitation(question string) bool { return strings.HasPrefix(question, ElicitationPrefix) }

// QuestionRequestOf returns the questions that an event asks, none for an event that asks nothing.
func QuestionRequestOf(e Event) (request QuestionRequest, err error) {
	if typ, ok := e.Subject.OpenCodeType(); ok && typ == QuestionAsked {
		return request, json.Unmarshal(e.Data, &request)
	}
	if e.Subject.Kind != (QuestionRequested{}).Kind() {
		return request, nil
	}
	d, err := Decode(e)
	if requested, ok := d.(QuestionRequested); ok {
		return requested.Request(), nil
	}
	return request, err
}

// Request returns the question, which the tool ask_person asked, in the form of OpenCode's questions.
func (d QuestionRequested) Request() QuestionRequest {
	return QuestionRequest{ID: d.Question, SessionID: d.Session, Questions: d.Questions,
		Tool: Call{MessageID: d.MessageID, CallID: d.Call}}
}

// Question is one of the questions that the model asked together.
type Question struct {
	Question string   `json:"question"`
	Header   string   `json:"header"`
	Options  []Option `json:"options"`
	Multiple bool     `json:"multiple"` // several options may be chosen
	Custom   *bool    `json:"custom"`   // free text is an answer too; nil is true
}

// Option is an answer that a question offers.
type Option struct {
	Label       string `json:"label"`
	Description string `json:"description"`
}

// Free reports whether free text is an answer too. Without options it always is.
func (q Question) Free() bool { return q.Custom == nil || *q.Custom || len(q.Options) == 0 }

// ContentHash returns the SHA-256, in hex, of the questions. The same questions have the same.
func (a QuestionRequest) ContentHash() string {
	body, _ := json.Marshal(a.Questions) // strings and booleans always encode
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// ChangedLines returns how many lines a unified diff of one file adds and removes: "+3 −1", or "no line changes".
func ChangedLines(diff string) string {
	added, removed := 0, 0
	_, lines, found := strings.Cut("\n"+diff, "\n@@") // the first hunk may be the first line
	if !found {
		lines = diff
	}
	for line := range strings.SplitSeq(lines, "\n") {
		switch {
		case !found && (strings.HasPrefix(line, "--- ") || strings.HasPrefix(line, "+++ ")): // a name
		case strings.HasPrefix(line, "+"):
			added++
		case strings.HasPrefix(line, "-"):
			removed++
		}
	}
	if added+removed == 0 {
		return "no line changes"
	}
	return fmt.Sprintf("+%d −%d", added, removed)
}
