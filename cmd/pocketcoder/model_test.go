package main

import (
	"bytes"
	"encoding/json"
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
	"sync/atomic"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode/demo"
	"pocketcoder/bridge/opencode/outbox"
	"pocketcoder/events"
	"pocketcoder/expect"
	"pocketcoder/handlers"
	records "pocketcoder/handlers/record"
	"pocketcoder/handlers/worker"
	"pocketcoder/projections"
)

const foreignKey = "sk-foreign-0123456789abcdef"

// foreignServer is an OpenAI-compatible server that PocketCoder did not start. It requires a key and has its own model
// names. It plays scripts.
func foreignServer(t *testing.T) (baseURL string) {
	t.Helper()
	s := httptest.NewServer(foreignHandler(t, func() string { return foreignKey }))
	t.Cleanup(s.Close)
	return s.URL + "/v1"
}

// foreignTLS is foreignServer with TLS. It requires the key that key returns. foreignTLS returns a file with its
// certificate too.
func foreignTLS(t *testing.T, key func() string) (baseURL, certificate string) {
	t.Helper()
	s := httptest.NewTLSServer(foreignHandler(t, key))
	t.Cleanup(s.Close)
	certificate = filepath.Join(t.TempDir(), "certificate.pem")
	expect.WriteFile(t, certificate, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: s.Certificate().Raw})))
	return s.URL + "/v1", certificate
}

func foreignHandler(t *testing.T, key func() string) http.Handler {
	t.Helper()
	resume := []string{outbox.ContinuePrompt, outbox.AnswersPrompt, worker.ReportPrefix}
	model, err := demo.Open("127.0.0.1:0", &demo.Model{Continue: resume})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { model.Close() })
	target, err := url.Parse(strings.TrimSuffix(model.URL(), "/v1"))
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer "+key():
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/v1/models":
			w.Write([]byte(`{"object":"list","data":[{"id":"org/gpt-5-scripted","max_model_len":65536},{"id":"other"}]}`))
		default:
			proxy.ServeHTTP(w, r)
		}
	})
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

func TestModelOfAnotherServer(t *testing.T) {
	t.Parallel()
	var key atomic.Value
	key.Store(foreignKey)
	server, certificate := foreignTLS(t, func() string { return key.Load().(string) })
	var calls callsThatWait
	runStages(t, start(t), stage{"the next start has another model", func(t *testing.T, p *process) {
		causeAndCheck(t, p, func(t *testing.T, p *process) { startWithModelOf(p, server, certificate) },
			incidentCheck{"an old chat goes on", func(t *testing.T, p *process) (check func(*testing.T, *process)) {
				return oldChatGoesOn(t, p, server)
			}}, incidentCheck{"calls that wait survive", calls.surviveIncident})
	}}, stage{"a patch of files that changed while it waited is not applied", patchOfChangedFilesIsNotApplied},
		stage{"a stored key replaces a refused key", func(t *testing.T, p *process) {
			storedKeyReplacesARefusedKey(t, p, func() { key.Store(replacedKey) })
			key.Store(foreignKey) // the stage deletes the stored key, so this key counts again
		}},
		stage{"nothing is resumed again", func(t *testing.T, p *process) { calls.half.checkNotResumedAgain(t, p) }})
}

// startWithModelOf starts the system again, with a model of another server.
func startWithModelOf(p *process, server, certificate string) {
	p.stop()
	p.args = slices.DeleteFunc(p.args, func(arg string) bool { return arg == "--demo" })
	p.args = append(p.args, "--model-url", server, "--model", "org/gpt-5-scripted")
	p.env = append(p.env, "POCKETCODER_MODEL_KEY="+foreignKey, "SSL_CERT_FILE="+certificate)
	p.restart()
}

func oldChatGoesOn(t *testing.T, p *process, server string) (check func(*testing.T, *process)) {
	chat := p.chat(t, "@@say one")
	p.turnEnds(t, chat)
	_, err := handlers.Send(t.Context(), p.Conn, "model.select", records.SelectModel{Chat: chat, Model: "demo"})
	is.New(t).NoErr(err)
	return func(t *testing.T, p *process) { oldChatUsesTheNewModel(t, p, chat, server) }
}

