package web_test

import (
	"testing"

	"github.com/matryer/is"

	"pocketcoder/web/webtest"
)

func TestAgentAccountCannotChooseItsRules(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ada := s.User(t, "ada", "user")
	_, admin := s.User(t, "root", "admin")
	worker, agent := s.User(t, "worker", "agent")
	status, deployer := s.Call(t, admin, "POST", webtest.RecordsPath("ai_agents"), map[string]any{"name": "Deployer"})
	is.Equal(status, 200)
	chosen := map[string]any{"title": "mine", "user": worker, "agent": deployer["id"]}
	status, _ = s.Call(t, agent, "POST", webtest.RecordsPath("chats"), chosen)
	is.Equal(status, 400)
	own := webtest.RecordsPath("chats") + "/" + s.Chat(t, agent, "own")
	status, _ = s.Call(t, agent, "PATCH", own, chosen)
	is.Equal(status, 400)
	status, _ = s.Call(t, agent, "PATCH", own, map[string]any{"title": "mine"})
	is.Equal(status, 200)
	status, hers := s.Call(t, ada, "PATCH", webtest.RecordsPath("chats")+"/"+s.Chat(t, ada, "hers"),
		map[string]any{"agent": deployer["id"]})
	is.Equal(status, 200)
	is.Equal(hers["agent"], deployer["id"])
}
