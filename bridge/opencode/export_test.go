package opencode

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"pocketcoder/bridge/opencode/client"
)

// What tests with the real OpenCode need; they are outside the package because opencodetest imports it.
var (
	ProcessID  = processID
	WrittenPID = writtenPID
	Nest       = addNestedRepository
)

// AddMCP makes OpenCode start an MCP server over stdio.
func AddMCP(ctx context.Context, c *client.Client, directory, name string, command ...string) error {
	body, err := json.Marshal(map[string]any{"name": name, "config": map[string]any{"type": "local", "command": command,
		"enabled": true}})
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, "POST", c.URL()+"/mcp?"+url.Values{"directory": {directory}}.Encode(),
		bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.SetBasicAuth("opencode", c.Password())
	r.Header.Set("Content-Type", "application/json")
	resp, err := c.HTTP().Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("add mcp server: %s", resp.Status)
	}
	return nil
}

// Get returns the answer to a GET request. The routes below /api are OpenCode's newer API, which this package does not
// use.
func Get(ctx context.Context, c *client.Client, directory, path string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, "GET", c.URL()+path+"?"+
		url.Values{"location[directory]": {directory}}.Encode(), nil)
	if err != nil {
		return "", err
	}
	r.SetBasicAuth("opencode", c.Password())
	resp, err := c.HTTP().Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

// Descendants are a process and its descendants.
func Descendants(pid int) (pids []int) {
	for _, p := range processTree(pid) {
		pids = append(pids, p.pid)
	}
	return pids
}

// Plugin returns the source of our plugin for an MCP server of ours.
func Plugin(own MCPServer) (string, error) {
	s := &Supervisor{own: own}
	return s.plugin()
}
