package cli

import (
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"

	"pocketcoder/bridge/opencode/provider"
	"pocketcoder/cmd/app"
)

// modelFlags adds the flags of the model. The key has no flag, because other users of the machine can see flags.
func modelFlags(m *app.ModelOptions, fs *flag.FlagSet, env Environment) error {
	m.Key = env.Getenv("POCKETCODER_MODEL_KEY")
	fs.StringVar(&m.Name, "model", env.Getenv("POCKETCODER_MODEL"),
		"`provider/model`, or with --model-url the server's name for the model; default: the model that OpenCode recommends (POCKETCODER_MODEL)")
	fs.StringVar(&m.URL, "model-url", env.Getenv("POCKETCODER_MODEL_URL"),
		"base `URL` of an OpenAI-compatible server, such as http://127.0.0.1:11434/v1; its key, if any, in POCKETCODER_MODEL_KEY (POCKETCODER_MODEL_URL)")
	fs.IntVar(&m.Context, "model-context", 0, fmt.Sprintf("context of the model at --model-url in `tokens`; 0 uses the server's value, or %d (POCKETCODER_MODEL_CONTEXT)", provider.DefaultContext))
	fs.IntVar(&m.Output, "model-output", 0, "output limit of the model at --model-url in `tokens` per answer; 0 is a quarter of the context, at most 32000 (POCKETCODER_MODEL_OUTPUT)")
	fs.Func("model-price", "`input/output` price of a million tokens of the model at --model-url, or of the demo model with --demo, in US dollars, such as 0.5/2; default 0 (POCKETCODER_MODEL_PRICE)", func(s string) error { return parsePrice(s, &m.Price) })
	fs.StringVar(&m.Catalogue, "model-catalogue", env.Getenv("POCKETCODER_MODEL_CATALOGUE"),
		"JSON `file` of the providers and models that OpenCode knows, such as a copy of https://models.dev/api.json; default: OpenCode's own (POCKETCODER_MODEL_CATALOGUE)")
	fs.BoolVar(&m.Demo, "demo", env.Getenv("POCKETCODER_DEMO") != "",
		"use the demo model even when a provider is configured (POCKETCODER_DEMO)")
	return setFromEnvironment(fs, env, "model-context", "model-output", "model-price")
}

// parsePrice parses "0.5" for input and output, or "0.5/2".
func parsePrice(text string, p *provider.Price) error {
	input, output, both := strings.Cut(text, "/")
	if !both {
		output = input
	}
	in, err := strconv.ParseFloat(input, 64)
	out, err2 := strconv.ParseFloat(output, 64)
	if errors.Join(err, err2) != nil || !(in >= 0 && in < 1e9 && out >= 0 && out < 1e9) {
		return fmt.Errorf("%q: want a price such as 0.5, or input/output such as 0.5/2", text)
	}
	*p = provider.Price{Input: in, Output: out}
	return nil
}
