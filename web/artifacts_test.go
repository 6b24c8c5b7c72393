package web_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers/account"
	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

func TestArtifactIsTheFileAsTheCommandLeftIt(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, owner := s.User(t, "ada", account.User)
	_, stranger := s.User(t, "eve", account.User)
	chat := s.Chat(t, owner, "mine")
	kept, err := s.Log.Blobs.PutByHash(t.Context(), []byte("<script>kept</script>"))
	is.NoErr(err)
	write := func(name, content string) {
		is.NoErr(os.WriteFile(filepath.Join(s.Workspace, name), []byte(content), 0o644))
	}
	is.NoErr(os.Mkdir(filepath.Join(s.Workspace, "out"), 0o755))
	write("same.txt", "the same")
	write("changed.txt", "another")
	write("longer.txt", "longer than it was")
	write("out/a b.html", "another")
	write("unhashed.bin", "x")
	s.AppendExecution(t, chat, "exec1", &events.ExecFinished{})
	artifact := func(path, content string) events.Artifact {
		return events.Artifact{Path: path, Size: int64(len(content)), SHA256: webtest.Sha256Of(content)}
	}
	page := artifact("out/a b.html", "<script>kept</script>")
	page.Blob = &kept
	s.Append(t, chat, events.ExecChanged{Exec: "exec1", Files: []events.Artifact{
		page, artifact("same.txt", "the same"), artifact("changed.txt", "one way"), artifact("longer.txt", "longer"),
		artifact("gone.txt", "gone"),
		{Path: "unhashed.bin", Size: 1}, artifact("empty", ""),
	}})
	get := func(token, path, ranged string) (*http.Response, string) {
		r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+"/api/executions/exec1/artifacts/"+path, nil)
		is.NoErr(err)
		r.Header.Set("Authorization", token)
		if ranged != "" {
			r.Header.Set("Range", ranged)
		}
		resp, err := http.DefaultClient.Do(r)
		is.NoErr(err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		is.NoErr(err)
		return resp, string(body)
	}
	for _, c := range []struct {
		path, ranged string
		status       int
		want         string
	}{
		{"out/a%20b.html", "", 200, "<script>kept</script>"},
		{"out/a%20b.html", "bytes=8-11", 206, "kept"},
		{"out/a%20b.html", "bytes=-9", 206, "</script>"},
		{"same.txt", "", 200, "the same"},
		{"same.txt", "bytes=4-", 206, "same"},
		{"changed.txt", "", 410, ""},
		{"longer.txt", "", 410, ""},
		{"gone.txt", "", 410, ""},
		{"unhashed.bin", "", 410, ""},
		{"empty", "", 200, ""},
		{"other.txt", "", 404, ""},
		{"out", "", 404, ""},
		{"out%2F..%2Fsame.txt", "", 404, ""},
	} {
		resp, got := get(owner, c.path, c.ranged)
		is.Equal(resp.StatusCode, c.status)
		if c.status >= 300 {
			is.True(strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json"))
			continue
		}
		is.Equal(got, c.want)
		is.Equal(resp.Header.Get("Content-Security-Policy"), "sandbox; default-src 'none'")
		is.Equal(resp.Header.Get("X-Content-Type-Options"), "nosniff")
	}
	_, body := get(owner, "unhashed.bin", "")
	expect.Contains(t, body, "it is unknown whether")
	resp, _ := get(owner, "out/a%20b.html", "")
	is.Equal(resp.Header.Get("Content-Type"), "application/octet-stream")
	is.Equal(resp.Header.Get("Content-Disposition"), `attachment; filename="a b.html"`)
	is.Equal(resp.Header.Get("ETag"), `"`+page.SHA256+`"`)
	resp, _ = get(stranger, "same.txt", "")
	is.Equal(resp.StatusCode, http.StatusNotFound)
	resp, _ = get("", "same.txt", "")
	is.Equal(resp.StatusCode, http.StatusUnauthorized)

	_, list := s.Call(t, owner, "GET", "/api/collections/artifacts/records?sort=path&filter="+
		webtest.Escape(`execution="exec1" && size>8`), nil)
	items := list["items"].([]any)
	is.Equal(len(items), 1)
	first := items[0].(map[string]any)
	is.Equal([]any{first["path"], first["size"], first["sha256"], first["blob"], first["chat"]},
		[]any{page.Path, float64(page.Size), page.SHA256, kept.Name, chat})
	_, list = s.Call(t, stranger, "GET", "/api/collections/artifacts/records", nil)
	is.Equal(len(list["items"].([]any)), 0)
}

func TestAFileThatTheAssistantSentIsServedToThoseWhoMayReadItsChat(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, owner := s.User(t, "ada", account.User)
	_, stranger := s.User(t, "eve", account.User)
	chat := s.Chat(t, owner, "mine")
	content, err := s.Log.Blobs.PutByHash(t.Context(), []byte("<script>the plan</script>"))
	is.NoErr(err)
	s.Append(t, chat, events.FileSent{File: "file1", MessageID: "msg_1", Part: "prt_1", Path: "out/plan.html",
		Caption: "The plan", Content: content})
	get := func(token, id string) *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+"/api/artifacts/"+id+"/content", nil)
		is.NoErr(err)
		r.Header.Set("Authorization", token)
		resp, err := http.DefaultClient.Do(r)
		is.NoErr(err)
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	resp := get(owner, "file1")
	is.Equal(resp.StatusCode, http.StatusOK)
	is.Equal(resp.Header.Get("Content-Type"), "application/octet-stream") // no browser runs it
	is.Equal(resp.Header.Get("Content-Disposition"), "attachment; filename=plan.html")
	is.Equal(resp.Header.Get("Content-Security-Policy"), "sandbox; default-src 'none'")
	body, err := io.ReadAll(resp.Body)
	is.NoErr(err)
	is.Equal(string(body), "<script>the plan</script>")
	is.Equal(get(owner, "file2").StatusCode, http.StatusNotFound)
	is.Equal(get(stranger, "file1").StatusCode, http.StatusNotFound)
	is.Equal(get("", "file1").StatusCode, http.StatusUnauthorized)
	_, list := s.Call(t, owner, "GET", "/api/collections/artifacts/records?filter="+webtest.Escape(`execution=""`), nil)
	first := list["items"].([]any)[0].(map[string]any)
	is.Equal([]any{first["id"], first["path"], first["caption"]}, []any{"file1", "out/plan.html", "The plan"})
	s.Append(t, chat, events.Deleted{})
	is.Equal(get(owner, "file1").StatusCode, http.StatusNotFound)
}
