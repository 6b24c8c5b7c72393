package api_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers"
)

// provider records a connected provider, as the running system does for those that OpenCode knows.
func (s *system) provider(t testing.TB, id string, models ...string) {
	t.Helper()
	set := map[string]json.RawMessage{}
	for field, value := range map[string]any{"provider_id": id, "name": id, "models": models, "is_connected": true} {
		set[field], _ = json.Marshal(value)
	}
	_, seq, err := s.handlers.SaveRecord(t.Context(), handlers.SaveRecord{
		Command: handlers.Command{Actor: events.ActorSystem}, Collection: "llm_providers", New: true, Set: set,
	})
	check(t, err)
	check(t, s.model.Wait(t.Context(), seq))
}

func TestModelOfAChatIsSelectedByItsOwnerOrAnAdministrator(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.provider(t, "local", "small", "large")
	ada, token := s.user(t, "ada", "user")
	_, bob := s.user(t, "bob", "user")
	_, agent := s.user(t, "worker", "agent")
	_, admin := s.user(t, "root", "admin")
	chat := s.chat(t, token, "hers")
	all := recordsOf("model_selection")

	status, chosen := s.call(t, token, "POST", all, map[string]any{"chat": chat, "model": "small"})
	is.Equal(status, 200)
	is.Equal([]any{chosen["model"], chosen["chat"], chosen["user"]}, []any{"local/small", chat, ada})
	status, again := s.call(t, admin, "POST", all, map[string]any{"chat": chat, "model": "local/large"})
	is.Equal(status, 200)
	is.Equal([]any{again["id"], again["model"], again["user"]}, []any{chosen["id"], "local/large", ada})
	for _, other := range []string{bob, agent} {
		status, _ = s.call(t, other, "POST", all, map[string]any{"chat": chat, "model": "local/small"})
		is.Equal(status, 400)
	}
	status, _ = s.call(t, token, "PATCH", all+"/"+chosen["id"].(string), map[string]any{"chat": s.chat(t, token, "another")})
	is.Equal(status, 400)
	selected, err := s.handlers.SelectedModel(t.Context(), chat, ada)
	is.NoErr(err)
	is.Equal(selected, "local/large")
	status, _ = s.call(t, token, "DELETE", all+"/"+chosen["id"].(string), nil)
	is.Equal(status, 204)
	selected, err = s.handlers.SelectedModel(t.Context(), chat, ada)
	is.NoErr(err)
	is.Equal(selected, "")
}

func TestModelThatDoesNotExistIsRefusedWithThoseThatDo(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.provider(t, "local", "small")
	_, token := s.user(t, "ada", "user")
	status, answer := s.call(t, token, "POST", recordsOf("model_selection"), map[string]any{"model": "demo/demo"})
	is.Equal(status, 400)
	fault := answer["data"].(map[string]any)["model"].(map[string]any)
	is.True(strings.Contains(fault["message"].(string), `There is no model "demo/demo". Available: local/small.`))
}
