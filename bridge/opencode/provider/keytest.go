package provider

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"pocketcoder/handlers/model"
)

// known are the providers whose key can be stored without naming its variable. test is the address of a list that the
// provider returns only to a valid key, in the header named header; "" if the provider has none. None costs anything.
var known = []struct{ id, name, variable, test, header string }{
	{"amazon-bedrock", "Amazon Bedrock", "AWS_BEARER_TOKEN_BEDROCK", "", ""},
	{"anthropic", "Anthropic", "ANTHROPIC_API_KEY", "https://api.anthropic.com/v1/models", "x-api-key"},
	{"azure", "Azure", "AZURE_API_KEY", "", ""},
	{"cerebras", "Cerebras", "CEREBRAS_API_KEY", "https://api.cerebras.ai/v1/models", bearer},
	{"cohere", "Cohere", "COHERE_API_KEY", "https://api.cohere.com/v1/models", bearer},
	{"deepseek", "DeepSeek", "DEEPSEEK_API_KEY", "https://api.deepseek.com/models", bearer},
	{"fireworks-ai", "Fireworks AI", "FIREWORKS_API_KEY", "https://api.fireworks.ai/inference/v1/models", bearer},
	{"google", "Google", "GEMINI_API_KEY", "https://generativelanguage.googleapis.com/v1beta/models", "x-goog-api-key"},
	{"groq", "Groq", "GROQ_API_KEY", "https://api.groq.com/openai/v1/models", bearer},
	{"huggingface", "Hugging Face", "HF_TOKEN", "https://huggingface.co/api/whoami-v2", bearer},
	{"mistral", "Mistral", "MISTRAL_API_KEY", "https://api.mistral.ai/v1/models", bearer},
	{"moonshotai", "Moonshot AI", "MOONSHOT_API_KEY", "https://api.moonshot.ai/v1/models", bearer},
	{"nvidia", "NVIDIA", "NVIDIA_API_KEY", "", ""},
	{"openai", "OpenAI", "OPENAI_API_KEY", "https://api.openai.com/v1/models", bearer},
	{"opencode", "OpenCode Zen", "OPENCODE_API_KEY", "", ""},
	{"openrouter", "OpenRouter", "OPENROUTER_API_KEY", "https://openrouter.ai/api/v1/key", bearer},
	{"perplexity", "Perplexity", "PERPLEXITY_API_KEY", "", ""},
	{"togetherai", "Together AI", "TOGETHER_API_KEY", "https://api.together.xyz/v1/models", bearer},
	{"xai", "xAI", "XAI_API_KEY", "https://api.x.ai/v1/models", bearer},
	{"zai", "Z.AI", "ZHIPU_API_KEY", "", ""},
}

// bearer is the header that takes a key after the word Bearer.
const bearer = "Authorization"

// Known returns the providers whose key can be stored without naming its variable, by name.
func Known() (all []model.KnownProvider) {
	for _, k := range known {
		all = append(all, model.KnownProvider{ID: k.id, Name: k.name, Variable: k.variable})
	}
	return all
}

// KeyTests tests keys with the providers that they are for.
type KeyTests struct {
	Transport http.RoundTripper // nil for the usual one
}

// Try sends the key of a provider to the provider, and returns its verdict and what the provider said.
func (t KeyTests) Try(ctx context.Context, id string, values map[string]string) (verdict, said string) {
	for _, k := range known {
		if k.id == id && k.test != "" && values[k.variable] != "" {
			return t.try(ctx, k.test, k.header, values[k.variable])
		}
	}
	return model.NotTested, ""
}

func (t KeyTests) try(ctx context.Context, address, header, key string) (verdict, said string) {
	ctx, cancel := context.WithTimeoutCause(ctx, serverTime, fmt.Errorf("no answer within %s", serverTime))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", address, nil)
	if err != nil {
		return model.NoAnswer, err.Error()
	}
	req.Header.Set(header, key)
	if header == bearer {
		req.Header.Set(header, "Bearer "+key)
	}
	req.Header.Set("anthropic-version", "2023-06-01") // others ignore it
	// a redirect would take the key elsewhere
	client := http.Client{Transport: t.Transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	resp, err := client.Do(req)
	if err != nil {
		if u, ok := err.(*url.Error); ok {
			err = u.Err
		}
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return model.NoAnswer, err.Error()
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxSaid)) // what arrived before a failure
	said = fmt.Sprintf("status %d: %s", resp.StatusCode, Provider{APIKey: key}.excerpt(messageIn(body)))
	switch resp.StatusCode {
	case http.StatusOK:
		return model.KeyAccepted, ""
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden:
		return model.KeyRefused, said
	}
	return model.KeyUnclear, said
}

// maxSaid bounds what is read of an answer, in bytes.
const maxSaid = 64 << 10

// messageIn returns the message in an error of a provider, or the body if it has none.
func messageIn(body []byte) []byte {
	var e struct {
		Message string
		Error   json.RawMessage
	}
	if json.Unmarshal(body, &e) != nil {
		return body
	}
	var inner struct{ Message string }
	var text string
	_, _ = json.Unmarshal(e.Error, &inner), json.Unmarshal(e.Error, &text) // it is one of both, or there is none
	return []byte(cmp.Or(inner.Message, text, e.Message, string(body)))
}
