package query

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/matryer/is"
	"github.com/pocketbase/dbx"

	"pocketcoder/handlers/record"
)

// longPath is a path of n steps to end.
func longPath(step, end string, n int) string { return strings.Repeat(step+".", n) + end }

func TestParametersBeyondALimitAreRefused(t *testing.T) {
	t.Parallel()
	db := open(t)
	or := func(expression string, n int) string {
		return strings.TrimSuffix(strings.Repeat(expression+"||", n), "||")
	}
	for _, c := range []struct {
		name        string
		q           Query
		field, code string // empty if it is within the limit
	}{
		{"3500 bytes", Query{Filter: `title="` + strings.Repeat("x", 3500-8) + `"`}, "", ""},
		{"3501 bytes", Query{Filter: `title="` + strings.Repeat("x", 3501-8) + `"`}, "filter", "too_long"},
		{"200 expressions", Query{Filter: or("n=1", 200)}, "", ""},
		{"201 expressions", Query{Filter: or("n=1", 201)}, "filter", "too_many_expressions"},
		{"201 in groups", Query{Filter: "(" + or("n=1", 100) + ")||(" + or("n=1", 101) + ")"}, "filter", "too_many_expressions"},
		{"32 deep", Query{Filter: strings.Repeat("(", 32) + "n=1" + strings.Repeat(")", 32)}, "", ""},
		{"33 deep", Query{Filter: strings.Repeat("(", 33) + "n=1" + strings.Repeat(")", 33)}, "filter", "too_deep"},
		{"1700 deep", Query{Filter: strings.Repeat("(", 1700) + "n=1" + strings.Repeat(")", 1700)}, "filter", "too_deep"},
		{"quoted parentheses", Query{Filter: `title='` + strings.Repeat("(", 99) + `' // ((((((((((((((((((((((((((((((((((((((`}, "", ""},
		{"deep behind a comment", Query{Filter: "// it's\n" + strings.Repeat("(", 33) + "n=1" + strings.Repeat(")", 33)}, "filter", "too_deep"},
		{"long pattern", Query{Filter: `title ~ "` + strings.Repeat("x", 256) + `"`}, "", ""},
		{"longer pattern", Query{Filter: `title ~ "` + strings.Repeat("%", 257) + `"`}, "filter", "too_long"},
		{"6 relations", Query{Filter: longPath("user.favourite", "title", 3) + "=1"}, "", ""},
		{"8 relations", Query{Filter: longPath("user.favourite", "title", 4) + "=1"}, "filter", "too_deep"},
		{"4 to many", Query{Filter: longPath("messages_via_chat.chat", "title", 2) + "?=1"}, "", ""},
		{"5 to many", Query{Filter: longPath("messages_via_chat.chat", "title", 2) + "?=1 && permissions_via_chat.id ?= 1"}, "filter", "too_many_relations"},
		{"8 sorts", Query{Sort: strings.Repeat("n,", 7) + "n"}, "", ""},
		{"9 sorts", Query{Sort: strings.Repeat("n,", 8) + "n"}, "sort", "too_many_fields"},
		{"long sort", Query{Sort: strings.Repeat("n", 256)}, "sort", "too_long"},
		{"deep sort", Query{Sort: longPath("user.favourite", "title", 4)}, "sort", "too_deep"},
		{"20 expands", Query{Expand: strings.Repeat("user,", 20)}, "", ""},
		{"21 expands", Query{Expand: strings.Repeat("user,", 21)}, "expand", "too_many_fields"},
		{"6 expanded", Query{Expand: strings.Repeat("user.favourite.", 3)}, "", ""},
		{"7 expanded", Query{Expand: strings.Repeat("user.favourite.", 3) + "user"}, "expand", "too_deep"},
		{"100 fields", Query{Fields: strings.Repeat("a,", 99) + "a"}, "", ""},
		{"101 fields", Query{Fields: strings.Repeat("a,", 100) + "a"}, "fields", "too_many_fields"},
		{"a megabyte of fields", Query{Fields: strings.Repeat("a.", 500_000) + "a"}, "fields", "too_long"},
		{"a megabyte of expand", Query{Expand: strings.Repeat("a.", 500_000) + "a"}, "expand", "too_long"},
	} {
		_, err := list(t.Context(), t, db, "chats", requestOf("ann"), c.q)
		i, _ := err.(Invalid)
		if i.Field != c.field || i.Code != c.code || err != nil && i.Message == "" {
			t.Errorf("%s: got %v", c.name, err)
		}
	}
}

