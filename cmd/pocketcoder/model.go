package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"pocketcoder/bridge/opencode"
	"pocketcoder/bridge/opencode/demo"
)

// modelOptions say which model answers.
type modelOptions struct {
	name    string
	url     string // base URL of an OpenAI-compatible server; empty for a provider that OpenCode knows
	key     string // for url
	context int    // tokens, 0 for what the server says
	output  int    // tokens
	price   modelPrice
	demo    bool
}

// modelFlags adds the flags. The key has none: the list of processes would show it.
func (m *modelOptions) flags(fs *flag.FlagSet, env environment) error {
	m.key = env.getenv("POCKETCODER_MODEL_KEY")
	fs.StringVar(&m.name, "model", env.getenv("POCKETCODER_MODEL"), "`provider/model`, or with --model-url the server's name for the model; default: the model that OpenCode recommends (POCKETCODER_MODEL)")
	fs.StringVar(&m.url, "model-url", env.getenv("POCKETCODER_MODEL_URL"), "base `URL` of an OpenAI-compatible server, such as http://127.0.0.1:11434/v1; its key, if any, in POCKETCODER_MODEL_KEY (POCKETCODER_MODEL_URL)")
	fs.IntVar(&m.context, "model-context", 0, fmt.Sprintf("context of the model at --model-url in `tokens`; 0 uses the server's value, or %d (POCKETCODER_MODEL_CONTEXT)", opencode.DefaultContext))
	fs.IntVar(&m.output, "model-output", 0, "output limit of the model at --model-url in `tokens` per answer; 0 is a quarter of the context, at most 32000 (POCKETCODER_MODEL_OUTPUT)")
	fs.Var(&m.price, "model-price", "`input/output` price of a million tokens of the model at --model-url, in the currency of your budgets, such as 0.5/2; default 0 (POCKETCODER_MODEL_PRICE)")
	fs.BoolVar(&m.demo, "demo", env.getenv("POCKETCODER_DEMO") != "", "use the demo model even when a provider is configured (POCKETCODER_DEMO)")
	for _, name := range []string{"model-context", "model-output", "model-price"} {
		variable := "POCKETCODER_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		if value := env.getenv(variable); value != "" {
			if err := fs.Set(name, value); err != nil {
				return fmt.Errorf("%s: %w", variable, err)
			}
		}
	}
	return nil
}

// check names the flag whose value is wrong.
func (m modelOptions) check() error {
	if m.context < 0 || m.output < 0 {
		return errors.New("--model-context and --model-output: want a number of tokens, or 0 for the default")
	}
	if m.url == "" {
		if m.context+m.output > 0 || m.price != (modelPrice{}) {
			return errors.New("--model-context, --model-output and --model-price are for a model at --model-url; OpenCode knows the values of its own providers")
		}
		if m.name != "" && !strings.Contains(strings.Trim(m.name, "/"), "/") {
			return fmt.Errorf("--model %q: want provider/model, such as anthropic/claude-sonnet-4-5, or --model-url for a server of your own", m.name)
		}
		return nil
	}
	if err := opencode.CheckBaseURL(m.url); err != nil {
		return fmt.Errorf("--model-url: %w", err)
	}
	return nil
}

// modelPrice is a flag: "0.5" for both directions, or "0.5/2".
type modelPrice opencode.Price

func (p *modelPrice) String() string { return "" }

func (p *modelPrice) Set(text string) error {
	input, output, both := strings.Cut(text, "/")
	if !both {
		output = input
	}
	in, err := strconv.ParseFloat(input, 64)
	out, err2 := strconv.ParseFloat(output, 64)
	if errors.Join(err, err2) != nil || !(in >= 0 && in < 1e9 && out >= 0 && out < 1e9) {
		return fmt.Errorf("%q: want a price such as 0.5, or input/output such as 0.5/2", text)
	}
	*p = modelPrice{in, out}
	return nil
}

// openProvider returns what answers: the model that the operator named, the provider set up for OpenCode on this machine, or
// the demo model when there is neither.
func openProvider(ctx context.Context, env environment, m modelOptions) (p opencode.Provider, isDemo bool, closeModel func(), err error) {
	p, found, err := opencode.UserProvider(env.getenv)
	if err != nil {
		return p, false, nil, err
	}
	if m.demo || !found && m.name == "" && m.url == "" {
		return openDemo()
	}
	p.Model = m.name
	if m.url != "" {
		p.BaseURL, p.APIKey, p.Context, p.Output, p.Price = m.url, m.key, m.context, m.output, opencode.Price(m.price)
		p, err = p.LookUp(ctx)
	}
	return p, false, func() {}, err
}

func openDemo() (p opencode.Provider, isDemo bool, closeModel func(), err error) {
	server, err := demo.Open("127.0.0.1:0", &demo.Model{Continue: []string{opencode.Continue, opencode.Stale, opencode.Answered, opencode.GoOn}, Provider: providerHelp})
	if err != nil {
		return p, false, nil, err
	}
	p = opencode.Provider{
		Model: "demo/demo", BaseURL: server.URL(), APIKey: "demo", Context: demoContext, Price: opencode.Price{Input: demoPrice, Output: demoPrice},
	}
	return p, true, func() { server.Close() }, nil
}

// demoPrice makes what the demo model does cost something, so that budgets can be tried with it.
const demoPrice = 10

// demoContext is more than a script ever fills.
const demoContext = 200_000

const providerHelp = "Set the key of a provider before `pocketcoder up`, for example `ANTHROPIC_API_KEY=…`, and name a model with `--model anthropic/…` if you like. " +
	"A server of your own works too: `--model-url http://127.0.0.1:11434/v1 --model NAME`."

// modelHost is the host of --model-url, "" without one.
func (s *parts) modelHost() string {
	u, err := url.Parse(s.o.model.url)
	if err != nil || s.isDemo {
		return ""
	}
	return u.Host
}
