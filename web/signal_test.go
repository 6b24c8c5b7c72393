package web_test

import (
	"net/http"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers/account"
	"pocketcoder/web/webtest"
)

func TestSignalIsSentByPeopleOfTheChat(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	ada, owner := s.User(t, "ada", account.User)
	_, stranger := s.User(t, "eve", account.User)
	_, agent := s.User(t, "agent", account.Agent)
	root, admin := s.User(t, "root", account.Admin)
	chat := s.Chat(t, owner, "mine")
	s.AppendExecution(t, chat, "exec1", nil)
	s.AppendExecution(t, chat, "exec2", nil)
	s.Running("exec1")
	signal := func(token, exec string, body any) (int, map[string]any) {
		return s.Call(t, token, "POST", "/api/executions/"+exec+"/signal", body)
	}
	for token, want := range map[string]int{owner: 204, admin: 204, agent: 404, stranger: 404, "": 401} {
		status, _ := signal(token, "exec1", map[string]string{"signal": "SIGINT"})
		is.Equal(status, want)
	}
	status, _ := signal(owner, "exec1", nil) // SIGTERM
	is.Equal(status, http.StatusNoContent)
	is.Equal(len(s.Sandbox.Signals), 3)
	by := map[string]bool{}
	for _, c := range s.Sandbox.Signals {
		is.Equal(c.Execution, "exec1")
		by[c.Actor] = true
	}
	is.Equal(by, map[string]bool{events.UserActor(ada): true, events.UserActor(root): true})

	status, p := signal(owner, "exec2", map[string]string{"signal": "SIGINT"})
	is.Equal(status, http.StatusConflict)
	is.Equal(p["message"], "execution exec2 is not running")
	status, p = signal(owner, "exec1", map[string]string{"signal": "SIGSEGV"})
	is.Equal(status, http.StatusBadRequest)
	is.True(p["data"].(map[string]any)["signal"] != nil)
	status, _ = signal(owner, "nothing", nil)
	is.Equal(status, http.StatusNotFound)
}
