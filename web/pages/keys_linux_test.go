package pages_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/matryer/is"

	"pocketcoder/bridge/opencode/provider"
	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

// redirected sends all requests to a server.
type redirected struct{ server string }

func (r redirected) RoundTrip(req *http.Request) (*http.Response, error) {
	at, err := url.Parse(r.server)
	if err != nil {
		return nil, err
	}
	out := req.Clone(req.Context())
	out.URL.Scheme, out.URL.Host = at.Scheme, at.Host
	return http.DefaultTransport.RoundTrip(out)
}

func TestAnAdministratorConnectsAModelOnAPhone(t *testing.T) {
	expect.Slow(t, "starts Chromium")
	t.Parallel()
	is := is.New(t)
	const good, bad = "sk-good-0123456789", "sk-bad-0123456789"
	openAI := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+good {
			w.WriteHeader(http.StatusUnauthorized)
			w.Write([]byte(`{"error":{"message":"Incorrect API key."}}`))
		}
	}))
	t.Cleanup(openAI.Close)
	s := webtest.NewSystem(t)
	keys := s.Web.Records.ProviderKeys
	keys.Known, keys.Try = provider.Known(), provider.KeyTests{Transport: redirected{openAI.URL}}.Try
	ada, token := s.User(t, "ada", "admin")
	s.Provider(t, "demo", "demo")
	chat := s.ChatWithAnswer(t, token)
	s.Assistant(t, chat, "msg_1", `,"providerID":"demo","modelID":"demo","time":{"created":1,"completed":2}`)
	s.TextPart(t, chat, "msg_1", "prt_1", "That was the tour.", "")
	d := openPage(t, s, "/chats/"+chat)
	is.Equal(d.evaluate(`document.querySelector("#foot a[href='/settings/llm_keys']") !== null`), "true") // after the tour
	d.visit("/")
	is.Equal(d.evaluate(`document.querySelector("main > .note > a[href='/settings/llm_keys']") !== null`), "true")
	d.visit("/settings/llm_keys")
	is.Equal(d.evaluate(`document.querySelector("#key-variable").checkVisibility()`), "false")
	is.Equal(d.evaluate(`(document.querySelector("#key-known").value = "", document.querySelector("#key-variable").checkVisibility())`), "true")
	is.Equal(d.evaluate(`document.documentElement.scrollWidth <= innerWidth`), "true")
	enter := func(selector, key, want string) {
		t.Helper()
		if key != "" {
			d.set(selector+" [name=key]", key)
		}
		d.load(chromedp.Click(chromedp.CSS(selector + " button")))
		expect.Contains(t, d.evaluate(`document.querySelector("#verdict").textContent`), want)
		for _, secret := range []string{good, bad} {
			expect.Lacks(t, d.evaluate(`document.documentElement.outerHTML`), secret)
		}
	}
	d.visit("/settings/llm_keys")
	d.evaluate(`document.querySelector("#key-known").value = "openai"`)
	enter("main > .key", bad, "OpenAI refuses the key (status 401: Incorrect API key.). Store another key.")
	_, list := s.Call(t, token, "GET", webtest.RecordsPath("llm_keys"), nil)
	stored := list["items"].([]any)[0].(map[string]any)
	is.Equal([]any{stored["provider_id"], stored["user"], stored["env_vars"]},
		[]any{"openai", ada, map[string]any{"OPENAI_API_KEY": ""}})
	record := "#record-" + stored["id"].(string)
	d.visit("/settings/llm_keys")
	d.evaluate(`document.querySelector("` + record + `").open = true`)
	enter(record+" .key", good, "OpenAI accepts the key.")
	d.visit("/settings/llm_keys")
	d.evaluate(`document.querySelector("` + record + `").open = true`)
	enter(record+" .key", "", "OpenAI accepts the key.") // the stored key
	openAI.Close()
	d.visit("/settings/llm_keys")
	d.evaluate(`document.querySelector("` + record + `").open = true`)
	enter(record+" .key", "", "OpenAI could not be reached: ")

	// an account cannot test the key of another
	s.User(t, "bob", "admin")
	test := "/settings/llm_keys/" + strings.TrimPrefix(record, "#record-") + "/test"
	is.Equal(loggedIn(t, s, "bob").submit(t, test, url.Values{}).status, http.StatusNotFound)
}
