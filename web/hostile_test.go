package web_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/web/api"
	"pocketcoder/web/webtest"
)

// What a client sends that means harm or makes no sense: over the description and the catalogue, so that what is new is
// asked too. Whatever it is, the answer is a success or PocketBase's error object, and never the server's fault.

// at is the operation's path with values that name nothing.
func (o operation) at(collection string) string {
	return strings.NewReplacer("{collection}", collection, "{", "", "}", "").Replace(o.path)
}

func TestTokensThatAreNoneAreRefusedEverywhere(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, good := s.User(t, "ada", account.Admin)
	_, revoked := s.User(t, "bob", account.User)
	identity, err := s.Accounts.Check(revoked)
	is.NoErr(err)
	is.NoErr(s.Accounts.Revoke(t.Context(), account.RevokeSession{Command: handlers.Command{Actor: events.ActorSystem},
		Account: identity.Account}))

	part := strings.Split(good, ".")
	is.Equal(len(part), 3)
	encoded := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	claims, err := base64.RawURLEncoding.DecodeString(part[1])
	is.NoErr(err)
	tokens := []string{
		"", " ", "x", "null", "undefined", "[]", `["` + good + `"]`, `{"token":"` + good + `"}`, "Bearer", "Bearer ",
		"Bearer null", "Basic YWRhOnB3",
		strings.Repeat("a", 10<<20), good + "x", good[:len(good)-1], "x" + good, good + " " + good, strings.ToUpper(good),
		"..", "a.b.c",
		encoded(`{"alg":"none","typ":"JWT"}`) + "." + part[1] + ".",
		encoded(`{"alg":"None"}`) + "." + part[1] + "." + part[2],
		encoded(`{"alg":"RS256"}`) + "." + part[1] + "." + part[2],
		part[0] + "." + part[1] + ".",
		part[0] + "." + encoded(strings.Replace(string(claims), `"exp":`, `"exp":9`, 1)) + "." + part[2],
		part[0] + "." + encoded(`{"id":"`+identity.Account+`","type":"auth","collectionId":"_superusers","exp":9999999999}`) +
			"." + part[2],
		revoked, "Bearer " + revoked,
	}
	for _, o := range operations(s.Web.Document()) {
		none, _ := webtest.Send(s, t, "", webtest.Request(o.method, o.at("chats"), "")) // without any
		is.Equal(none == http.StatusUnauthorized, o.Access != "public")
		want := none
		if o.path == "/api/realtime" { // a client with an invalid token would wait in vain
			want = http.StatusUnauthorized
		}
		for _, token := range tokens {
			r := webtest.Request(o.method, o.at("chats"), "")
			r.Header["Authorization"] = []string{token}
			status, _ := webtest.Send(s, t, "", r)
			if status != want {
				t.Errorf("%s %s with %.60q: %d, want %d", o.method, o.path, token, status, want)
			}
		}
	}
	status, _ := webtest.Send(s, t, "bEaReR "+good, webtest.Request("GET", "/api/pocketcoder/sessions", ""))
	is.Equal(status, http.StatusOK)
}

func TestWhatAClientSaysOfItselfChangesNothing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	id, user := s.User(t, "ada", account.User)
	claims := []string{"role", "scope", "scopes", "admin", "superuser", "collectionName", "type"}
	for _, o := range operations(s.Web.Document()) {
		if o.Access != "staff" && o.Access != "admin" {
			continue
		}
		query, body := url.Values{}, map[string]any{"role": "admin"}
		r := webtest.Request(o.method, o.at("chats"), "")
		for _, name := range claims {
			query.Set(name, "admin")
			body[name] = "admin"
			r.Header.Set(name, "admin")
			r.Header.Set("X-"+name, "admin")
		}
		text, err := json.Marshal(body)
		is.NoErr(err)
		code := webtest.Request(o.method, o.at("chats")+"?"+query.Encode(), string(text))
		for name, value := range r.Header {
			code.Header[name] = value
		}
		status, _ := webtest.Send(s, t, user, code)
		is.Equal(status, http.StatusForbidden) // a person stays one
		code.Header.Del("Authorization")
		status, _ = webtest.Send(s, t, "", code)
		is.Equal(status, http.StatusUnauthorized) // a guest stays a guest
	}
	for _, body := range []string{`{"role":"admin"}`, `{"role":"agent"}`, `{"disabled":true}`,
		`{"collectionName":"_superusers","role":"admin"}`} {
		webtest.Send(s, t, user, webtest.Request("PATCH", webtest.RecordsPath("users")+"/"+id, body))
		_, shown := s.Call(t, user, "GET", webtest.RecordsPath("users")+"/"+id, nil)
		is.Equal(shown["role"], account.User) // body
		is.Equal(shown["disabled"], false)    // body
	}
}

// bodies are no JSON, or JSON that no operation takes.
var bodies = []string{
	`{`, `}`, `{"a":}`, `{"a":1,}`, `{a:1}`, `{'a':1}`, "\x00", "\xff\xfe", "{\"a\":\"\xff\"}", `{"a":1}{"b":2}`,
	`{"a":1} x`, `NaN`, `<xml/>`, `a=b&c=d`,
	`[]`, `[{}]`, `"text"`, `1`, `true`, `{"":""}`, `{"a\u0000b":1}`, `{"__proto__":{"role":"admin"}}`,
	`{"no_such_field":1}`,
	strings.Repeat("[", 100_000), strings.Repeat(`{"a":`, 100_000),
	strings.Repeat(`{"a":`, 100_000) + "1" + strings.Repeat("}", 100_000),
	`{"no_such_field":"` + strings.Repeat("x", 9<<20) + `"}`,
}

func TestBodiesThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	s := webtest.NewSystem(t)
	_, admin := s.User(t, "ada", account.Admin)
	for _, o := range operations(s.Web.Document()) {
		if o.Body == nil {
			continue
		}
		for i, collection := range collections(s, o) {
			path := strings.ReplaceAll(o.at(collection), "/id", "/"+s.Chat(t, admin, "a chat"))
			for _, body := range bodies {
				if i > 0 && len(body) > 1000 {
					continue // once is enough for what takes long
				}
				if status, answer := webtest.Send(s, t, admin, webtest.Request(o.method, path, body)); status < 400 {
					t.Errorf("%s %s with %.60q: %d %.200s", o.method, path, body, status, answer)
				}
			}
			r := webtest.Request(o.method, path, `{}`)
			r.Header.Set("Content-Type", "text/plain")
			if status, _ := webtest.Send(s, t, admin, r); status < 400 {
				t.Errorf("%s %s as text: %d", o.method, path, status)
			}
		}
	}
}

// collections are those for which an operation is asked: all, or none in particular.
func collections(s *webtest.System, o operation) []string {
	for _, p := range o.Parameters {
		if p.Name == "collection" {
			return p.Schema.Enum
		}
	}
	return []string{""}
}

func TestValuesOfAnotherTypeAreRefusedByName(t *testing.T) {
	t.Parallel()
	s := webtest.NewSystem(t)
	admin, token := s.User(t, "ada", account.Admin)
	d := s.Web.Document()
	values := map[string]string{"string": `"text"`, "number": `1.5`, "boolean": `true`, "object": `{"a":1}`,
		"array": `[1]`}
	for _, o := range operations(d) {
		if o.Body == nil {
			continue
		}
		f := fixtures(s, t, o, admin, token)
		delete(f, "token")
		for _, form := range forms(d, o) {
			for name, property := range form.Properties {
				for kind, value := range values {
					if property.Type == "" || property.Type == kind || name == "id" {
						continue // of any type, of this one, or not looked at when a record is there
					}
					body := fmt.Sprintf(`{%q:%s}`, name, value)
					for _, collection := range collections(s, o) {
						if form.collection != "" && collection != form.collection {
							continue
						}
						path := strings.ReplaceAll(o.at(collection), "/id", "/"+fmt.Sprint(f["id"]))
						status, answer := webtest.Send(s, t, token, webtest.Request(o.method, path, body))
						if status < 400 || status == http.StatusBadRequest && !strings.Contains(string(answer), name) {
							t.Errorf("%s %s with %s: %d %s", o.method, path, body, status, answer)
						}
					}
				}
			}
		}
	}
}

// bodyForm is a form of an operation's body, of one collection or of none in particular.
type bodyForm struct {
	api.Form
	collection string
}

func forms(d api.Document, o operation) (list []bodyForm) {
	form := o.Body.Content["application/json"].Schema
	if len(form.AnyOf) == 0 {
		return []bodyForm{{d.Components.Resolve(form), ""}}
	}
	for _, one := range form.AnyOf {
		name := one.Ref[strings.LastIndex(one.Ref, "/")+1:]
		list = append(list, bodyForm{d.Components.Resolve(one), strings.TrimSuffix(name, "Input")})
	}
	return list
}

func TestUnknownNamesAreNotFound(t *testing.T) {
	t.Parallel()
	s := webtest.NewSystem(t)
	_, admin := s.User(t, "ada", account.Admin)
	paths := map[string][]string{}
	for _, o := range operations(s.Web.Document()) {
		paths[o.path] = append(paths[o.path], o.method)
		if !strings.Contains(o.path, "{collection}") {
			continue
		}
		for _, name := range []string{"nothing", "sqlite_master", "_superuser", "CHATS", "chats%20", "chats;", "%27",
			"config", strings.Repeat("x", 5000)} {
			if status, _ := webtest.Send(s, t, admin, webtest.Request(o.method, o.at(name), "")); status != http.StatusNotFound {
				t.Errorf("%s %s of the collection %.20s: %d", o.method, o.path, name, status)
			}
		}
	}
	for path, methods := range paths {
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"} {
			if slices.Contains(methods, method) {
				continue
			}
			o := operation{method: method, path: path}
			if status, _ := webtest.Send(s, t, admin,
				webtest.Request(method, o.at("chats"), "")); status != http.StatusNotFound {
				t.Errorf("%s %s: %d", method, path, status)
			}
		}
	}
	for _, path := range []string{"/api/", "/api/nothing", "/api/collections/chats/record", "/api/admins",
		"/api/settings", "/api/logs", "/api/backups", "/api/files/x/y/z"} {
		if status, _ := webtest.Send(s, t, admin, webtest.Request("GET", path, "")); status != http.StatusNotFound {
			t.Errorf("%s: %d", path, status)
		}
	}
}