func TestRelationsInAFilterAreLimited(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	db, cat := open(t), testCatalogue()
	wide := get(t, "chats")
	var parts []string
	for i := range 21 {
		name := fmt.Sprintf("r%d", i)
		wide.Fields = append(wide.Fields, Field{SQL: "t.user",
			Field: record.Field{Name: name, Kind: record.Relation, Relation: "users"}})
		parts = append(parts, name+`.name = "Ann"`)
	}
	page, err := List(t.Context(), db, cat, wide, requestOf("ann"), Query{Filter: strings.Join(parts[:20], "&&")})
	is.NoErr(err)
	is.Equal(ids(page.Items), "c1 c2")
	_, err = List(t.Context(), db, cat, wide, requestOf("ann"), Query{Filter: strings.Join(parts, "&&")})
	is.Equal(err.(Invalid).Code, "too_many_relations")
}

func TestSlowQueryIsCancelled(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	db := open(t)
	endless := func(ctx context.Context) error {
		var n int
		return db.NewQuery("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT count(*) FROM n").WithContext(ctx).Row(&n)
	}
	err := within(t.Context(), 20*time.Millisecond, endless)
	i, ok := err.(Invalid)
	is.True(ok)
	is.Equal(i.Code, "too_slow")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = list(ctx, t, db, "chats", requestOf("ann"), Query{})
	is.True(errors.Is(err, context.Canceled)) // the client left: not an error of its filter
}

// hostileTexts would do harm if they were ever part of SQL.
var hostileTexts = []string{
	`'; DROP TABLE chats; --`, `" OR "1"="1`, "`; DELETE FROM users", `\' OR 1=1 --`, `'||(SELECT secret FROM users)||'`,
	`{:p0}`, `{{users}}`, `[[secret]]`, `?`, `:p0`, `$1`, `@p1`,
	"\x00", "a\x00b", "\xff\xfe", "日本語 🎉 \u202e", `%`, `_`, `\`, `%\`, `x') UNION SELECT secret FROM users --`,
	"*/ DROP TABLE users /*", strings.Repeat("'", 99), "'", `"`, "(", "\n", "${x}", "{{", "[[", "t.secret", "1e999", "-",
	"..", ":",
}

