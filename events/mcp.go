package events

import "encoding/json"

// OwnServer is the name of PocketCoder's own MCP server in OpenCode. OwnTools begins the names that OpenCode gives to
// the tools of that server.
const (
	OwnServer = "pocketcoder"
	OwnTools  = OwnServer + "_"
)

// MCPCalled means that a tool call is sent to an MCP server of the gateway.
type MCPCalled struct {
	Server    string          `json:"server"` // record of mcp_servers
	Name      string          `json:"name"`   // of the server
	Tool      string          `json:"tool"`   // as the server names it
	SHA256    string          `json:"sha256"` // of the pinned tool
	Session   string          `json:"session"`
	Call      string          `json:"call"`
	Arguments json.RawMessage `json:"arguments"`
}

// MCPReturned is the result of an mcp.called with the same session and call.
type MCPReturned struct {
	Session    string          `json:"session"`
	Call       string          `json:"call"`
	Result     json.RawMessage `json:"result,omitempty"` // CallToolResult
	Error      string          `json:"error,omitempty"`  // why there is no result
	DurationMS int64           `json:"duration_ms"`
}

// MCPConnected records that an MCP server was allowed to reach a host or refused: once per host, port and answer while
// the server runs. After some hundred refusals no more are recorded. It is an event about the record of the server,
// because a connection may serve calls of several chats.
type MCPConnected struct {
	Name    string `json:"name"` // of the server
	Host    string `json:"host"`
	Port    int    `json:"port"`
	Allowed bool   `json:"allowed"`
	Reason  string `json:"reason"` // the rule that decided, or whether it is a host of the server
}

func (MCPCalled) Kind() string    { return "mcp.called" }
func (MCPReturned) Kind() string  { return "mcp.returned" }
func (MCPConnected) Kind() string { return "mcp.connected" }
