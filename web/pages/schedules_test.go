package pages_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/expect"
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
		"time_zone": {"Europe/Berlin"}, "agent": {agent["id"].(string)}, "model": {"demo/demo"}, "missed": {"once"},
		"overlap": {"queue"}, "max_cost": {""}}
	page := b.submit(t, "/schedules/preview", form).body
	for _, want := range []string{"02:30:00 CE", "made 1 permission requests", "make &lt;all&gt;", `value="30 2 * * *"`,
		`formaction="/schedules"`, `selected>Tester</option>`, `selected>demo/demo</option>`,
		`selected>start one run for all of them</option>`, `selected>start the next run anyway</option>`} {
		expect.Contains(t, page, want)
	}
	expect.Lacks(t, b.visit(t, "/schedules").body, "Nightly")
	form.Set("cron_expression", "0 0 30 2 *")
	page = b.submit(t, "/schedules/preview", form).body
	expect.Contains(t, page, "there is no such date")
	expect.Contains(t, page, `value="0 0 30 2 *"`) // nothing that was typed is lost
	expect.Lacks(t, page, `formaction="/schedules"`)
	form.Set("cron_expression", "30 2 * * *")
	page = b.submit(t, "/schedules", form).body
	expect.Contains(t, page, "Nightly &lt;b&gt;")
	expect.Contains(t, page, "The schedule has not run yet.")
	list := b.visit(t, "/schedules").body
	_, after, _ := strings.Cut(list, `href="/schedules/`)
	id, _, _ := strings.Cut(after, `"`)
	_, stored := s.Call(t, ada, "GET", webtest.RecordsPath("schedules")+"/"+id, nil)
	is.Equal([]any{stored["agent"], stored["model"], stored["missed"], stored["overlap"]},
		[]any{agent["id"], "demo/demo", "once", "queue"})
	// the settings show a number that is not set as empty
	record := b.visit(t, "/settings/schedules").body
	expect.Contains(t, record, `name="max_cost" value=""`)
	expect.Contains(t, record, "Stop a run at cost, in US$</label>")
	expect.Contains(t, b.submit(t, "/schedules/"+id+"/pause", nil).body, "paused")
	expect.Contains(t, b.visit(t, "/schedules/"+id).body, "The schedule has no further runs.")
	b.submit(t, "/schedules/"+id+"/resume", nil)
	expect.Contains(t, b.submit(t, "/schedules/"+id+"/run", nil).body, "run the tests") // its chat
	expect.Contains(t, b.visit(t, "/schedules/"+id).body, "queued")
	other := loggedIn(t, s, "bob")
	is.Equal(other.visit(t, "/schedules/"+id).status, 404)
	expect.Lacks(t, other.visit(t, "/schedules").body, id)
	expect.Lacks(t, b.submit(t, "/schedules/"+id+"/delete", nil).body, id)
}
