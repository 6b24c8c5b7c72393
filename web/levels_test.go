package web_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers/account"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/recordtype"
	"pocketcoder/web/records"
	"pocketcoder/web/webtest"
)

// nested is a JSON value with so many levels.
func nested(levels int) json.RawMessage {
	return json.RawMessage(strings.Repeat("[", levels) + strings.Repeat("]", levels))
}

// SQLite fails on more than 1,000 levels, and the log takes no event of 10,000.
func TestTooDeeplyNestedValuesAreRefused(t *testing.T) {
	t.Parallel()
	s := webtest.NewSystem(t)
	_, admin := s.User(t, "ada", account.Admin)
	_, agent := s.User(t, "poco", account.Agent)
	ada, _ := s.Accounts.Check(admin)
	chat := s.Chat(t, admin, "one")
	refused := func(t *testing.T, status int, answer webtest.Object, field string) {
		t.Helper()
		if status != 400 || !strings.Contains(fmt.Sprint(answer["data"].(webtest.Object)[field]),
			"at most 100 are accepted") {
			t.Errorf("%d %.200v", status, answer)
		}
	}
	written := 0
	for _, c := range records.CollectionsOf(recordtype.All(recordtype.Machine{})).Catalogue() {
		for _, f := range c.Fields {
			if f.Kind != record.JSON || f.ReadOnly {
				continue
			}
			written++
			for _, levels := range []int{101, 1500, 9990} {
				t.Run(fmt.Sprint(c.Name, " ", f.Name, " ", levels), func(t *testing.T) {
					by := admin
					if c.Name == "permissions" || c.Name == "mcp_servers" {
						by = agent
					}
					status, answer := s.Call(t, by, "POST", webtest.RecordsPath(c.Name), webtest.Object{f.Name: nested(levels)})
					refused(t, status, answer, f.Name)
				})
			}
		}
	}
	is := is.New(t)
	is.True(written > 3) // the catalogue has such fields

	own := webtest.RecordsPath("notification_rules")
	status, record := s.Call(t, admin, "POST", own, webtest.Object{"user": ada.Account, "rules": nested(100)})
	is.Equal(status, 200)
	path := own + "/" + record["id"].(string)
	status, answer := s.Call(t, admin, "PATCH", path, webtest.Object{"rules": nested(1500)})
	refused(t, status, answer, "rules")
	for _, one := range []webtest.Object{
		{"method": "POST", "url": own, "body": webtest.Object{"rules": nested(1500)}},
		{"method": "PATCH", "url": path, "body": webtest.Object{"rules": nested(9990)}},
	} {
		status, _, answer := s.Batch(t, admin, one)
		is.Equal(status, 400)
		requests := answer["data"].(webtest.Object)["requests"].(webtest.Object)
		failed := requests["0"].(webtest.Object)["response"].(webtest.Object)
		refused(t, status, failed, "rules")
	}
	for _, levels := range []int{100, 1500, 9990} {
		status, answer := s.Call(t, agent, "POST", "/api/pocketcoder/permission", webtest.Object{
			"permission": "bash", "chat_id": chat, "metadata": webtest.Object{"command": "make", "x": nested(levels)},
		})
		refused(t, status, answer, "metadata")
	}
	for _, list := range []string{own, webtest.RecordsPath("permissions"), webtest.RecordsPath("mcp_servers")} {
		status, _ := s.Call(t, admin, "GET", list, nil)
		is.Equal(status, 200)
	}
}
