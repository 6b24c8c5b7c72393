package web_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/record"
	"pocketcoder/web/webtest"
)

// TestIsolationMatrixInRealtime follows every collection as every caller, creates a record of ada's in each, and checks
// which callers receive it.
func TestIsolationMatrixInRealtime(t *testing.T) {
	t.Parallel()
	c := newCast(t)
	byAll := map[string]*webtest.Follower{}
	var topics []string
	for _, collection := range slices.Sorted(maps.Keys(matrix)) {
		topics = append(topics, collection+"/*")
	}
	for _, who := range []string{"o", "x", "a", "A"} {
		byAll[who] = c.Connect(t).Follow(t, c.tokens[who], topics...)
	}
	guest := c.Connect(t)
	guest.Follow(t, "", topics...)

	made := map[string]string{}
	for _, collection := range slices.Sorted(maps.Keys(matrix)) {
		id := c.record(t, collection)
		if collection == "users" {
			id, _ = c.User(t, "someone", account.User)
		}
		made[collection] = id
	}
	for who, f := range byAll {
		wanted := map[string]bool{}
		for collection, id := range made {
			may := strings.Contains(matrix[collection].list, who)
			switch collection {
			case "users":
				may = who == "A" // an account is visible only to itself
			case "usage":
				may = false // a view, which has no realtime, as in PocketBase
			}
			wanted[collection+"/"+id] = may
		}
		c.expectEvents(t, who, f, wanted)
	}
	select {
	case f := <-guest.Frames:
		t.Errorf("a guest received %s", f.Raw)
	default:
	}
}

// expectEvents reads what a follower receives until it has all wanted events and one event more, which every caller
// receives. No other event may be among them.
func (c *cast) expectEvents(t *testing.T, who string, f *webtest.Follower, wanted map[string]bool) {
	t.Helper()
	last, _, err := c.Records.Save(t.Context(), record.Save{
		Command: handlers.Command{Actor: events.ActorSystem}, Collection: "healthchecks", New: true,
	})
	webtest.Check(t, err)
	missing := map[string]bool{"healthchecks/" + last: true}
	for record, may := range wanted {
		if may {
			missing[record] = true
		}
	}
	for len(missing) > 0 {
		got := f.Next(t)
		collection, _, _ := strings.Cut(got.Event, "/")
		record := collection + "/" + got.Data.Record["id"].(string)
		if may, named := wanted[record]; named && !may {
			t.Errorf("%s heard of %s: %s", who, record, got.Raw)
		}
		delete(missing, record)
	}
}

func TestOneRecordInRealtimeIsForThoseWhoMayViewIt(t *testing.T) {
	t.Parallel()
	c := newCast(t)
	for _, collection := range []string{"chats", "ssh_keys", "llm_keys", "devices", "mcp_servers"} {
		id := c.record(t, collection)
		topic := collection + "/" + id
		f := map[string]*webtest.Follower{}
		for _, who := range []string{"o", "x", "a", "A"} {
			f[who] = c.Connect(t).Follow(t, c.tokens[who], topic, "healthchecks/*")
		}
		by := c.tokens["A"]
		if strings.Contains(matrix[collection].update, "o") {
			by = c.tokens["o"]
		}
		status, answer := c.Call(t, by, "PATCH", webtest.RecordsPath(collection)+"/"+id, updates[collection])
		if status != 200 {
			t.Fatalf("update %s: %d %v", topic, status, answer)
		}
		if status, answer := c.Call(t, by, "DELETE", webtest.RecordsPath(collection)+"/"+id, nil); status != 204 {
			t.Fatalf("delete %s: %d %v", topic, status, answer)
		}
		for who, f := range f {
			c.expectEvents(t, who, f, map[string]bool{topic: strings.Contains(matrix[collection].view, who)})
		}
	}
}
