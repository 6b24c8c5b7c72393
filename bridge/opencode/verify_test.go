package opencode

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/bridge/opencode/provider"
	"pocketcoder/ops/expect"
)

// The errors name what a person can change.
func TestAModelThatOpenCodeCannotUseIsReported(t *testing.T) {
	t.Parallel()
	const known = `{"all":[{"id":"anthropic","env":["ANTHROPIC_API_KEY"],"models":{"claude-x":{}}},` +
		`{"id":"corp","models":{"m":{}}},{"id":"xai","env":["XAI_API_KEY"],"models":{"new":{}}}],"connected":["xai"]}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, known) }))
	t.Cleanup(server.Close)
	for name, c := range map[string]struct {
		provider provider.Provider
		usable   []string
		want     string // part of the error; "" for none
	}{
		"it can be used": {provider.Provider{Model: "xai/new"}, []string{"xai/new"}, ""},
		"none is named":  {provider.Provider{}, nil, ""},
		"without its key": {provider.Provider{Model: "anthropic/claude-x"}, nil,
			"--model anthropic/claude-x cannot be used: provider anthropic has no key; set ANTHROPIC_API_KEY. No model can be used yet"},
		"no such model": {provider.Provider{Model: "xai/x"}, []string{"xai/new"},
			"provider xai has no model x; it has new. Models that can be used: xai/new"},
		"no such provider": {provider.Provider{Model: "missing/x"}, nil, "there is no provider missing"},
		"not set up":       {provider.Provider{Model: "corp/m"}, nil, "provider corp is not set up"},
		"a known name": {provider.Provider{Model: "xai/x", BaseURL: server.URL}, []string{"xai/new", "xai/x"},
			"OpenCode knows another provider named xai; give this one another name, such as custom/x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &Supervisor{Provider: c.provider}
			err := s.verifyModel(t.Context(), client.New(server.URL, "x"), client.Models{Usable: c.usable})
			is.New(t).Equal(err != nil, c.want != "")
			if err != nil {
				expect.Contains(t, err.Error(), c.want)
			}
		})
	}
}
