package web_test

import (
	"context"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/budget"
	"pocketcoder/handlers/permission"
	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

func TestBudgetWithoutALimitIsRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, root := s.User(t, "root", account.Admin)
	for field, body := range map[string]map[string]any{
		"cost":   {"name": "a", "scope": "day", "active": true},
		"tokens": {"name": "a", "scope": "day", "tokens": 1.5},
		"scope":  {"name": "a", "scope": "week", "cost": 1},
		"name":   {"name": "", "scope": "day", "cost": 1},
	} {
		status, answer := s.Call(t, root, "POST", webtest.RecordsPath("budgets"), body)
		is.Equal(status, 400)
		is.True(answer["data"].(map[string]any)[field] != nil) // it names the field
	}
	status, answer := s.Call(t, root, "POST", webtest.RecordsPath("budgets"),
		map[string]any{"name": "a", "scope": "chat", "cost": -1})
	is.Equal(status, 400)
	is.True(answer["data"].(map[string]any)["cost"] != nil)

	status, made := s.Call(t, root, "POST", webtest.RecordsPath("budgets"),
		map[string]any{"name": "a", "scope": "chat", "tokens": 100})
	is.Equal(status, 200)
	is.Equal(made["user"], "") // for all users
	path := webtest.RecordsPath("budgets") + "/" + made["id"].(string)
	status, _ = s.Call(t, root, "PATCH", path, map[string]any{"tokens": 0})
	is.Equal(status, 400)
	status, _ = s.Call(t, root, "PATCH", path, map[string]any{"tokens": 0, "cost": 2})
	is.Equal(status, 200)
	status, _ = s.Call(t, root, "POST", webtest.RecordsPath("budgets"),
		map[string]any{"name": "a", "scope": "day", "cost": 1})
	is.Equal(status, 400) // the name is taken
}

func TestBudgetOfAnotherUserIsHidden(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	ada, adas := s.User(t, "ada", account.User)
	_, bobs := s.User(t, "bob", account.User)
	_, root := s.User(t, "root", account.Admin)
	chat := s.Chat(t, adas, "ada's")
	for name, of := range map[string]map[string]any{"hers": {"user": ada}, "her chat's": {"chat": chat}, "all": {}} {
		body := map[string]any{"name": name, "scope": "day", "cost": 1}
		for field, v := range of {
			body[field] = v
		}
		status, _ := s.Call(t, root, "POST", webtest.RecordsPath("budgets"), body)
		is.Equal(status, 200)
	}
	for token, n := range map[string]int{adas: 3, bobs: 1, root: 3} {
		_, list := s.Call(t, token, "GET", webtest.RecordsPath("budgets"), nil)
		is.Equal(len(list["items"].([]any)), n)
	}
}

// The message shows why it waits. Its permission request is an ordinary one, but only the budget can create it.
func TestMessageHeldByABudgetShowsWhy(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, adas := s.User(t, "ada", account.User)
	_, agents := s.User(t, "worker", account.Agent)
	chat := s.Chat(t, adas, "ada's")
	status, answer := s.Call(t, agents, "POST", "/api/pocketcoder/permission", map[string]any{
		"permission": events.KindBudget, "patterns": []string{"a"}, "chat_id": chat, "metadata": map[string]any{"more": 1e9},
	})
	is.Equal(status, 400)
	expect.Contains(t, answer["message"].(string), "budget")

	status, m := s.Call(t, adas, "POST", webtest.RecordsPath("messages"),
		map[string]any{"chat": chat, "role": "user", "parts": []map[string]any{{"type": "text", "text": "hello"}}})
	is.Equal(status, 200)
	e, err := events.New(chat, events.ActorPolicy, events.MessageHeld{Message: m["id"].(string), Permission: "p1",
		Reason: "it is used up"})
	is.NoErr(err)
	seq, err := s.Log.Append(t.Context(), e)
	is.NoErr(err)
	is.NoErr(s.Model.Wait(t.Context(), seq))
	_, m = s.Call(t, adas, "GET", webtest.RecordsPath("messages")+"/"+m["id"].(string), nil)
	is.Equal([]any{m["user_message_status"], m["held"], m["held_by"]}, []any{"pending", "it is used up", "p1"})
	_, row := s.Call(t, adas, "GET", webtest.RecordsPath("chats")+"/"+chat, nil)
	is.Equal(row["turn"], "user")
}

func TestOnlyAdministratorsDecideAboutAGlobalBudget(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, adas := s.User(t, "ada", account.User)
	_, root := s.User(t, "root", account.Admin)
	chat := s.Chat(t, adas, "ada's")
	budgets := &budget.Budgets{Records: s.Records, Permissions: &permission.Permissions{Log: s.Log}}
	for i, c := range []struct {
		scope  string
		status int
	}{{budget.OfChat, 200}, {budget.OfDay, 400}} {
		status, made := s.Call(t, root, "POST", webtest.RecordsPath("budgets"),
			map[string]any{"name": c.scope, "scope": c.scope, "tokens": 5, "active": true})
		is.Equal(status, 200)
		held, err := budgets.Hold(t.Context(), chat, 1, time.Now(),
			func(context.Context, budget.Span) (float64, float64, error) { return 0, 6, nil })
		is.NoErr(err)
		last, err := s.Log.Last(t.Context())
		is.NoErr(err)
		is.NoErr(s.Model.Wait(t.Context(), last))
		_, list := s.Call(t, adas, "GET", webtest.RecordsPath("permissions"), nil)
		is.Equal(len(list["items"].([]any)), i+1)
		path := webtest.RecordsPath("permissions") + "/" + held.Permission
		status, answer := s.Call(t, adas, "PATCH", path, map[string]any{"status": "authorized"})
		is.Equal(status, c.status)
		if c.status != 200 {
			is.Equal(answer["message"], "Only an administrator decides about this budget.")
		}
		status, _ = s.Call(t, root, "PATCH", path, map[string]any{"status": "authorized"})
		is.Equal(status, 200)
		status, _ = s.Call(t, root, "DELETE", webtest.RecordsPath("budgets")+"/"+made["id"].(string), nil)
		is.Equal(status, 204)
	}
}
