package web_test

import (
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers/agent"
	"pocketcoder/handlers/model"
	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

func TestModelOfAChatIsSelectedByItsOwnerOrAnAdministrator(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	s.Provider(t, "local", "small", "large")
	ada, token := s.User(t, "ada", "user")
	_, bob := s.User(t, "bob", "user")
	_, worker := s.User(t, "worker", "agent")
	_, admin := s.User(t, "root", "admin")
	chat := s.Chat(t, token, "hers")
	all := webtest.RecordsPath("model_selection")

	status, chosen := s.Call(t, token, "POST", all, map[string]any{"chat": chat, "model": "small"})
	is.Equal(status, 200)
	is.Equal([]any{chosen["model"], chosen["chat"], chosen["user"]}, []any{"local/small", chat, ada})
	status, second := s.Call(t, admin, "POST", all, map[string]any{"chat": chat, "model": "local/large"})
	is.Equal(status, 200)
	is.Equal([]any{second["id"], second["model"], second["user"]}, []any{chosen["id"], "local/large", ada})
	for _, other := range []string{bob, worker} {
		status, _ = s.Call(t, other, "POST", all, map[string]any{"chat": chat, "model": "local/small"})
		is.Equal(status, 400)
	}
	status, _ = s.Call(t, token, "PATCH", all+"/"+chosen["id"].(string),
		map[string]any{"chat": s.Chat(t, token, "another")})
	is.Equal(status, 400)
	selected, err := model.Selected(t.Context(), s.Records, model.Scope{Chat: chat, Owner: ada}, agent.Agent{})
	is.NoErr(err)
	is.Equal(selected, "local/large")
	status, _ = s.Call(t, token, "DELETE", all+"/"+chosen["id"].(string), nil)
	is.Equal(status, 204)
	selected, err = model.Selected(t.Context(), s.Records, model.Scope{Chat: chat, Owner: ada}, agent.Agent{})
	is.NoErr(err)
	is.Equal(selected, "")
}

func TestUnknownModelIsRefusedWithTheAvailableModels(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	s.Provider(t, "local", "small")
	_, token := s.User(t, "ada", "user")
	status, answer := s.Call(t, token, "POST", webtest.RecordsPath("model_selection"),
		map[string]any{"model": "demo/demo"})
	is.Equal(status, 400)
	fault := answer["data"].(map[string]any)["model"].(map[string]any)
	expect.Contains(t, fault["message"].(string), `There is no model "demo/demo". Available: local/small.`)
}
