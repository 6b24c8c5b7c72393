package pages_test

import (
	"bufio"
	"net/http"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

func TestLivePagesOfAnAccountAreBounded(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	s.User(t, "ann", "user")
	s.User(t, "bob", "user")
	ann, phone, bob := loggedIn(t, s, "ann"), loggedIn(t, s, "ann"), loggedIn(t, s, "bob")
	s.Web.Site.LivePages = 2
	first := openLive(t, ann)
	is.Equal(first.StatusCode, http.StatusOK)
	is.Equal(openLive(t, phone).StatusCode, http.StatusOK)
	refused := openLive(t, ann)
	is.Equal(refused.StatusCode, http.StatusTooManyRequests)
	is.Equal(refused.Header.Get("Retry-After"), "10")
	page, err := bufio.NewReader(refused.Body).ReadString(0)
	is.True(err != nil)
	expect.Contains(t, page, "Too many pages of this account are open. Close some of them.")
	is.Equal(ann.visit(t, "/").status, http.StatusOK) // the page itself is shown
	is.Equal(openLive(t, bob).StatusCode, http.StatusOK)
	first.Body.Close()
	expect.Eventually(t, "another page is live", func() bool { return openLive(t, ann).StatusCode == http.StatusOK })
}

// openLive opens the stream of the list of chats.
func openLive(t *testing.T, b *browser) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", b.url+"/live?after=0", nil)
	webtest.Check(t, err)
	resp, err := b.Client.Do(r)
	webtest.Check(t, err)
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}
