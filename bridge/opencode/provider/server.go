package provider

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/handlers/model"
)

// Custom is the provider of a model at BaseURL whose name has none.
const Custom = "custom"

// serverTime bounds each request by which LookUp asks a model server.
const serverTime = 10 * time.Second

// CheckBaseURL returns an error if text is not the base URL of a server.
func CheckBaseURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return errors.New("this is not a URL; want one such as http://127.0.0.1:11434/v1")
	case u.User != nil:
		return errors.New("the URL has a user name or a password in it; put the key into POCKETCODER_MODEL_KEY")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("%q: want a base URL such as http://127.0.0.1:11434/v1", text)
	}
	return nil
}

// LookUp asks the server at BaseURL for its models and returns p with the full name of its model and, if the server
// says how many tokens the model can read, its context. The error names the request that failed and what to change.
func (p Provider) LookUp(ctx context.Context) (Provider, error) {
	p.BaseURL = strings.TrimRight(p.BaseURL, "/")
	models, err := p.serverModels(ctx)
	if err != nil {
		return p, fmt.Errorf("--model-url %s: %w", p.BaseURL, err)
	}
	if p.Model == "" && len(models) == 1 {
		p.Model = models[0].ID
	}
	provider, model := Custom, p.Model
	found := slices.IndexFunc(models, func(m serverModel) bool { return m.is(model) })
	if before, after, cut := strings.Cut(p.Model, "/"); found < 0 && cut {
		if found = slices.IndexFunc(models, func(m serverModel) bool { return m.is(after) }); found >= 0 || models == nil {
			provider, model = before, after
		}
	}
	switch {
	case model == "" && models == nil:
		return p, fmt.Errorf("--model-url %s: the server does not list its models; name one with --model", p.BaseURL)
	case model == "":
		return p, fmt.Errorf("--model-url %s: name a model with --model. The server has %s", p.BaseURL, listed(models))
	case found < 0 && models != nil:
		return p, fmt.Errorf("--model %s: the server at %s has no such model. It has %s", p.Model, p.BaseURL, listed(models))
	}
	p.Model = provider + "/" + model
	if found >= 0 && p.Context == 0 {
		p.Context = cmp.Or(models[found].MaxModelLen, models[found].ContextLength)
	}
	return p, nil
}

// serverModel is a model as a server lists it.
type serverModel struct {
	ID            string
	MaxModelLen   int `json:"max_model_len"`  // vLLM
	ContextLength int `json:"context_length"` // several hosted services
}

// is reports whether name means the model. Ollama lists qwen3 as qwen3:latest and takes both.
func (m serverModel) is(name string) bool { return m.ID == name || m.ID == name+":latest" }

func listed(models []serverModel) string {
	var names []string
	for _, m := range models {
		names = append(names, m.ID)
	}
	if len(names) == 0 {
		return "none: load one first"
	}
	return model.ListOfModels(names)
}

// serverModels requests the server's models. It returns nil if the server works but has no list of models.
func (p Provider) serverModels(ctx context.Context) ([]serverModel, error) {
	target := p.BaseURL + "/models"
	status, body, err := p.request(ctx, "GET", target, "")
	switch {
	case err != nil:
		return nil, fmt.Errorf("GET %s failed: %w. Start the server first, or correct the URL", target, err)
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return nil, fmt.Errorf("GET %s answered %d: %s", target, status, p.aboutKey())
	case status == http.StatusNotFound || status == http.StatusMethodNotAllowed:
		return nil, p.completes(ctx, status)
	case status != http.StatusOK:
		return nil, fmt.Errorf("GET %s answered %d: %s", target, status, p.excerpt(body))
	}
	var list struct{ Data []serverModel }
	if err := json.Unmarshal(body, &list); err != nil || !strings.Contains(string(body), `"data"`) {
		return nil, fmt.Errorf("GET %s did not return a list of models; most servers need /v1 at the end of the URL", target)
	}
	return append([]serverModel{}, list.Data...), nil
}

// completes returns an error if the server has no chat completions. The request is empty, so it costs nothing.
func (p Provider) completes(ctx context.Context, listStatus int) error {
	target := p.BaseURL + "/chat/completions"
	status, _, err := p.request(ctx, "POST", target, "{}")
	switch {
	case err != nil:
		return fmt.Errorf("POST %s failed: %w", target, err)
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return fmt.Errorf("POST %s answered %d: %s", target, status, p.aboutKey())
	case status == http.StatusNotFound || status == http.StatusMethodNotAllowed:
		return fmt.Errorf("GET %s/models answered %d and POST %s answered %d: most servers need /v1 at the end of the URL",
			p.BaseURL, listStatus, target, status)
	}
	return nil
}

func (p Provider) aboutKey() string {
	if p.APIKey == "" {
		return "the server needs a key; set POCKETCODER_MODEL_KEY"
	}
	return "the key in POCKETCODER_MODEL_KEY is wrong"
}

// request sends a request and returns the status and the beginning of the body.
func (p Provider) request(ctx context.Context, method, target, body string) (status int, answer []byte, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, serverTime, fmt.Errorf("no answer within %s", serverTime))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, target, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if p.APIKey != "" {
		req.Header.Set("Authorization", "Bearer "+p.APIKey)
	}
	resp, err := http.DefaultClient.Do(req)
	if err == nil {
		defer resp.Body.Close()
		answer, err = io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // the caller says what was tried
		}
		return 0, nil, err
	}
	return resp.StatusCode, answer, nil
}

// excerpt is the beginning of an answer on one line, without the key.
func (p Provider) excerpt(body []byte) string {
	text := string(body)
	if p.APIKey != "" {
		text = strings.ReplaceAll(text, p.APIKey, "[redacted]")
	}
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "")), " ")
	return text[:min(len(text), 200)]
}

// ModelAddress returns host:port of the model server that the operator configured, or nothing if OpenCode knows the
// provider.
func (p Provider) ModelAddress() string {
	address, _ := client.AddressOf(p.BaseURL)
	return address
}
