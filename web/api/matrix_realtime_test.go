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

// TestIsolationMatrixInRealtime follows every collection as everybody, makes a record of ada's in each, and then looks who
// heard of it. A record of their own that everybody makes at the end says that all there was to hear was heard.
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
		heard := c.heardBy(t, who, f)
		for collection, id := range made {
			may := strings.Contains(matrix[collection].list, who)
			switch collection {
			case "users":
				may = who == "A" // someone is nobody else's account
			case "usage":
				may = false // a view, which has no realtime, as in PocketBase
			}
			if heard[collection+"/"+id] != may {
				t.Errorf("%s/* as %s: heard of it %v, may %v", collection, who, heard[collection+"/"+id], may)
			}
		}
	}
	select {
	case f := <-nobody.frames:
		t.Errorf("who is not logged in heard %s", f.raw)
	default:
	}
}

// heardBy is every record, as collection/id, that a follower heard of until a record of its own came last.
func (c *cast) heardBy(t *testing.T, who string, f *follower) map[string]bool {
	t.Helper()
	last, _, err := c.handlers.SaveRecord(t.Context(), handlers.SaveRecord{
		Command: handlers.Command{Actor: events.ActorSystem}, Collection: "healthchecks", New: true, Set: nil, // everybody sees those
	})
	check(t, err)
	heard := map[string]bool{}
	for !heard["healthchecks/"+last] {
		got := f.next(t)
		collection, _, _ := strings.Cut(got.event, "/")
		heard[collection+"/"+got.data.Record["id"].(string)] = true
	}
	return heard
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
			if heard, may := c.heardBy(t, who, f)[topic], strings.Contains(matrix[collection].view, who); heard != may {
				t.Errorf("%s as %s: heard of it %v, may %v", topic, who, heard, may)
			}
		}
	}
}
