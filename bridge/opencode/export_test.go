package opencode

import "context"

// What tests with the real OpenCode need; they are outside the package because opencodetest imports it.
var (
	Eventually = eventually
	WriteFile  = write
	ReadFile   = read
	ProcessID  = processID
	WrittenPID = writtenPID
	Nest       = nest
)

func (c *Client) Password() string { return c.password }

// AddMCP makes OpenCode start an MCP server over stdio.
func (c *Client) AddMCP(ctx context.Context, directory, name string, command ...string) error {
	_, err := c.do(ctx, call{op: "add mcp server", method: "POST", path: "/mcp", query: inDirectory(directory),
		in: map[string]any{"name": name, "config": map[string]any{"type": "local", "command": command, "enabled": true}}})
	return err
}

// Descendants are a process and its descendants.
func Descendants(pid int) (pids []int) {
	for _, p := range processTree(pid) {
		pids = append(pids, p.pid)
	}
	return pids
}