func oldChatUsesTheNewModel(t *testing.T, p *process, chat, server string) {
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
		var m records.Models
		a, err := handlers.Send(t.Context(), p.Conn, "model.list", records.ListModels{Chat: chat})
		return err == nil && json.Unmarshal(a.Result, &m) == nil && m.Configured == "custom/org/gpt-5-scripted" &&
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
	_, err = handlers.Send(t.Context(), p.Conn, "model.select", records.SelectModel{Chat: chat})
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

func TestModelThatCannotBeUsedStopsTheStart(t *testing.T) {
	t.Parallel()
	server := foreignServer(t)
	closed := httptest.NewServer(nil)
	closed.Close()
	broken := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(broken.Close)
	with := func(args ...string) []string { return args }
	dir := t.TempDir()
	catalogue := func(name, content string) string {
		path := filepath.Join(dir, name)
		expect.WriteFile(t, path, content)
		return path
	}
	newModel := `{"xai":{"id":"xai","name":"xAI","env":["XAI_API_KEY"],"npm":"@ai-sdk/xai","models":{"newer-than-opencode":{"id":"newer-than-opencode","name":"New",` +
		`"release_date":"2026-11-01","attachment":false,"reasoning":false,"temperature":true,"tool_call":true,"limit":{"context":9999,"output":999}}}}}`
	key := []string{"POCKETCODER_MODEL_KEY=" + foreignKey}
	for name, c := range map[string]struct {
		args, env []string
		want      string
		code      int
	}{
		"wrong key":       {with("--model-url", server, "--model", "other"), []string{"POCKETCODER_MODEL_KEY=sk-wrong-key"}, "/v1/models answered 401: the key in POCKETCODER_MODEL_KEY is wrong", 1},
		"no key":          {with("--model-url", server, "--model", "other"), nil, "the server needs a key; set POCKETCODER_MODEL_KEY", 1},
		"no such model":   {with("--model-url", server, "--model", "nope"), key, "the server at " + server + " has no such model. It has org/gpt-5-scripted, other", 1},
		"no model":        {with("--model-url", server), key, "name a model with --model. The server has org/gpt-5-scripted, other", 1},
		"no server":       {with("--model-url", closed.URL+"/v1", "--model", "x"), nil, "GET " + closed.URL + "/v1/models failed: ", 1},
		"wrong path":      {with("--model-url", broken.URL, "--model", "x"), nil, "most servers need /v1 at the end of the URL", 1},
		"no URL":          {with("--model-url", "localhost:11434", "--model", "x"), nil, "want a base URL such as http://127.0.0.1:11434/v1", 2},
		"key in the URL":  {with("--model-url", "http://user:secret@127.0.0.1:1/v1", "--model", "x"), nil, "put the key into POCKETCODER_MODEL_KEY", 2},
		"price":           {with("--model-url", server, "--model-price", "much"), nil, `want a price such as 0.5, or input/output`, 2},
		"context alone":   {with("--model-context", "4096"), nil, "are for a model at --model-url", 2},
		"no provider":     {with("--model", "claude"), nil, `--model "claude": want provider/model`, 2},
		"without its key": {with("--model", "anthropic/claude-x"), nil, "--model anthropic/claude-x cannot be used: provider anthropic has no key; set ANTHROPIC_API_KEY. No model can be used yet", 1},
		"a known name":    {with("--model-url", server, "--model", "anthropic/other"), key, "OpenCode knows another provider named anthropic; give this one another name, such as custom/other", 1},
		"no catalogue":    {with("--model-catalogue", "missing.json"), nil, "--model-catalogue: open missing.json", 1},
		"odd catalogue":   {with("--model-catalogue", catalogue("list.json", "[]"), "--model", "xai/x"), nil, "want a JSON object with an entry for each provider", 1},
		"odd entry":       {with("--model-catalogue", catalogue("entry.json", `{"xai":{}}`), "--model", "xai/x"), nil, "OpenCode may not understand the file of --model-catalogue", 1},
		"own catalogue":   {with("--model-catalogue", catalogue("new.json", newModel), "--model", "xai/x"), []string{"XAI_API_KEY=xai-0123456789"}, "provider xai has no model x; it has newer-than-opencode", 1},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			p := prepareInside(t, t.TempDir())
			p.useTools()
			p.env = c.env
			args := slices.DeleteFunc(p.args, func(arg string) bool { return arg == "--demo" })
			_, stderr, code := runCommand(t, p.getenv, "", append(args, c.args...)...)
			t.Log(stderr)
			expect.Contains(t, stderr, c.want)
			is.Equal(code, c.code)
			expect.Lacks(t, stderr, foreignKey)
		})
	}
}