func TestHostileTextsAreBoundAsValues(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	db := open(t)
	quoted := func(s string) string { return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"` }
	for i, text := range hostileTexts {
		for k, q := range []Query{
			{Filter: "title = " + quoted(text)}, {Filter: "title ~ " + quoted(text)}, {Filter: quoted(text) + " ?!~ title"}, {Filter: "strftime(" + quoted(text) + ", created) = 1"},
			{Filter: "strftime('%Y', " + quoted(text) + ", " + quoted(text) + ") = 1"}, {Filter: text}, {Filter: text + " = 1"}, {Filter: "title." + text + " = 1"}, {Filter: "metadata." + text + " = 1"}, {Filter: "@request.query." + text + " = 1"},
			{Filter: "@collection." + text + ".id = 1"}, {Filter: text + "_via_chat.id = 1"}, {Filter: text + "(1) = 1"}, {Filter: "title:" + text + " = 1"},
			{Sort: text}, {Sort: "-" + text + ",title"}, {Sort: "chat." + text}, {Expand: text}, {Expand: "chat." + text + ",user"}, {Expand: text + "_via_user"}, {Fields: text}, {Fields: "id:" + text}, {Fields: "expand." + text},
		} {
			collection := []string{"chats", "permissions", "docs"}[(i+k)%3]
			page, err := list(t.Context(), t, db, collection, requestOf("ann"), q)
			var i Invalid
			if err != nil && !errors.As(err, &i) {
				t.Errorf("%s %+v: %v", collection, q, err)
			}
			for _, r := range page.Items {
				if collection == "chats" && r.Get("user") != "ann" && r.Get("user") != nil {
					t.Errorf("%+v shows %s", q, r.ID())
				}
			}
		}
		_, err := View(t.Context(), db, testCatalogue(), get(t, "chats"), text, requestOf("ann"), Query{})
		is.True(errors.Is(err, ErrNotFound))
		_, err = Allowed(t.Context(), db, testCatalogue(), get(t, "chats"), text, ownerOnly,
			Request{Auth: &Auth{ID: text, Role: text, Collection: text}})
		is.NoErr(err)
		ok, err := AllowedNew(t.Context(), db, testCatalogue(), get(t, "chats"),
			map[string]any{"title": text, text: text, "id": text, "user": "ann"}, ownerOnly, requestOf("ann"))
		is.NoErr(err)
		is.True(ok)
		_, err = Changed(t.Context(), db, testCatalogue(), get(t, "chats"), requestOf("ann"), ownerOnly,
			Query{Filter: "title = " + quoted(text)}, []string{text}, 0, 10)
		var i Invalid
		is.True(err == nil || errors.As(err, &i))
		_, known := testCatalogue().Get(text)
		is.True(!known)
	}
	var n int
	is.NoErr(db.NewQuery("SELECT count(*) FROM chats").Row(&n))
	is.Equal(n, 5)
}

// What was stored is found by it and comes back as it was.
func TestHostileTextsAreFound(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	db := open(t)
	for _, text := range hostileTexts {
		if strings.ContainsAny(text, "\x00\"\\") || !utf8.ValidString(text) {
			continue
		}
		_, err := db.NewQuery("UPDATE chats SET title = {:title} WHERE id = 'c1'").Bind(dbx.Params{"title": text}).Execute()
		is.NoErr(err)
		for _, op := range []string{"=", "~"} {
			page, err := list(t.Context(), t, db, "chats", requestOf("ann"),
				Query{Filter: `title ` + op + ` "` + text + `" && id = "c1"`})
			is.NoErr(err)
			is.Equal(len(page.Items), 1)
			is.Equal(page.Items[0].Get("title"), text)
		}
	}
}

func TestTooLargeAnswerIsRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	db := open(t)
	_, err := db.NewQuery("UPDATE chats SET title = replace(hex(zeroblob(9000000)), '00', 'x') WHERE id IN (SELECT id FROM chats WHERE user = 'ann' AND NOT removed LIMIT 1)").Execute()
	is.NoErr(err)
	ask := func(name string, q Query) error {
		_, err := list(t.Context(), t, db, name, requestOf("ann"), q)
		return err
	}
	is.NoErr(ask("chats", Query{})) // 9 MB
	_, err = db.NewQuery("UPDATE chats SET title = (SELECT max(title) FROM chats) WHERE NOT removed").Execute()
	is.NoErr(err)
	var i Invalid
	many := func(err error) bool { return errors.As(err, &i) && i.Field == "perPage" && i.Code == "too_large" }
	page, err := list(t.Context(), t, db, "chats", requestOf("super"), Query{Fields: "id"})
	is.NoErr(err) // only selected fields count
	is.True(len(page.Items) > 3)
	_, err = list(t.Context(), t, db, "chats", requestOf("super"), Query{})
	is.True(many(err))
	_, err = list(t.Context(), t, db, "chats", requestOf("super"), Query{Large: true})
	is.NoErr(err)
	_, err = list(t.Context(), t, db, "chats", requestOf("super"), Query{PerPage: 3})
	is.NoErr(err)
	is.NoErr(ask("messages", Query{PerPage: 1, Expand: "chat"}))
	_, err = list(t.Context(), t, db, "messages", requestOf("super"), Query{Expand: "chat"})
	is.True(many(err)) // each shows its chat
	changed := func(q Query, limit int) error {
		_, err := Changed(t.Context(), db, testCatalogue(), get(t, "messages"), requestOf("super"), nil, q, nil, 0, limit)
		return err
	}
	is.True(many(changed(Query{Expand: "chat"}, 100)))
	is.NoErr(changed(Query{Expand: "chat"}, 2))
	is.NoErr(changed(Query{Expand: "chat", Large: true}, 100))
}
