package web_test

import (
	"encoding/json"
	"flag"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers/account"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/recordtype"
	"pocketcoder/web/records"
	"pocketcoder/web/webtest"
)

// What a client sends that means harm or makes no sense: over the description and the catalogue, so that what is new is
// asked too. Whatever it is, the answer is a success or PocketBase's error object, and never the server's fault.

// injections are texts that mean something to SQL, to PocketBase's filter language, to JSON paths or to NATS.
var injections = []string{
	`'`, `"`, `' OR '1'='1`, `" OR ""="`, `x' OR 1=1 --`, `"; DROP TABLE chats; --`, `'); DELETE FROM chats; --`,
	`1) UNION SELECT 1,2,3 --`,
	`id) OR (1=1`, `id = "" || 1=1`, `user != ""`, `\'`, `%27%20OR%201=1`, `{:p0}`, `?1`, `:id`, `@p0`,
	`$.x') OR json_extract('{"a":1}','$.a`, `' || (SELECT data FROM parts) || '`,
	`chat.user.password`, `users.password`, `@collection.users.email != ""`, `-(SELECT 1)`, "id\x00", "\xff\xfe", `evt.>`,
	`*`, `>`, `a.b`, `../../etc/passwd`, `NULL`,
}

// operators are those of PocketBase's filter language.
var operators = []string{"=", "!=", ">", ">=", "<", "<=", "~", "!~", "?=", "?!=", "?>", "?>=", "?<", "?<=", "?~", "?!~"}

func TestInjectionsReachNothing(t *testing.T) {
	webtest.LeaveOutWhenShort(t)
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, owner := s.User(t, "owner", account.User)
	_, admin := s.User(t, "admin", account.Admin)
	_, stranger := s.User(t, "stranger", account.User)
	s.Chat(t, owner, "of the owner alone")
	for _, o := range operations(s.Web.Document()) {
		for _, collection := range collections(s, o) {
			for _, injected := range some() {
				for _, target := range targets(o, collection, injected) {
					_, answer := webtest.Send(s, t, stranger, webtest.Request(o.method, target, ""))
					if strings.Contains(string(answer), "of the owner alone") {
						t.Fatalf("%s %s shows another's chat", o.method, target)
					}
				}
			}
		}
	}
	for _, c := range records.CollectionsOf(recordtype.All(recordtype.Machine{})).Catalogue() {
		for i, injected := range some() {
			everywhere := map[string]any{}
			for j, field := range c.Fields {
				everywhere[field.Name] = injected
				value := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(injected) + `"`
				for _, filter := range []string{field.Name + operators[(i+j)%len(operators)] + value, field.Name + "=" + injected,
					injected + "=" + field.Name} {
					_, answer := webtest.Send(s, t, stranger, webtest.Request("GET",
						webtest.RecordsPath(c.Name)+"?"+url.Values{"filter": {filter}}.Encode(), ""))
					if strings.Contains(string(answer), "of the owner alone") {
						t.Fatalf("%s shows another's chat", filter)
					}
				}
			}
			value, err := json.Marshal(everywhere)
			is.NoErr(err)
			webtest.Send(s, t, admin, webtest.Request("POST", webtest.RecordsPath(c.Name), string(value)))
			for _, field := range c.Fields {
				if field.Kind != record.Text && field.Kind != record.JSON {
					delete(everywhere, field.Name) // what no text may be
				}
			}
			value, err = json.Marshal(everywhere)
			is.NoErr(err)
			webtest.Send(s, t, admin, webtest.Request("POST", webtest.RecordsPath(c.Name), string(value)))
		}
	}
	_, list := s.Call(t, owner, "GET", webtest.RecordsPath("chats"), nil)
	is.Equal(list["totalItems"], 1.0) // nothing was dropped
}

var allInjections = flag.Bool("injections.all", false, "try each injection in each place")

// taken counts what some has returned.
var taken atomic.Uint32

// some returns two injections, and the next two when it is called again; with -injections.all it returns all of them.
func some() (two []string) {
	if *allInjections {
		return injections
	}
	for range 2 {
		two = append(two, injections[int(taken.Add(1))%len(injections)])
	}
	return two
}

// targets are the operation's path and query with the text in each of the places there are.
func targets(o operation, collection, injected string) (list []string) {
	plain := o.at(collection)
	for _, p := range o.Parameters {
		switch {
		case p.In == "path" && p.Name != "collection":
			list = append(list, strings.Replace(plain, "/"+p.Name, "/"+url.PathEscape(injected), 1))
		case p.In == "query":
			list = append(list, plain+"?"+url.Values{p.Name: {injected}}.Encode())
		}
	}
	return list
}
