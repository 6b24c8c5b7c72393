package events

// The kinds of permission requests. OpenCode names a request after the tool that makes it, except that all tools that
// write request KindEdit. Every other kind is a tool of an MCP server.
const (
	KindBash              = "bash"
	KindRead              = "read"
	KindList              = "list"
	KindEdit              = "edit"
	KindWrite             = "write" // of rules and of requests over the API: to write a whole file
	KindExternalDirectory = "external_directory"
	KindGlob              = "glob"
	KindGrep              = "grep"
	KindLSP               = "lsp"
	KindWebfetch          = "webfetch"
	KindWebsearch         = "websearch"
	KindCodesearch        = "codesearch"
	KindTodowrite         = "todowrite"
	KindTodoread          = "todoread"
	KindTask              = "task"
	KindSkill             = "skill"
	KindMCP               = "mcp" // of rules: a tool of an MCP server, which the pattern names
	KindQuestion          = "question"
	KindDoomLoop          = "doom_loop"

	KindNetwork = "network" // to let a command reach a host
	KindBudget  = "budget"  // to exceed a budget
	KindKeep    = "keep"    // to keep a protected name that a command created, such as .envrc
)

// RequestSubject is what requests of a kind, and the patterns of their rules, are about.
type RequestSubject int

const (
	AboutTool    RequestSubject = iota // an MCP tool: the kind is its name
	AboutCommand                       // the metadata hold it
	AboutPath
	AboutSearch // a folder, and a pattern that says nothing of a place
	AboutURL
	AboutHost
	AboutName // of a subagent, a skill, or a tool
	AboutNothing
)

// RequestKind is what is known of a kind of permission requests.
type RequestKind struct {
	About       RequestSubject
	OpensFiles  bool   // OpenCode itself opens what the request names
	NeedsCall   bool   // the request is evaluated together with the arguments of its tool call
	OncePerCall bool   // a tool call makes at most one such request
	PersonOnly  bool   // no rule allows it
	Author      string // the part of PocketCoder that alone makes such requests; empty for the others
}

// RequestKinds holds the kinds. A tool of an MCP server is not in it, and its kind is the zero value.
var RequestKinds = map[string]RequestKind{
	KindBash:              {About: AboutCommand, NeedsCall: true, OncePerCall: true},
	KindRead:              {About: AboutPath, OpensFiles: true, NeedsCall: true, OncePerCall: true},
	KindList:              {About: AboutPath, OpensFiles: true},
	KindEdit:              {About: AboutPath, OpensFiles: true, NeedsCall: true, OncePerCall: true},
	KindWrite:             {About: AboutPath, OpensFiles: true},
	KindExternalDirectory: {About: AboutPath, NeedsCall: true},
	KindGlob:              {About: AboutSearch, OpensFiles: true},
	KindGrep:              {About: AboutSearch, OpensFiles: true},
	KindLSP:               {About: AboutNothing, OpensFiles: true, NeedsCall: true, OncePerCall: true},
	KindWebfetch:          {About: AboutURL},
	KindWebsearch:         {About: AboutNothing},
	KindCodesearch:        {About: AboutNothing},
	KindTodowrite:         {About: AboutNothing},
	KindTodoread:          {About: AboutNothing},
	KindTask:              {About: AboutName},
	KindSkill:             {About: AboutName},
	KindMCP:               {About: AboutName},
	KindQuestion:          {PersonOnly: true, About: AboutNothing},
	KindDoomLoop:          {PersonOnly: true, About: AboutNothing},
	KindNetwork:           {About: AboutHost, Author: "a command that connects to a host"},
	KindBudget:            {PersonOnly: true, About: AboutNothing, Author: "a budget"},
	KindKeep:              {PersonOnly: true, About: AboutNothing, Author: "a command that creates a protected name"},
}
