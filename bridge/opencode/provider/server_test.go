package provider

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
)

// modelServer is a server with two models. It requires a key.
func modelServer(t *testing.T, key string) (baseURL string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer "+key:
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/v1/models":
			w.Write([]byte(`{"object":"list","data":[{"id":"org/gpt-5-scripted","max_model_len":65536},{"id":"other"}]}`))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL + "/v1"
}

func TestAServerSaysWhatAModelIs(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	asked := Provider{BaseURL: modelServer(t, "sk-x") + "/", APIKey: "sk-x", Model: "org/gpt-5-scripted"}
	p, err := asked.LookUp(t.Context())
	is.NoErr(err)
	is.Equal([]any{p.Model, p.Context}, []any{"custom/org/gpt-5-scripted", 65536})
	is.True(strings.HasSuffix(p.BaseURL, "/v1"))
}

func TestAServerThatCannotBeUsedIsReported(t *testing.T) {
	t.Parallel()
	const key = "sk-foreign-0123456789abcdef"
	server := modelServer(t, key)
	closed := httptest.NewServer(nil)
	closed.Close()
	echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		w.Write([]byte("not with " + r.Header.Get("Authorization")))
	}))
	t.Cleanup(echo.Close)
	for name, c := range map[string]struct {
		url, key, model, want string
	}{
		"wrong key":     {server, "sk-wrong-key", "other", "/v1/models answered 401: the key in POCKETCODER_MODEL_KEY is wrong"},
		"no key":        {server, "", "other", "the server needs a key; set POCKETCODER_MODEL_KEY"},
		"no such model": {server, key, "nope", "the server at " + server + " has no such model. It has org/gpt-5-scripted, other"},
		"no model":      {server, key, "", "name a model with --model. The server has org/gpt-5-scripted, other"},
		"no server":     {closed.URL + "/v1", "", "x", "GET " + closed.URL + "/v1/models failed: "},
		"wrong path":    {strings.TrimSuffix(server, "/v1"), key, "x", "most servers need /v1 at the end of the URL"},
		"key in answer": {echo.URL, key, "x", "answered 418: not with Bearer [redacted]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Provider{BaseURL: c.url, APIKey: c.key, Model: c.model}.LookUp(t.Context())
			is.New(t).True(err != nil)
			expect.Contains(t, err.Error(), c.want)
			expect.Lacks(t, err.Error(), key)
		})
	}
}

func TestABaseURLIsThatOfAServer(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	is.NoErr(CheckBaseURL("http://127.0.0.1:11434/v1"))
	for text, want := range map[string]string{
		"localhost:11434":                   "want a base URL such as http://127.0.0.1:11434/v1",
		"http://user:secret@127.0.0.1:1/v1": "put the key into POCKETCODER_MODEL_KEY",
		"http://127.0.0.1:1/v1?x=y":         "want a base URL",
		"http://127.0.0.1:1/%zz":            "this is not a URL",
	} {
		err := CheckBaseURL(text)
		is.True(err != nil) // text
		expect.Contains(t, err.Error(), want)
		expect.Lacks(t, err.Error(), "secret")
	}
}

func TestACatalogueThatCannotBeReadIsReported(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	_, err := ReadCatalogue("missing.json")
	expect.Contains(t, err.Error(), "--model-catalogue: open missing.json")
	path := filepath.Join(t.TempDir(), "list.json")
	expect.WriteFile(t, path, "[]")
	_, err = ReadCatalogue(path)
	expect.Contains(t, err.Error(), "want a JSON object with an entry for each provider")
	expect.WriteFile(t, path, `{"xai":{"models":{}}}`)
	b, err := ReadCatalogue(path)
	is.NoErr(err)
	is.Equal(string(b), `{"xai":{"models":{}}}`)
}
