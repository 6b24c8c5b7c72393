package handlers

import (
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events/eventstest"
)

// openWithModels is a system whose OpenCode knows three providers, one of them without a key.
func openWithModels(t *testing.T) *Handlers {
	t.Helper()
	h := &Handlers{Log: eventstest.Log(t), Configured: func() string { return "local/small" }}
	for id, fields := range map[string]string{
		"p1": `{"provider_id":"local","models":["small","large"],"is_connected":true,"env_vars":[]}`,
		"p2": `{"provider_id":"remote","models":["large","org/huge"],"is_connected":true,"env_vars":["REMOTE_KEY"]}`,
		"p3": `{"provider_id":"dear","models":["best"],"is_connected":false,"env_vars":["DEAR_KEY"]}`,
	} {
		_, _, err := h.SaveRecord(t.Context(), SaveRecord{Collection: "llm_providers", Record: id, New: true, Set: with(fields)})
		is.New(t).NoErr(err)
	}
	for chat, owner := range map[string]string{"mine": "ada", "nobodys": ""} {
		_, _, err := h.CreateChat(t.Context(), CreateChat{Command: Command{Actor: alice}, Chat: chat, User: owner})
		is.New(t).NoErr(err)
	}
	return h
}

func TestModelIsSelectedForAChatAndCleared(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := openWithModels(t)
	for _, chat := range []string{"mine", "nobodys"} {
		id, _, err := h.SelectModel(t.Context(), SelectModel{Chat: chat, Model: "small"})
		is.NoErr(err)
		again, _, err := h.SelectModel(t.Context(), SelectModel{Chat: chat, User: "root", Model: "remote/org/huge"})
		is.NoErr(err)
		is.Equal(again, id) // a chat has one selection, whoever made it
		m, err := h.Models(t.Context(), ListModels{Chat: chat})
		is.NoErr(err)
		is.Equal(m, Models{Models: []string{"local/large", "local/small", "remote/large", "remote/org/huge"}, Configured: "local/small", Selected: "remote/org/huge"})
		_, _, err = h.SelectModel(t.Context(), SelectModel{Chat: chat})
		is.NoErr(err)
		_, seq, err := h.SelectModel(t.Context(), SelectModel{Chat: chat}) // nothing is left to clear
		is.NoErr(err)
		is.Equal(seq, uint64(0))
		m, err = h.Models(t.Context(), ListModels{Chat: chat})
		is.NoErr(err)
		is.Equal(m.Selected, "")
	}
}

func TestSelectionForAllChatsOfAUserCountsWhereTheChatHasNone(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := openWithModels(t)
	_, _, err := h.SelectModel(t.Context(), SelectModel{User: "ada", Model: "local/large"})
	is.NoErr(err)
	selected := func(chat, owner string) string {
		model, err := h.SelectedModel(t.Context(), chat, owner)
		is.NoErr(err)
		return model
	}
	is.Equal([]string{selected("mine", "ada"), selected("nobodys", ""), selected("other", "bob")}, []string{"local/large", "", ""})
	_, _, err = h.SelectModel(t.Context(), SelectModel{Chat: "mine", Model: "local/small"})
	is.NoErr(err)
	is.Equal(selected("mine", "ada"), "local/small")
	_, _, err = h.SelectModel(t.Context(), SelectModel{User: "ada"})
	is.NoErr(err)
	is.Equal(selected("mine", "ada"), "local/small")
	is.Equal(selected("hers too", "ada"), "")
}

func TestRefusalOfAModelNamesThoseThatCanBeUsed(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := openWithModels(t)
	for model, says := range map[string]string{
		"nope":       `There is no model "nope". Available: local/large, local/small, remote/large, remote/org/huge.`,
		"local/best": `There is no model "local/best". Available: local/large, `,
		"dear/best":  `Provider dear has no key: set DEAR_KEY and start again. Available: local/large, `,
		"large":      `Several providers have a model "large". Choose one of local/large, remote/large.`,
	} {
		_, _, err := h.SelectModel(t.Context(), SelectModel{Chat: "mine", Model: model})
		is.Equal(refusal(t, err), Invalid)
		is.True(strings.HasPrefix(err.Error(), says)) // says
	}
	_, _, err := h.SelectModel(t.Context(), SelectModel{Chat: "none", Model: "small"})
	is.Equal(refusal(t, err), NotFound)
	_, err = h.Models(t.Context(), ListModels{Chat: "none"})
	is.Equal(refusal(t, err), NotFound)
	_, _, err = (&Handlers{Log: eventstest.Log(t)}).SelectModel(t.Context(), SelectModel{User: "ada", Model: "small"})
	is.Equal(refusal(t, err), Conflict) // OpenCode has not said yet which models there are
	is.Equal(len(records(t, h.Log, "model_selection")), 0)
}
