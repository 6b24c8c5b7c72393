package web_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/web/webtest"
)

// inside are the fields that only administrators see: directories of the machine, states inside the system, and what
// messengers were sent. The command line on the machine shows them.
var inside = map[string][]string{
	"chats":            {"reader", "engine", "directory", "worktree", "branch", "kept", "adopted", "awaited"},
	"permissions":      {"replied", "grant_used"},
	"questions":        {"engine_replied"},
	"channel_messages": {"whole", "receipt"},
	"mcp_servers":      {"programs"},
}

func TestOnlyAdministratorsSeeTheInside(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	c := newCast(t)
	for _, collection := range c.Web.API.Catalogue {
		var fields []string
		for _, f := range collection.Fields {
			if f.Admins {
				fields = append(fields, f.Name)
			}
		}
		is.Equal(fields, inside[collection.Name])
	}
	local := c.Local(t)
	for collection, fields := range inside {
		path := webtest.RecordsPath(collection)
		id := c.record(t, collection)
		for _, who := range strings.Split(matrix[collection].view, "") {
			get := func(query string) (int, map[string]any) {
				return c.Call(t, c.tokens[who], "GET", path+query, nil)
			}
			_, viewed := get("/" + id)
			_, list := get("?perPage=1&fields=*," + strings.Join(fields, ","))
			listed := list["items"].([]any)[0].(map[string]any)
			for _, name := range fields {
				_, inView := viewed[name]
				_, inList := listed[name]
				filtered, _ := get("?filter=" + webtest.Escape(name+` != "x"`))
				sorted, _ := get("?sort=" + name)
				got := fmt.Sprint(collection, " ", name, " as ", who, ": ", inView, inList, filtered == 200, sorted == 200)
				sees := who == "A"
				is.Equal(got, fmt.Sprint(collection, " ", name, " as ", who, ": ", sees, sees, sees, sees))
			}
		}
		resp, err := http.Get(local + path + "/" + id)
		is.NoErr(err)
		var operator map[string]any
		is.NoErr(json.NewDecoder(resp.Body).Decode(&operator))
		is.NoErr(resp.Body.Close())
		for _, name := range fields {
			_, sees := operator[name]
			is.True(sees)
		}
	}
}

// A relation and a live change show no more.
func TestNoWayRoundShowsTheInside(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	c := newCast(t)
	follower := c.Connect(t).Follow(t, c.tokens["o"], "chats/*")
	chat := c.record(t, "chats")
	live := follower.Next(t).Data.Record
	is.Equal(live["id"], chat)
	message := c.record(t, "messages")
	view := webtest.RecordsPath("messages") + "/" + message
	_, expanded := c.Call(t, c.tokens["o"], "GET", view+"?expand=chat", nil)
	related := expanded["expand"].(map[string]any)["chat"].(map[string]any)
	for _, name := range inside["chats"] {
		_, inLive := live[name]
		_, inRelated := related[name]
		is.Equal([]any{name, inLive, inRelated}, []any{name, false, false})
		status, _ := c.Call(t, c.tokens["o"], "GET", webtest.RecordsPath("messages")+"?filter="+
			webtest.Escape("chat."+name+` = ""`), nil)
		is.Equal(status, http.StatusBadRequest)
	}
}
