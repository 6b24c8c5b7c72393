package pages_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

func TestAScheduleIsPreviewedSavedPausedAndRun(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ada := s.User(t, "ada", "user")
	s.User(t, "bob", "user")
	_, root := s.User(t, "root", "admin")
	needed(t, s, s.Chat(t, ada, "Before"), "per_1", "make <all>")
	b := loggedIn(t, s, "ada")
	expect.Contains(t, b.visit(t, "/settings").body, `href="/schedules"`)
	_, agent := s.Call(t, root, "POST", webtest.RecordsPath("ai_agents"), webtest.Object{"name": "Tester"})
	s.Provider(t, "demo", "demo")
	form := url.Values{"name": {"Nightly <b>"}, "prompt": {"run the tests"}, "cron_expression": {"30 2 * * *"},
		"time_zone": {"Europe/Berlin"}, "session_mode": {"new"}, "agent": {agent["id"].(string)}, "model": {"demo/demo"},
		"missed": {"once"}, "overlap": {"queue"}, "max_cost": {""}, "enabled": {"true"}}
	page := b.submit(t, "/schedules/preview", form).body
	for _, want := range []string{"02:30:00 CE", "made 1 permission requests", "make &lt;all&gt;", `value="30 2 * * *"`,
		`selected>Tester</option>`, `value="demo/demo"`, `selected>start one run for all of them</option>`,
		`selected>start the next run anyway</option>`} {
		expect.Contains(t, page, want)
	}
	expect.Lacks(t, b.visit(t, "/schedules").body, "Nightly")
	form.Set("cron_expression", "0 0 30 2 *")
	page = b.submit(t, "/schedules/preview", form).body
	expect.Contains(t, page, "there is no such date")
	expect.Contains(t, page, `value="0 0 30 2 *"`) // nothing that was typed is lost
	form.Set("cron_expression", "30 2 * * *")
	list := b.submit(t, "/settings/schedules", form).body
	expect.Contains(t, list, "Nightly &lt;b&gt;")
	_, after, _ := strings.Cut(list, `href="/schedules/`)
	id, _, _ := strings.Cut(after, `"`)
	_, stored := s.Call(t, ada, "GET", webtest.RecordsPath("schedules")+"/"+id, nil)
	is.Equal([]any{stored["agent"], stored["model"], stored["missed"], stored["overlap"]},
		[]any{agent["id"], "demo/demo", "once", "queue"})
	// a number that is not set is shown as empty
	expect.Contains(t, list, `name="max_cost" value=""`)
	expect.Contains(t, list, "Stop a run at cost, in US dollars</label>")
	page = b.visit(t, "/schedules/"+id).body
	expect.Contains(t, page, "The schedule has not run yet.")
	path := "/settings/schedules/" + id
	change := formOf(t, page, path)
	change.Set("enabled", "false")
	expect.Contains(t, b.submit(t, path, change).body, "30 2 * * * Europe/Berlin, paused")
	expect.Contains(t, b.visit(t, "/schedules/"+id).body, "The schedule has no further runs.")
	change.Set("enabled", "true")
	change.Set("shown_enabled", "false")
	b.submit(t, path, change)
	expect.Contains(t, b.submit(t, "/schedules/"+id+"/run", nil).body, "run the tests") // its chat
	expect.Contains(t, b.visit(t, "/schedules/"+id).body, "queued")
	other := loggedIn(t, s, "bob")
	is.Equal(other.visit(t, "/schedules/"+id).status, 404)
	expect.Lacks(t, other.visit(t, "/schedules").body, id)
	expect.Lacks(t, b.submit(t, path+"/delete", nil).body, id)

	// a time is read in the time zone of the schedule
	b.submit(t, "/settings/schedules", url.Values{"name": {"Once"}, "prompt": {"p"}, "at": {"2199-01-02 03:04"},
		"time_zone": {"Asia/Tokyo"}, "session_mode": {"new"}, "enabled": {"true"}})
	expect.Contains(t, b.visit(t, "/schedules").body, "at 2199-01-01 18:04 UTC")
}
