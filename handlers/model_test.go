package handlers_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/handlers"
	"pocketcoder/handlers/agent"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/model"
	"pocketcoder/handlers/permission/permissiontest"
	"pocketcoder/handlers/project"
	"pocketcoder/handlers/record"
	"pocketcoder/ops/expect"
)

// openWithModels is a system whose OpenCode knows three providers, one of them without a key.
func openWithModels(t *testing.T) *permissiontest.Handlers {
	t.Helper()
	h := permissiontest.New(eventstest.Log(t), project.Places{}.Type())
	for id, fields := range map[string]string{
		"p1": `{"provider_id":"local","models":["small","large"],"is_connected":true,"env_vars":[]}`,
		"p2": `{"provider_id":"remote","models":["large","org/huge"],"is_connected":true,"env_vars":["REMOTE_KEY"]}`,
		"p3": `{"provider_id":"dear","models":["best"],"is_connected":false,"env_vars":["DEAR_KEY"]}`,
	} {
		_, _, err := h.Records.Save(t.Context(), record.Save{Collection: "llm_providers", Record: id, New: true,
			Set: handlerstest.Fields(fields)})
		is.New(t).NoErr(err)
	}
	for chatID, owner := range map[string]string{"mine": "ada", "nobodys": ""} {
		_, _, err := h.Chats.Create(t.Context(), chat.Create{Command: handlers.Command{Actor: handlerstest.Alice},
			Chat: chatID, User: owner})
		is.New(t).NoErr(err)
	}
	return h
}

func configured() string { return "local/small" }

func TestModelIsSelectedForAChatAndCleared(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := openWithModels(t)
	for _, chat := range []string{"mine", "nobodys"} {
		id, _, err := model.Choose(t.Context(), h.Records, model.Select{Chat: chat, Model: "small"})
		is.NoErr(err)
		again, _, err := model.Choose(t.Context(), h.Records, model.Select{Chat: chat, User: "root",
			Model: "remote/org/huge"})
		is.NoErr(err)
		is.Equal(again, id) // a chat has one selection, whoever made it
		m, err := model.Usable(t.Context(), h.Records, model.List{Chat: chat}, configured)
		is.NoErr(err)
		is.Equal(m, model.Models{Models: []string{"local/large", "local/small", "remote/large", "remote/org/huge"},
			Configured: "local/small", Selected: "remote/org/huge"})
		_, _, err = model.Choose(t.Context(), h.Records, model.Select{Chat: chat})
		is.NoErr(err)
		_, seq, err := model.Choose(t.Context(), h.Records, model.Select{Chat: chat}) // nothing is left to clear
		is.NoErr(err)
		is.Equal(seq, uint64(0))
		m, err = model.Usable(t.Context(), h.Records, model.List{Chat: chat}, configured)
		is.NoErr(err)
		is.Equal(m.Selected, "")
	}
}

func TestSelectionForAllChatsOfAUserCountsWhereTheChatHasNone(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := openWithModels(t)
	_, _, err := model.Choose(t.Context(), h.Records, model.Select{User: "ada", Model: "local/large"})
	is.NoErr(err)
	selected := func(chat, owner string) string {
		model, err := model.Selected(t.Context(), h.Records, model.Scope{Chat: chat, Owner: owner}, agent.Agent{})
		is.NoErr(err)
		return model
	}
	is.Equal([]string{selected("mine", "ada"), selected("nobodys", ""), selected("other", "bob")},
		[]string{"local/large", "", ""})
	_, _, err = model.Choose(t.Context(), h.Records, model.Select{Chat: "mine", Model: "local/small"})
	is.NoErr(err)
	is.Equal(selected("mine", "ada"), "local/small")
	_, _, err = model.Choose(t.Context(), h.Records, model.Select{User: "ada"})
	is.NoErr(err)
	is.Equal(selected("mine", "ada"), "local/small")
	is.Equal(selected("hers too", "ada"), "")
	_, _, err = model.Choose(t.Context(), h.Records, model.Select{Model: "remote/large"}) // for everybody
	is.NoErr(err)
	_, _, err = model.Choose(t.Context(), h.Records, model.Select{User: "ada", Model: "local/large"})
	is.NoErr(err)
	is.Equal([]string{selected("mine", "ada"), selected("hers too", "ada"), selected("other", "bob"), selected("nobodys", "")},
		[]string{"local/small", "local/large", "remote/large", "remote/large"})
	models, err := model.Usable(t.Context(), h.Records, model.List{}, nil)
	is.NoErr(err)
	is.Equal(models.Selected, "remote/large")
	_, _, err = model.Choose(t.Context(), h.Records, model.Select{})
	is.NoErr(err)
	is.Equal([]string{selected("hers too", "ada"), selected("other", "bob")}, []string{"local/large", ""})
}

