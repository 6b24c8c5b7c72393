package web_test

import (
	"fmt"
	"testing"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/record"
	"pocketcoder/web/query"
	"pocketcoder/web/webtest"
)

// BenchmarkListOf50InAProject lists chats and messages as an account that is no administrator, with the rule that only
// looks at the owner, and with that of projects. Each of two accounts has 1,000 chats.
func BenchmarkListOf50InAProject(b *testing.B) {
	s := webtest.NewSystem(b)
	ann, _ := s.User(b, "ann", account.User)
	bob, _ := s.User(b, "bob", account.User)
	var last uint64
	for i := range 2000 {
		owner, id := ann, fmt.Sprint("chat", i)
		if i%2 == 1 {
			owner = bob
		}
		var all []events.Event
		for _, d := range []events.Data{events.ChatCreated{Title: id, User: owner, Engine: events.DefaultEngine},
			events.MessageSubmitted{Message: "m" + id, Parts: []events.Part{{Type: "text", Text: "hello"}}}} {
			e, err := events.New(id, events.UserActor(owner), d)
			webtest.Check(b, err)
			all = append(all, e)
		}
		for _, e := range all {
			seq, err := s.Log.Append(b.Context(), e)
			webtest.Check(b, err)
			last = seq
		}
	}
	webtest.Check(b, s.Model.Wait(b.Context(), last))
	request := query.Request{Auth: &query.Auth{ID: ann, Role: account.User, Collection: account.Users}}
	for collection, before := range map[string]string{"chats": `user = @request.auth.id || ` + record.IsStaff,
		"messages": `chat.user = @request.auth.id || ` + record.IsStaff} {
		c, _ := s.Web.API.Catalogue.Get(collection)
		for name, rule := range map[string]*string{"owner": &before, "project": c.List} {
			c.List = rule
			for sort, q := range map[string]query.Query{"default": {PerPage: 50}, "newest": {PerPage: 50, Sort: "-created"},
				"active": {PerPage: 50, Sort: "-last_active", SkipTotal: true}} {
				if sort == "active" && collection == "messages" {
					continue
				}
				b.Run(collection+"/"+sort+"/"+name, func(b *testing.B) {
					for b.Loop() {
						webtest.Check(b, s.Model.View(b.Context(), func(db dbx.Builder, _ uint64) error {
							page, err := query.List(b.Context(), db, s.Web.API.Catalogue, c, request, q)
							if err == nil && len(page.Items) != 50 {
								b.Fatal(len(page.Items))
							}
							return err
						}))
					}
				})
			}
			b.Run(collection+"/changed/"+name, func(b *testing.B) {
				for b.Loop() {
					webtest.Check(b, s.Model.View(b.Context(), func(db dbx.Builder, _ uint64) error {
						_, err := query.Changed(b.Context(), db, s.Web.API.Catalogue, c, request, rule, query.Query{}, nil,
							int64(last)-1, 100)
						return err
					}))
				}
			})
		}
	}
}
