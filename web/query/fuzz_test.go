package query

import (
	"errors"
	"strings"
	"testing"
)

// FuzzFilter looks for filters that crash, that SQLite rejects, or that show records of others.
func FuzzFilter(f *testing.F) {
	for _, c := range filters {
		f.Add(c.filter, "-created", "chat.user")
	}
	for _, text := range hostileTexts {
		f.Add(text, text, text)
	}
	f.Add(`chat.user ?= "bob" || 1=1`, "chat.title,@random", "chat.messages_via_chat.chat")
	f.Add(`(((a=1`, "-", ",,,")
	db := open(f)
	cat := testCatalogue()
	f.Fuzz(func(t *testing.T, filter, sort, expand string) {
		for _, name := range []string{"messages", "docs", "permissions", "chats", "agents"} {
			c, _ := cat.Get(name)
			page, err := List(t.Context(), db, cat, c, requestOf("ann"), Query{Filter: filter, Sort: sort, Expand: expand})
			var i Invalid
			if errors.As(err, &i) {
				if i.Field == "" || i.Code == "" || i.Message == "" {
					t.Errorf("the error says nothing: %+v", i)
				}
				continue
			}
			if err != nil {
				t.Fatalf("%s: %q, %q, %q: %v", name, filter, sort, expand, err)
			}
			text := string(page.AppendJSON(nil))
			for _, secret := range []string{`"id":"bob"`, `"id":"c3"`, `"id":"m5"`, `"id":"d3"`, `"id":"q3"`, "Gamma", "mellon",
				"s1"} {
				if strings.Contains(text, secret) {
					t.Errorf("%s: %q, %q, %q shows %s", name, filter, sort, expand, secret)
				}
			}
		}
	})
}
