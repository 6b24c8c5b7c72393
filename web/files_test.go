package web_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers/account"
	"pocketcoder/web/webtest"
)

const (
	filesPath    = "/api/pocketcoder/files/"
	artifactPath = "/api/pocketcoder/artifact/"
)

func TestListingOfTheWorkspace(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", account.User)
	s.File(t, "b.txt", "12345")
	s.File(t, "a dir/ä.md", "x")
	is.NoErr(os.Symlink("/etc", filepath.Join(s.Workspace, "link")))
	is.NoErr(syscall.Mkfifo(filepath.Join(s.Workspace, "pipe"), 0o644))
	for _, path := range []string{filesPath, filesPath + "%2e"} {
		status, got := s.Call(t, token, "GET", path, nil)
		is.Equal(status, http.StatusOK)
		var names []string
		for _, e := range got["entries"].([]any) {
			entry := e.(map[string]any)
			names = append(names, fmt.Sprint(entry["name"], " ", entry["type"], " ", entry["size"]))
			is.Equal(len(entry["modified"].(string)), len("2006-01-02 15:04:05.000Z"))
		}
		is.Equal(names, []string{"a dir directory 0", "b.txt file 5", "link symlink 0", "pipe other 0"})
		is.Equal(got["truncated"], false)
	}
	for _, path := range []string{"a%20dir", "a%20dir/"} {
		status, got := s.Call(t, token, "GET", filesPath+path, nil)
		is.Equal(status, http.StatusOK)
		is.Equal(got["path"], "a dir")
		is.Equal(got["entries"].([]any)[0].(map[string]any)["name"], "ä.md")
	}
	status, _ := s.Call(t, token, "GET", filesPath+"b.txt", nil)
	is.Equal(status, http.StatusBadRequest)
	status, _ = s.Call(t, "", "GET", filesPath, nil)
	is.Equal(status, http.StatusUnauthorized)
}

func TestListingOfALargeDirectoryIsTruncated(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", account.User)
	s.File(t, "0", "")
	for i := range 10_000 { // more names of one file: making files takes seconds on some file systems
		is.NoErr(os.Link(filepath.Join(s.Workspace, "0"), filepath.Join(s.Workspace, fmt.Sprint(i+1))))
	}
	status, got := s.Call(t, token, "GET", filesPath, nil)
	is.Equal(status, http.StatusOK)
	is.Equal(len(got["entries"].([]any)), 10_000)
	is.Equal(got["truncated"], true)
}

func TestArtifactIsServedSoThatABrowserCannotRunIt(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", account.User)
	for name, want := range map[string][2]string{
		"out/notes.TXT": {"text/plain; charset=utf-8", ""},
		"shot.png":      {"image/png", ""},
		"doc.pdf":       {"application/pdf", ""},
		"page.html":     {"application/octet-stream", "attachment; filename=page.html"},
		"image.svg":     {"application/octet-stream", "attachment; filename=image.svg"},
		"Makefile":      {"application/octet-stream", "attachment; filename=Makefile"},
		`a"b.js`:        {"application/octet-stream", `attachment; filename="a\"b.js"`},
		"ä\n.bin":       {"application/octet-stream", "attachment; filename*=utf-8''%C3%A4%0A.bin"},
	} {
		s.File(t, name, "<script>content</script>")
		target := artifactPath + strings.NewReplacer("%2F", "/", "+", "%20").Replace(webtest.Escape(name))
		resp, body := s.Get(t, token, target)
		is.Equal(resp.StatusCode, http.StatusOK)
		is.Equal(body, "<script>content</script>")
		is.Equal(resp.Header.Get("Content-Type"), want[0])
		is.Equal(resp.Header.Get("Content-Disposition"), want[1])
		is.Equal(resp.Header.Get("X-Content-Type-Options"), "nosniff")
		is.Equal(resp.Header.Get("Content-Security-Policy"), "sandbox; default-src 'none'")
		resp, body = s.Get(t, token, target, "Range: bytes=1-6")
		is.Equal(resp.StatusCode, http.StatusPartialContent)
		is.Equal(body, "script")
	}
	s.File(t, "empty.log", "")
	resp, body := s.Get(t, token, artifactPath+"empty.log")
	is.Equal(resp.StatusCode, http.StatusOK)
	is.Equal(body, "")
}

func TestPathsOutsideTheWorkspaceAreRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", account.User)
	outside := filepath.Join(filepath.Dir(s.Workspace), "outside.txt")
	is.NoErr(os.WriteFile(outside, []byte("the secret"), 0o644))
	s.File(t, "dir/file.txt", "inside")
	for link, to := range map[string]string{
		"out": outside, "up": "..", "etc": "/etc", "in": "dir/file.txt", "dir/here": ".", "loop": "loop", "dangling": "nothing",
	} {
		is.NoErr(os.Symlink(to, filepath.Join(s.Workspace, link)))
	}
	is.NoErr(syscall.Mkfifo(filepath.Join(s.Workspace, "pipe"), 0o644))
	socket, err := net.Listen("unix", filepath.Join(s.Workspace, "socket"))
	is.NoErr(err)
	defer socket.Close()
	is.NoErr(os.WriteFile(filepath.Join(s.Workspace, "closed"), nil, 0o000))
	for _, path := range []string{
		"../outside.txt", "dir/../../outside.txt", "%2e%2e/outside.txt", "%2e%2e%2foutside.txt", "..%2foutside.txt",
		"dir%2f..%2f..%2foutside.txt", "dir/%2e%2e/file.txt",
		"/etc/passwd", "%2fetc%2fpasswd", "//etc/passwd", "dir//file.txt", "dir%2f%2ffile.txt", "./dir/file.txt",
		"%2e/dir/file.txt",
		"..%5coutside.txt", "dir%5cfile.txt", "C:%5cx", "dir/file.txt%00", "%00", "dir/file.txt%00.png", "%ff%fe",
		"out", "up/outside.txt", "etc/passwd", "in", "dir/here/file.txt", "loop", "dangling", "up", "etc",
		"nothing", "nothing/at/all", "dir/file.txt/more", "pipe", "socket", strings.Repeat("x", 300),
		strings.Repeat("x/", 3000) + "x",
	} {
		for _, route := range []string{filesPath, artifactPath} {
			resp, body := s.Get(t, token, route+path)
			if resp.StatusCode/100 == 3 { // the router cleaned the path; the result is within the API
				is.True(strings.HasPrefix(resp.Header.Get("Location"), "/api/"))
				continue
			}
			if resp.StatusCode/100 != 4 || strings.Contains(body, "secret") || !strings.HasPrefix(body, `{"status":`) {
				t.Errorf("%s%.80s: %s %.200s", route, path, resp.Status, body)
			}
		}
	}
	for _, directory := range []string{"", "dir", "."} {
		resp, _ := s.Get(t, token, artifactPath+directory)
		is.True(resp.StatusCode/100 != 2 && resp.StatusCode/100 != 5) // a directory is no artifact
	}
}
