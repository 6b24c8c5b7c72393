package outbox_test

import (
	"encoding/json"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode/outbox"
	"pocketcoder/events"
	"pocketcoder/handlers/project"
	"pocketcoder/handlers/record"
	"pocketcoder/ops/expect"
)

// selectModel stores a model selection. The model need not exist.
func (s *system) selectModel(chat, model string) {
	s.T.Helper()
	_, _, err := s.Records.Save(s.T.Context(), record.Save{
		Collection: "model_selection", New: true, Upsert: true,
		Set: map[string]json.RawMessage{"chat": json.RawMessage(`"` + chat + `"`), "model": json.RawMessage(`"` + model + `"`)},
	})
	s.Must(err)
}

func TestEveryPromptNamesTheModelThatAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ configured, selected, project, want string }{
		"the configured one":                 {"p/old", "", "", "p/old"},
		"the selected one":                   {"p/new", "p/other", "p/new", "p/other"},
		"that of the project":                {"p/new", "", "p/other", "p/other"},
		"the model that OpenCode recommends": {"", "", "", "p/new"},
		"a selection that is gone":           {"p/other", "demo/demo", "", "p/other"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			s := newSystem(t)
			chat := s.Chat("one", "two")
			if c.selected != "" {
				s.selectModel(chat, c.selected)
			}
			_, _, err := s.Records.Save(t.Context(), record.Save{Collection: project.Collection, Record: events.DefaultEngine,
				New: true, Set: record.Fields(map[string]any{"name": "first", "model": c.project})})
			is.NoErr(err)
			r := s.Start(func(b *outbox.Outbox) { b.Default = c.configured })
			p := s.awaitPrompts(1)
			s.Answer(p[0].session, p[0].MessageID)
			for _, p := range s.awaitPrompts(2) {
				is.Equal(p.Model.ProviderID+"/"+p.Model.ModelID, c.want)
			}
			is.True(c.configured != "" || r.Configured() == c.want)
		})
	}
}

func TestSelectionThatIsGoneIsReportedInTheChat(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	chat := s.Chat("hello")
	s.selectModel(chat, "demo/demo")
	s.RefuseNext("POST", "/prompt_async", 1, 500)
	s.Start(func(b *outbox.Outbox) { b.Default = "p/new" })
	s.awaitPrompts(2)
	expect.Eventually(t, "it is delivered", func() bool { return len(facts[events.MessageDelivered](s, chat)) == 1 })
	replaced := facts[events.ModelReplaced](s, chat)
	is.Equal(len(replaced), 1) // though it was sent twice
	is.Equal(replaced[0].Reason, "The selected model demo/demo is not available any more. p/new answers instead.")
	all, err := s.Model.Messages(t.Context(), chat)
	is.NoErr(err)
	is.Equal(all[0].Notice, replaced[0].Reason)
}
