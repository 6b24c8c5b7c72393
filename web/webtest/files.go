package webtest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Get does a request for exactly this target: a client would clean it first.
func (s *System) Get(t testing.TB, token, target string, headers ...string) (*http.Response, string) {
	t.Helper()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	Check(t, err)
	defer conn.Close()
	lines := append([]string{"GET " + target + " HTTP/1.1", "Host: " + s.Listener.Addr().String(), "Connection: close",
		"Authorization: " + token}, headers...)
	_, err = fmt.Fprint(conn, strings.Join(lines, "\r\n"), "\r\n\r\n")
	Check(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	Check(t, err)
	body, err := io.ReadAll(resp.Body)
	Check(t, err)
	return resp, string(body)
}

// File writes a file of the workspace.
func (s *System) File(t testing.TB, name, content string) {
	t.Helper()
	name = filepath.Join(s.Workspace, name)
	Check(t, os.MkdirAll(filepath.Dir(name), 0o755))
	Check(t, os.WriteFile(name, []byte(content), 0o644))
}
