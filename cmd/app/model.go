package app

import (
	"context"
	"net/url"
	"path/filepath"

	"pocketcoder/bridge/opencode/configuration"
	"pocketcoder/bridge/opencode/demo"
	"pocketcoder/bridge/opencode/notes"
	"pocketcoder/bridge/opencode/outbox"
	"pocketcoder/bridge/opencode/provider"
	"pocketcoder/handlers/delegate"
)

// openProvider returns the provider of the model: the one that the operator configured, the one that OpenCode uses on
// this machine, or the demo model.
func openProvider(ctx context.Context, getenv func(string) string,
	m ModelOptions) (p provider.Provider, isDemo bool, closeModel func(), err error) {
	p, found, err := provider.OfUser(getenv)
	if err != nil {
		return p, false, nil, err
	}
	catalogue, err := provider.ReadCatalogue(m.Catalogue)
	if err != nil {
		return p, false, nil, err
	}
	if m.Demo || !found && m.Name == "" && m.URL == "" {
		p, isDemo, closeModel, err = openDemo(m.Price)
		p.Catalogue = catalogue
		return p, isDemo, closeModel, err
	}
	p.Model, p.Catalogue = m.Name, catalogue
	if m.URL != "" {
		p.BaseURL, p.APIKey, p.Context, p.Output, p.Price = m.URL, m.Key, m.Context, m.Output, m.Price
		p, err = p.LookUp(ctx)
	}
	return p, false, func() {}, err
}

// useStoredKeys takes the providers whose keys administrators have stored in place of the demo model that would answer
// without a key.
func (s *System) useStoredKeys(ctx context.Context) error {
	if !s.isDemo || s.o.Model.Demo {
		return nil
	}
	values, err := s.providerKeys.Values(ctx)
	base := provider.Provider{Catalogue: s.provider.Catalogue}
	if err == nil && len(base.With(values).Keys) > 0 {
		s.provider, s.isDemo = base, false
	}
	return err
}

// wireConfiguration creates what configures OpenCode: the stored keys of providers, the sealed procedures and notes.
func (e *engine) wireConfiguration() {
	s, p := e.s, e.project
	e.restarts = configuration.NewRestarts(p.Project, e.opencode, s.model)
	e.modelKeys = &configuration.ModelKeys{Base: s.provider, Fixed: s.o.Model.Demo, Stored: s.providerKeys,
		Records: s.records, Engine: e.network, Server: e.opencode, Logger: s.o.Logger, Changed: s.change,
		Restart: e.restarts.Want, Calm: configuration.DefaultCalm}
	e.sealed = &configuration.Procedures{Log: s.log, Records: s.records, Server: e.opencode, Restart: e.restarts.Want,
		Logger: s.o.Logger}
	e.noteFiles = &notes.Notes{Log: s.log, Records: s.records, Workspace: p.Workspace, Engine: p.Project,
		Project: p.Project, Logger: s.o.Logger, State: filepath.Join(p.State, "notes.json")}
}

func openDemo(price provider.Price) (p provider.Provider, isDemo bool, closeModel func(), err error) {
	resume := []string{outbox.ContinuePrompt, outbox.StalePrompt, outbox.AnswersPrompt, outbox.BudgetPrompt,
		delegate.ReportPrefix}
	server, err := demo.Open("127.0.0.1:0", &demo.Model{Continue: resume, Provider: providerHelp})
	if err != nil {
		return p, false, nil, err
	}
	p = provider.Provider{
		Model: "demo/demo", BaseURL: server.URL(), APIKey: "demo", Context: demoContext, Price: price,
	}
	return p, true, func() { server.Close() }, nil
}

// demoContext is larger than any script of the demo model.
const demoContext = 200_000

const providerHelp = "In the web app, an administrator stores the key of a provider under Settings, Provider keys. Or set the key of a provider before `pocketcoder up`, for example `ANTHROPIC_API_KEY=…`, and name a model with `--model anthropic/…` if you like. " +
	"A server of your own works too: `--model-url http://127.0.0.1:11434/v1 --model NAME`."

// providers records which model providers OpenCode can use.
func (e *engine) providers() *configuration.ProviderRecorder {
	return &configuration.ProviderRecorder{Outbox: e.outbox, Model: e.s.model, Records: e.s.records, Next: e.lives.Next,
		Logger: e.s.o.Logger}
}

// modelHost returns the host of --model-url, "" without one.
func (s *System) modelHost() string {
	u, err := url.Parse(s.o.Model.URL)
	if err != nil || s.isDemo {
		return ""
	}
	return u.Host
}

// modelText describes the model to a person.
func (s *System) modelText() string {
	model, host := s.configuredModel(), s.modelHost()
	switch {
	case s.isDemo:
		return "the demo model (no key of a provider was found): a script, not an AI"
	case model == "":
		return "the model that OpenCode recommends"
	case host != "":
		return model + " at " + host
	}
	return model
}