func TestTheModelOfAnAgentCountsBeforeThatOfAUserAndAfterThatOfAChat(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := openWithModels(t)
	save := func(collection, id string, fields map[string]any) {
		set := map[string]json.RawMessage{}
		for name, value := range fields {
			set[name] = events.MustEncode(value)
		}
		_, _, err := h.Records.Save(t.Context(), record.Save{Collection: collection, Record: id, New: true, Set: set})
		is.NoErr(err)
	}
	save("ai_prompts", "prompt1", map[string]any{"name": "review", "body": "Review."})
	save("ai_models", "model1", map[string]any{"name": "small", "identifier": "local/small"})
	save("ai_agents", "agent1", map[string]any{"name": "Reviewer", "prompt": "prompt1", "model": "model1"})
	chosen, err := agent.One(t.Context(), h.Records, "agent1")
	is.NoErr(err)
	is.Equal(chosen, agent.Agent{ID: "agent1", Name: "Reviewer", Prompt: "Review.", Model: "local/small"})
	for _, s := range []model.Select{{User: "ada", Model: "local/large"}, {Chat: "mine", Model: "remote/large"}} {
		_, _, err := model.Choose(t.Context(), h.Records, s)
		is.NoErr(err)
	}
	ofChat, err := model.Selected(t.Context(), h.Records, model.Scope{Chat: "mine", Owner: "ada"}, chosen)
	is.NoErr(err)
	ofAgent, err := model.Selected(t.Context(), h.Records, model.Scope{Chat: "other", Owner: "ada"}, chosen)
	is.NoErr(err)
	is.Equal([]string{ofChat, ofAgent}, []string{"remote/large", "local/small"})

	_, err = h.Records.Delete(t.Context(), record.Delete{Collection: "ai_agents", Record: "agent1"})
	is.NoErr(err)
	_, err = agent.One(t.Context(), h.Records, "agent1")
	expect.Contains(t, fmt.Sprint(err), "The agent of this chat was deleted.") // its rules would not hold
	chosen, err = agent.One(t.Context(), h.Records, "build")
	is.NoErr(err)
	is.Equal(chosen, agent.Agent{}) // one of OpenCode
}

func TestTheModelOfAProjectCountsWhereNeitherChatNorOwnerHasOne(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := openWithModels(t)
	app := project.Project{ID: "app", Name: "app", Directory: "/app"}
	_, err := project.Ensure(t.Context(), h.Records, app)
	is.NoErr(err)
	setModel := func(model string) error {
		_, _, err := h.Records.Save(t.Context(), record.Save{Collection: project.Collection, Record: "app",
			Set: record.Fields(map[string]any{"model": model})})
		return err
	}
	expect.Contains(t, fmt.Sprint(setModel("small")), "Must be provider/model")
	is.NoErr(setModel("local/small"))
	for _, s := range []model.Select{{User: "ada", Model: "local/large"}, {Model: "remote/large"}} {
		_, _, err := model.Choose(t.Context(), h.Records, s)
		is.NoErr(err)
	}
	for of, want := range map[model.Scope]string{
		{Chat: "mine", Owner: "ada", Project: "app"}:    "local/large",
		{Chat: "other", Owner: "bob", Project: "app"}:   "local/small",
		{Chat: "other", Owner: "bob", Project: "local"}: "remote/large",
	} {
		got, err := model.Selected(t.Context(), h.Records, of, agent.Agent{})
		is.NoErr(err)
		is.Equal(got, want)
	}
}

func TestTheSameSelectionIsStoredOnceInItsForm(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := openWithModels(t)
	for range 2 {
		_, _, err := model.Choose(t.Context(), h.Records, model.Select{User: "ada", Model: "local/large",
			Command: handlers.Command{Actor: handlerstest.Alice}})
		is.NoErr(err)
	}
	stored := handlerstest.Records(t, h.Log, "model_selection")
	is.Equal(len(stored), 1)
	expect.Contains(t, stored[0], `{"fields":{"chat":null,"model":"local/large","user":"ada"}}`)
}

func TestRefusalOfAModelNamesThoseThatCanBeUsed(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := openWithModels(t)
	for name, want := range map[string]string{
		"nope":       `There is no model "nope". Available: local/large, local/small, remote/large, remote/org/huge.`,
		"local/best": `There is no model "local/best". Available: local/large, `,
		"dear/best":  `Provider dear has no key: set DEAR_KEY and start again. Available: local/large, `,
		"large":      `Several providers have a model "large". Choose one of local/large, remote/large.`,
	} {
		_, _, err := model.Choose(t.Context(), h.Records, model.Select{Chat: "mine", Model: name})
		is.Equal(handlerstest.Refusal(t, err), handlers.Invalid)
		is.True(strings.HasPrefix(err.Error(), want)) // says
	}
	_, _, err := model.Choose(t.Context(), h.Records, model.Select{Chat: "none", Model: "small"})
	is.Equal(handlerstest.Refusal(t, err), handlers.NotFound)
	_, err = model.Usable(t.Context(), h.Records, model.List{Chat: "none"}, nil)
	is.Equal(handlerstest.Refusal(t, err), handlers.NotFound)
	_, _, err = model.Choose(t.Context(), permissiontest.New(eventstest.Log(t)).Records,
		model.Select{User: "ada", Model: "small"})
	is.Equal(handlerstest.Refusal(t, err), handlers.Conflict) // OpenCode has not said yet which models there are
	is.Equal(len(handlerstest.Records(t, h.Log, "model_selection")), 0)
}
