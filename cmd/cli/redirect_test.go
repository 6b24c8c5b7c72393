package cli_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/cmd/client"
)

func TestATokenFollowsNoRedirect(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	asked := false
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	t.Cleanup(elsewhere.Close)
	server := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	t.Cleanup(server.Close)
	_, err := client.Read[map[string]any](t.Context(), client.At(server.URL), "/api/health")
	is.True(err != nil)
	is.True(!asked)
}
