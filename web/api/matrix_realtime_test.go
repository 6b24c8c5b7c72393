package api_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
)

// TestIsolationMatrixInRealtime follows every collection as everybody, makes a record of ada's in each, and looks who hears of it.
func TestIsolationMatrixInRealtime(t *testing.T) {
	t.Parallel()
	c := newCast(t)
	byAll := map[string]*follower{}
	var topics []string
	for _, collection := range slices.Sorted(maps.Keys(matrix)) {
		topics = append(topics, collection+"/*")
	}
	for _, who := range []string{"o", "x", "a", "A"} {
		byAll[who] = c.connect(t).follow(t, c.tokens[who], topics...)
	}
	nobody := c.connect(t)
	nobody.follow(t, "", topics...)

	made := map[string]string{}
	for _, collection := range slices.Sorted(maps.Keys(matrix)) {
		id := c.record(t, collection)
		if collection == "users" {
			id, _ = c.user(t, "someone", account.User)
		}
		made[collection] = id
	}
	for who, f := range byAll {
		wanted := map[string]bool{}
		for collection, id := range made {
			may := strings.Contains(matrix[collection].list, who)
			switch collection {
			case "users":
				may = who == "A" // someone is nobody else's account
			case "usage":
				may = false // a view, which has no realtime, as in PocketBase
			}
			wanted[collection+"/"+id] = may
		}
		c.hears(t, who, f, wanted)
	}
	select {
	case f := <-nobody.frames:
		t.Errorf("who is not logged in heard %s", f.raw)
	default:
	}
}

// hears reads what a follower is told until all that is wanted was heard, and one thing more that everybody hears. What is
// not wanted must not be among it.
func (c *cast) hears(t *testing.T, who string, f *follower, wanted map[string]bool) {
	t.Helper()
	last, _, err := c.handlers.SaveRecord(t.Context(), handlers.SaveRecord{
		Command: handlers.Command{Actor: events.ActorSystem}, Collection: "healthchecks", New: true,
	})
	check(t, err)
	missing := map[string]bool{"healthchecks/" + last: true}
	for record, may := range wanted {
		if may {
			missing[record] = true
		}
	}
	for len(missing) > 0 {
		got := f.next(t)
		collection, _, _ := strings.Cut(got.event, "/")
		record := collection + "/" + got.data.Record["id"].(string)
		if may, named := wanted[record]; named && !may {
			t.Errorf("%s heard of %s: %s", who, record, got.raw)
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
		f := map[string]*follower{}
		for _, who := range []string{"o", "x", "a", "A"} {
			f[who] = c.connect(t).follow(t, c.tokens[who], topic, "healthchecks/*")
		}
		by := c.tokens["A"]
		if strings.Contains(matrix[collection].update, "o") {
			by = c.tokens["o"]
		}
		status, answer := c.call(t, by, "PATCH", recordsOf(collection)+"/"+id, updates[collection])
		if status != 200 {
			t.Fatalf("update %s: %d %v", topic, status, answer)
		}
		if status, answer := c.call(t, by, "DELETE", recordsOf(collection)+"/"+id, nil); status != 204 {
			t.Fatalf("delete %s: %d %v", topic, status, answer)
		}
		for who, f := range f {
			c.hears(t, who, f, map[string]bool{topic: strings.Contains(matrix[collection].view, who)})
		}
	}
}
