package main

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode/demo"
	"pocketcoder/bridge/opencode/outbox"
	"pocketcoder/events"
	"pocketcoder/handlers/delegate"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

const foreignKey = "sk-foreign-0123456789abcdef"

// foreignTLS is an OpenAI-compatible server with TLS that PocketCoder did not start. It requires the key that key
// returns, has model names of its own, and plays scripts. foreignTLS returns a file with its certificate too.
func foreignTLS(t *testing.T, key func() string) (baseURL, certificate string) {
	t.Helper()
	model, err := demo.Open("127.0.0.1:0", &demo.Model{Continue: []string{outbox.ContinuePrompt, outbox.AnswersPrompt,
		delegate.ReportPrefix}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { model.Close() })
	target, err := url.Parse(strings.TrimSuffix(model.URL(), "/v1"))
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer "+key():
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/v1/models":
			w.Write([]byte(`{"object":"list","data":[{"id":"org/gpt-5-scripted","max_model_len":65536},{"id":"other"}]}`))
		default:
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(s.Close)
	certificate = filepath.Join(t.TempDir(), "certificate.pem")
	expect.WriteFile(t, certificate, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: s.Certificate().Raw})))
	return s.URL + "/v1", certificate
}

// answeredBy lists the models that answered in a chat, in order.
func (p *process) answeredBy(t *testing.T, chat string) (models []string) {
	t.Helper()
	for _, m := range rows[projections.ShownMessage](t, p, "messages", chat) {
		if m.Role == "assistant" {
			models = append(models, m.Provider+"/"+m.Model)
		}
	}
	return models
}

// useModelOf lets the next start use a model of another server.
func (p *process) useModelOf(server, certificate string) {
	p.args = slices.DeleteFunc(p.args, func(arg string) bool { return arg == "--demo" })
	p.args = append(p.args, "--model-url", server, "--model", "org/gpt-5-scripted")
	p.env = append(p.env, "POCKETCODER_MODEL_KEY="+foreignKey, "SSL_CERT_FILE="+certificate)
}

// oldChatUsesTheNewModel has a chat select a model that is gone after the incident.
func oldChatUsesTheNewModel(t *testing.T, p *process, server string) (check func(*testing.T, *process)) {
	chat := p.chat(t, "@@say one")
	p.turnEnds(t, chat)
	err := p.SelectModel(t.Context(), chat, "", "demo")
	is.New(t).NoErr(err)
	return func(t *testing.T, p *process) { newModelAnswers(t, p, chat, server) }
}

func newModelAnswers(t *testing.T, p *process, chat, server string) {
	is := is.New(t)
	p.submit(t, chat, "@@say two\n@@say "+foreignKey)
	p.turnEnds(t, chat)
	is.Equal(p.answeredBy(t, chat), []string{"demo/demo", "custom/org/gpt-5-scripted"}) // the server requires the key
	_, pid := p.engine(t)
	environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	is.NoErr(err)
	environment = bytes.ReplaceAll(environment, []byte{0}, []byte{'\n'})
	expect.Contains(t, string(environment), "held-by-the-proxy.model-url.key")
	expect.Lacks(t, string(environment), foreignKey)
	replaced := p.event(t, chat, events.ModelReplaced{}.Kind(), nil)
	expect.Contains(t, string(replaced.Data), "The selected model demo/demo is not available any more. custom/org/gpt-5-scripted answers instead.")

	// The selection of the demo model is gone; what is there now can be selected, and nothing else.
	expect.Eventually(t, "the models of this start are known", func() bool {
		m, err := p.Models(t.Context(), chat)
		return err == nil && m.Configured == "custom/org/gpt-5-scripted" &&
			slices.Equal(m.Models, []string{"custom/org/gpt-5-scripted"})
	})
	admin := p.admin(t)
	r := admin.do(t, "POST", "/api/collections/model_selection/records", record{"chat": chat, "model": "demo/demo"})
	is.Equal(r.code, 400)
	expect.Contains(t, r.body, "Available: custom/org/gpt-5-scripted.")
	r = admin.do(t, "POST", "/api/collections/model_selection/records",
		record{"chat": chat, "model": "org/gpt-5-scripted"})
	is.Equal(r.code, 200)
	p.submit(t, chat, "@@say three")
	p.turnEnds(t, chat)
	is.Equal(p.answeredBy(t, chat)[2], "custom/org/gpt-5-scripted")
	err = p.SelectModel(t.Context(), chat, "", "")
	is.NoErr(err)

	health := admin.do(t, "GET", "/api/health", nil).body
	host, _ := strings.CutPrefix(strings.TrimSuffix(server, "/v1"), "https://")
	// health
	is.True(strings.Contains(health, `"model":"custom/org/gpt-5-scripted"`) &&
		strings.Contains(health, `"model_host":"`+host+`"`))
	expect.Lacks(t, health+p.output.String(), foreignKey)
	_, err = p.Log.Fold(t.Context(), events.AllEvents, 0, func(e events.Event) error {
		is.True(!bytes.Contains(e.Data, []byte(foreignKey)))
		return nil
	})
	is.NoErr(err)
}

// The real OpenCode reads the catalogue, and says what it can use.
func TestModelThatCannotBeUsedStopsTheStart(t *testing.T) {
	expect.Long(t, "starts OpenCode for one error")
	t.Parallel()
	is := is.New(t)
	catalogue := filepath.Join(t.TempDir(), "new.json")
	expect.WriteFile(t, catalogue, `{"xai":{"id":"xai","name":"xAI","env":["XAI_API_KEY"],"npm":"@ai-sdk/xai","models":{`+
		`"newer-than-opencode":{"id":"newer-than-opencode","name":"New","release_date":"2026-11-01","attachment":false,`+
		`"reasoning":false,"temperature":true,"tool_call":true,"limit":{"context":9999,"output":999}}}}}`)
	p := prepareInside(t, t.TempDir())
	p.useTools()
	p.env = []string{"XAI_API_KEY=xai-0123456789"}
	args := slices.DeleteFunc(p.args, func(arg string) bool { return arg == "--demo" })
	_, stderr, code := runCommand(t, p.getenv, "", append(args, "--model-catalogue", catalogue, "--model", "xai/x")...)
	expect.Contains(t, stderr, "provider xai has no model x; it has newer-than-opencode")
	is.Equal(code, 1)
}
