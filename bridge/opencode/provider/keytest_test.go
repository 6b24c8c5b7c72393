package provider

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers/model"
)

// redirected sends requests for any host to a server. It checks that the key would go to the provider over TLS.
type redirected struct {
	t      *testing.T
	server *httptest.Server
}

func (r redirected) RoundTrip(req *http.Request) (*http.Response, error) {
	is.New(r.t).Equal(req.URL.Scheme, "https")
	at, err := url.Parse(r.server.URL)
	if err != nil {
		return nil, err
	}
	out := req.Clone(req.Context())
	out.Header.Set("Asked", req.URL.Host)
	out.URL.Scheme, out.URL.Host = at.Scheme, at.Host
	return http.DefaultTransport.RoundTrip(out)
}

func TestAKeyIsTestedWithItsProvider(t *testing.T) {
	t.Parallel()
	const good = "sk-good-0123456789"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		headers := map[string]string{"api.anthropic.com": "X-Api-Key", "generativelanguage.googleapis.com": "X-Goog-Api-Key"}
		key, want := r.Header.Get("Authorization"), "Bearer "+good
		if header, found := headers[r.Header.Get("Asked")]; found {
			key, want = r.Header.Get(header), good
		}
		switch {
		case r.Method != "GET":
			w.WriteHeader(http.StatusMethodNotAllowed)
		case key == want:
			w.Write([]byte(`{"data":[]}`))
		case key == "Bearer sk-poor":
			w.WriteHeader(http.StatusPaymentRequired)
			w.Write([]byte(`{"error":"no credit"}`))
		case key == "Bearer sk-moved":
			http.Redirect(w, r, "https://elsewhere.example/", http.StatusFound)
		default:
			w.WriteHeader(http.StatusUnauthorized)
			w.Write([]byte(`{"error":{"message":"Incorrect API key provided: ` + r.Header.Get("X-Api-Key") + `sk-bad-0123456789"}}`))
		}
	}))
	t.Cleanup(server.Close)
	tests := KeyTests{Transport: redirected{t, server}}
	try := func(id, variable, key string) []string {
		verdict, said := tests.Try(t.Context(), id, map[string]string{variable: key})
		return []string{verdict, said}
	}
	is := is.New(t)
	for _, k := range known {
		want := model.KeyAccepted
		if k.test == "" {
			want = model.NotTested
		}
		is.Equal(try(k.id, k.variable, good), []string{want, ""}) // k.id
		// the proxy takes the same key
		is.True(slices.ContainsFunc(keys, func(one struct{ logins, variables, hosts []string }) bool {
			return slices.Contains(one.logins, k.id) && slices.Contains(one.variables, k.variable)
		}))
	}
	is.Equal(len(known), len(keys))
	is.Equal(try("openai", "OPENAI_API_KEY", "sk-bad-0123456789"),
		[]string{model.KeyRefused, "status 401: Incorrect API key provided: [redacted]"})
	is.Equal(try("openai", "OPENAI_API_KEY", "sk-poor"), []string{model.KeyUnclear, "status 402: no credit"})
	is.Equal(try("openai", "OPENAI_API_KEY", "sk-moved")[0], model.KeyUnclear)
	is.Equal(try("openai", "OTHER", good)[0], model.NotTested)
	is.Equal(try("acme", "ACME_API_KEY", good)[0], model.NotTested)

	down := KeyTests{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
		return nil, errors.New("no route")
	})}
	verdict, said := down.Try(t.Context(), "openai", map[string]string{"OPENAI_API_KEY": good})
	is.Equal([]string{verdict, said}, []string{model.NoAnswer, "no route"})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
