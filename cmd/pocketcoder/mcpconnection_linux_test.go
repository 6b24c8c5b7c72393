package main

import (
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/ops/expect"
)

// closeConnections closes the accepted connections of a listener of this process, and returns how many there were.
func closeConnections(t *testing.T, address string) (n int) {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	is.New(t).NoErr(err)
	entries, err := os.ReadDir("/proc/self/fd")
	is.New(t).NoErr(err)
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		local, err := syscall.Getsockname(fd)
		if err != nil {
			continue
		}
		at, isTCP := local.(*syscall.SockaddrInet4)
		if _, err := syscall.Getpeername(fd); err == nil && isTCP && strconv.Itoa(at.Port) == port {
			is.New(t).NoErr(syscall.Shutdown(fd, syscall.SHUT_RDWR))
			n++
		}
	}
	return n
}

// delegateOutlivesMCPConnection closes the connections of a handoff that waits. OpenCode, which lives on, fails the
// call after its limit without progress. egress is the proxy address through which OpenCode connects.
func delegateOutlivesMCPConnection(t *testing.T, p *process, egress string) {
	expect.Long(t, "waits for OpenCode's limit of a call")
	is := is.New(t)
	worked := strings.Replace(bash("echo worked"), "say done", "say the result", 1)
	parent := p.chat(t, ownTool("handoff", map[string]any{"message": worked}))
	expect.Eventually(t, "the delegate is started", func() bool { return len(p.delegates(t, parent)) == 1 })
	id := p.delegates(t, parent)[0].ID
	request := p.awaitRequestOfPerson(t, id, 0)

	is.True(closeConnections(t, egress) > 0)
	out, _, code := p.cli(t, "", "delegates", parent)
	is.Equal(code, 0)
	expect.Contains(t, out, id)
	p.decide(t, id, request, events.Authorized, "")
	p.turnEnds(t, id)
	expect.Eventually(t, "delegates check shows the result", func() bool {
		out, _, _ := p.cli(t, "", "delegates", "check", id)
		return strings.Contains(out, "the result")
	})

	p.event(t, parent, events.MessageSubmitted{}.Kind(), func(e events.Event) bool {
		d, _ := events.Decode(e)
		m, ok := d.(events.MessageSubmitted)
		return ok && m.IsReport()
	})
	expect.Contains(t, p.delegateReports(t, parent)[0].Parts[0].Text, "the result")
	p.turnEnds(t, parent)
	is.Equal(p.tools(t, parent)[0].State.Error, "MCP error -32001: Request timed out")

	p.submit(t, parent, ownTool("mcp_status", map[string]any{})) // OpenCode connects again
	expect.Eventually(t, "the tool is called", func() bool { return len(p.tools(t, parent)) == 2 })
	is.Equal(p.outputOf(t, parent, 1), `{"servers":[]}`)
	is.Equal(len(p.delegateReports(t, parent)), 1)
}
