package web_test

import (
	"fmt"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

func TestASchedule(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ada := s.User(t, "ada", "user")
	_, bob := s.User(t, "bob", "user")
	const records = "/api/collections/cron_jobs/records"
	fields := map[string]any{"name": "report", "cron_expression": "0 9 * * 1-5", "time_zone": "Europe/Berlin",
		"prompt": "write the report", "session_mode": "new"}

	status, preview := s.Call(t, ada, "POST", "/api/schedules/preview", fields)
	is.Equal(status, 200)
	is.Equal(len(preview["next"].([]any)), 5)
	is.Equal(preview["time_zone"], "Europe/Berlin")
	status, made := s.Call(t, ada, "POST", records, fields)
	is.Equal(status, 200)
	is.Equal(made["enabled"], true) // by default
	id := made["id"].(string)

	wrong := map[string]any{}
	for name, value := range fields {
		wrong[name] = value
	}
	wrong["cron_expression"] = "0 0 30 2 *"
	for _, path := range []string{"/api/schedules/preview", records} {
		status, answer := s.Call(t, ada, "POST", path, wrong)
		is.Equal(status, 400)
		expect.Contains(t, fmt.Sprint(answer), "there is no such date")
	}
	delete(wrong, "cron_expression")
	wrong["session_mode"], wrong["chat"], wrong["every"] = "existing", s.Chat(t, bob, "bob's"), "1h"
	for _, path := range []string{"/api/schedules/preview", records} {
		status, _ := s.Call(t, ada, "POST", path, wrong)
		is.True(status >= 400) // in another account's chat
	}

	status, next := s.Call(t, ada, "GET", "/api/schedules/"+id+"/next", nil)
	is.Equal([]int{status, len(next["next"].([]any))}, []int{200, 5})
	for _, call := range [][2]string{{"GET", "/next"}, {"POST", "/run"}} {
		status, _ := s.Call(t, bob, call[0], "/api/schedules/"+id+call[1], nil)
		is.Equal(status, 404)
	}
	status, run := s.Call(t, ada, "POST", "/api/schedules/"+id+"/run", nil)
	is.Equal(status, 200)
	status, chat := s.Call(t, ada, "GET", "/api/collections/chats/records/"+run["chat"].(string), nil)
	is.Equal([]any{status, chat["title"]}, []any{200, "report"})
	_, runs := s.Call(t, ada, "GET", "/api/collections/schedule_runs/records?filter="+
		webtest.Escape(`schedule="`+id+`"`), nil)
	items := runs["items"].([]any)
	is.Equal(len(items), 1)
	is.Equal(items[0].(map[string]any)["state"], "queued")
	is.Equal(items[0].(map[string]any)["manual"], true)
	_, shown := s.Call(t, ada, "GET", records+"/"+id, nil)
	is.Equal(shown["last_status"], "queued")

	status, paused := s.Call(t, ada, "PATCH", records+"/"+id, map[string]any{"enabled": false})
	is.Equal([]any{status, paused["enabled"]}, []any{200, false})
	_, next = s.Call(t, ada, "GET", "/api/schedules/"+id+"/next", nil)
	is.Equal(len(next["next"].([]any)), 0)
	status, _ = s.Call(t, ada, "DELETE", records+"/"+id, nil)
	is.Equal(status, 204)
}
