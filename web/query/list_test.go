package query

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"
	"github.com/pocketbase/dbx"

	"pocketcoder/ops/expect"
)

func TestListsAreSorted(t *testing.T) {
	t.Parallel()
	db := open(t)
	for _, c := range []struct{ collection, sort, want string }{
		{"messages", "", "m1 m2 m3 m4 m5 m6 m7"}, {"messages", "created", "m1 m2 m3 m4 m5 m6 m7"}, {"messages", "-created", "m7 m6 m5 m4 m3 m2 m1"},
		{"messages", "-@rowid", "m7 m6 m5 m4 m3 m2 m1"}, {"messages", "@rowid", "m1 m2 m3 m4 m5 m6 m7"}, {"messages", "role,-created", "m3 m2 m7 m6 m5 m4 m1"},
		{"messages", "+role, status", "m2 m3 m1 m4 m6 m7 m5"}, {"messages", "-chat.title,id", "m4 m7 m5 m6 m1 m2 m3"}, {"messages", "chat.user.name", "m7 m1 m2 m3 m4 m5 m6"},
		{"messages", "error.code,id", "m1 m2 m4 m5 m6 m7 m3"}, {"chats", "-n", "c4 c3 c2 c1"}, {"chats", "title:lower", "c1 c2 c3 c4"}, {"chats", "messages_via_chat.status", "c1 c2 c3 c4"},
		{"agents", "-created", "a2 a1"}, {"docs", "-tags:length", "d1 d2 d3"},
	} {
		page, err := list(t.Context(), t, db, c.collection, requestOf("super"), Query{Sort: c.sort})
		if err != nil || ids(page.Items) != c.want {
			t.Errorf("%s by %q: got %q, %v, want %q", c.collection, c.sort, ids(page.Items), err, c.want)
		}
	}
	page, err := list(t.Context(), t, db, "messages", requestOf("super"), Query{Sort: "@random"})
	if err != nil || len(page.Items) != 7 {
		t.Errorf("random: %q, %v", ids(page.Items), err)
	}
	for _, sort := range []string{"nothing", "-", ",", "created,", "@now", "@request.auth.id", "@collection.users.id",
		"null", "1", "created;drop table users", "chat.nothing", "secret", "(created)", "created desc", "\x00"} {
		if _, err := list(t.Context(), t, db, "users", requestOf("ann"), Query{Sort: sort}); err == nil ||
			err.(Invalid).Field != "sort" {
			t.Errorf("sort by %q: %v", sort, err)
		}
	}
}

func TestPaging(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	db := open(t)
	for _, c := range []struct {
		q     Query
		ids   string
		total [4]int
	}{
		{Query{}, "m1 m2 m3 m4 m5 m6 m7", [4]int{1, 30, 7, 1}},
		{Query{PerPage: 3}, "m1 m2 m3", [4]int{1, 3, 7, 3}}, {Query{PerPage: 3, Page: 3}, "m7", [4]int{3, 3, 7, 3}}, {Query{PerPage: 3, Page: 4}, "", [4]int{4, 3, 7, 3}},
		{Query{PerPage: 7}, "m1 m2 m3 m4 m5 m6 m7", [4]int{1, 7, 7, 1}}, {Query{PerPage: 3, Page: 2, SkipTotal: true}, "m4 m5 m6", [4]int{2, 3, -1, -1}},
		{Query{PerPage: -5, Page: -5}, "m1 m2 m3 m4 m5 m6 m7", [4]int{1, 30, 7, 1}}, {Query{PerPage: 1e9, Page: 1 << 62}, "", [4]int{1 << 62, 1000, 7, 1}},
		{Query{Filter: "1=2"}, "", [4]int{1, 30, 0, 0}},
	} {
		page, err := list(t.Context(), t, db, "messages", requestOf("super"), c.q)
		is.NoErr(err)
		is.Equal(ids(page.Items), c.ids)
		is.Equal([4]int{page.Page, page.PerPage, page.TotalItems, page.TotalPages}, c.total)
	}
	page, err := list(t.Context(), t, db, "messages", requestOf("super"), Query{Filter: "1=2"})
	is.NoErr(err)
	is.Equal(string(page.AppendJSON(nil)), `{"page":1,"perPage":30,"totalItems":0,"totalPages":0,"items":[]}`)
}

func TestOnlyRecordsOfThePageAreReadInFull(t *testing.T) {
	is := is.New(t)
	db := open(t)
	before := reads.Load()
	_, err := list(t.Context(), t, db, "messages", requestOf("super"),
		Query{PerPage: 1, Sort: "-created,chat.title", Filter: `chat.user.name != "x"`})
	is.NoErr(err)
	is.Equal(reads.Load(), before) // the last message has no parts
	_, err = list(t.Context(), t, db, "messages", requestOf("super"), Query{PerPage: 1, Page: 2, Sort: "created"})
	is.NoErr(err)
	is.Equal(reads.Load(), before+1) // that of m2
	_, err = list(t.Context(), t, db, "messages", requestOf("super"), Query{Fields: "id,role"})
	is.NoErr(err)
	is.Equal(reads.Load(), before+1) // not asked for
}

func TestRecordsHavePocketBasesForm(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	db := open(t)
	for _, c := range []struct{ collection, id, want string }{
		{"chats", "c4", `{"collectionId":"pbc_chats","collectionName":"chats","id":"c4","title":"O'Brien \"quoted\" \\ back","user":"","archived":false,"n":4,` +
			`"created":"2026-03-04 12:00:13.000Z","updated":"2026-03-04 12:00:13.000Z"}`},
		{"messages", "m1", `{"collectionId":"pbc_messages","collectionName":"messages","id":"m1","chat":"c1","role":"user","status":"delivered",` +
			`"parts":[{"type":"text","text":"hello"},{"type":"text","text":"<b>bold</b> world"}],"error":null,"created":"2026-03-04 12:00:20.000Z","updated":"2026-03-04 12:00:20.000Z"}`},
		{"messages", "m2", `{"collectionId":"pbc_messages","collectionName":"messages","id":"m2","chat":"c1","role":"assistant","status":"completed",` +
			`"parts":[{"type":"tool","n":2}],"error":null,"created":"2026-03-04 12:00:20.000Z","updated":"2026-03-04 12:00:20.000Z"}`},
		{"messages", "m6", `{"collectionId":"pbc_messages","collectionName":"messages","id":"m6","chat":"c3","role":"user","status":"delivered",` +
			`"parts":null,"error":null,"created":"2026-03-04 12:00:24.000Z","updated":"2026-03-04 12:00:24.000Z"}`},
		{"agents", "a1", `{"collectionId":"pbc_agents","collectionName":"agents","id":"a1","name":"poco","prompt":"p1","temperature":0.5,"on":true,"notes":{"k":[1,2]},` +
			`"created":"2026-03-04 12:01:00.000Z","updated":"2026-03-04 12:01:00.000Z"}`},
		{"agents", "a2", `{"collectionId":"pbc_agents","collectionName":"agents","id":"a2","name":"other","prompt":"","temperature":0,"on":false,"notes":null,` +
			`"created":"2026-03-04 12:01:01.000Z","updated":"2026-03-04 12:01:01.000Z"}`},
		{"docs", "d1", `{"collectionId":"pbc_docs","collectionName":"docs","id":"d1","title":"one","tags":["red","blue"],"readers":["ann","bob"],"owner":"ann",` +
			`"created":"2026-03-04 12:01:04.000Z","updated":"2026-03-04 12:01:04.000Z"}`},
	} {
		r, err := View(t.Context(), db, testCatalogue(), get(t, c.collection), c.id, requestOf("super"), Query{})
		is.NoErr(err)
		is.Equal(string(r.AppendJSON(nil)), c.want)
		text, err := json.Marshal(r)
		is.NoErr(err)
		is.True(json.Valid(text))
	}
	r, err := View(t.Context(), db, testCatalogue(), get(t, "users"), "root", requestOf("root"), Query{})
	is.NoErr(err)
	text := string(r.AppendJSON(nil))
	expect.Contains(t, text, `"favourite":null`)       // nullable
	is.Equal(r.Get("nothing"), nil)                    //
	is.Equal(Record{}.Get("id"), "")                   //
	is.Equal(string(Record{}.AppendJSON(nil)), "null") //
	page, err := list(t.Context(), t, db, "sandbox_agents", requestOf("ann"), Query{})
	is.NoErr(err)
	is.Equal(len(page.Items), 0)
	alias, _ := testCatalogue().Get("sandbox_agents")
	named, _ := testCatalogue().Get("subagents")
	is.Equal([]string{alias.Name, alias.ID, named.Name, named.ID},
		[]string{"sandbox_agents", "pbc_subagents", "subagents", "pbc_subagents"})
}

func TestGetReturnsValuesOfTheFieldsKind(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	db := open(t)
	r, err := View(t.Context(), db, testCatalogue(), get(t, "agents"), "a1", requestOf("super"), Query{})
	is.NoErr(err)
	is.Equal([]any{r.Get("id"), r.Get("name"), r.Get("on"), r.Get("temperature"), r.Get("notes"), r.Get("created")},
		[]any{"a1", "poco", true, 0.5, json.RawMessage(`{"k":[1,2]}`), "2026-03-04 12:01:00.000Z"})
}

// selectFields returns the records of a collection as JSON.
func selectFields(t *testing.T, collection, who string, q Query) []map[string]any {
	t.Helper()
	is := is.New(t)
	page, err := list(t.Context(), t, open(t), collection, requestOf(who), q)
	is.NoErr(err)
	var decoded struct{ Items []map[string]any }
	is.NoErr(json.Unmarshal(page.AppendJSON(nil), &decoded))
	return decoded.Items
}

func TestRelationsAreExpanded(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m := selectFields(t, "messages", "ann", Query{Filter: `id = "m1"`,
		Expand: "chat.user, chat.messages_via_chat ,,nothing,role,chat.nothing"})[0]
	chat := m["expand"].(map[string]any)["chat"].(map[string]any)
	is.Equal(chat["title"], "Alpha 100%")
	is.Equal(chat["collectionName"], "chats")
	is.Equal(chat["expand"].(map[string]any)["user"].(map[string]any)["name"], "Ann")
	back := chat["expand"].(map[string]any)["messages_via_chat"].([]any)
	is.Equal(len(back), 3) // without the removed one
	is.Equal(back[2].(map[string]any)["id"], "m3")

	agents := selectFields(t, "agents", "ann", Query{Expand: "prompt"})
	is.Equal(agents[0]["expand"].(map[string]any)["prompt"].(map[string]any)["body"], "Do.")
	is.Equal(agents[1]["expand"], nil)

	docs := selectFields(t, "docs", "super", Query{Expand: "readers,owner.docs_via_owner"})
	is.Equal(docs[2]["expand"].(map[string]any)["readers"], nil) // no relation
	owner := docs[2]["expand"].(map[string]any)["owner"].(map[string]any)
	is.Equal(owner["id"], "bob")
	is.Equal(len(owner["expand"].(map[string]any)["docs_via_owner"].([]any)), 2)
}

func TestExpandFollowsTheViewRules(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	docs := selectFields(t, "docs", "ann", Query{Expand: "owner.chats_via_user,owner.keys_via_user"})
	is.Equal(len(docs), 2)
	owner := docs[0]["expand"].(map[string]any)["owner"].(map[string]any)
	is.Equal(len(owner["expand"].(map[string]any)["chats_via_user"].([]any)), 2)
	is.Equal(owner["expand"].(map[string]any)["keys_via_user"], nil) // for superusers alone
	is.Equal(docs[1]["expand"], nil)                                 // Bob
}

func TestFieldsSelectPartsOfRecords(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	db := open(t)
	for _, c := range []struct{ collection, filter, expand, fields, want string }{
		{"messages", `id="m1"`, "", "id,role", `{"id":"m1","role":"user"}`},
		{"messages", `id="m1"`, "", " role , nothing,collectionName", `{"collectionName":"messages","role":"user"}`},
		{"messages", `id="m1"`, "", "nothing", `{}`},
		{"messages", `id="m1"`, "", "parts.type", `{"parts":[{"type":"text"},{"type":"text"}]}`},
		{"messages", `id="m1"`, "", "parts.text:excerpt(3,true)", `{"parts":[{"text":"hel..."},{"text":"bol..."}]}`},
		{"messages", `id="m3"`, "", "error.code,status.x", `{"status":"failed","error":{"code":7}}`},
		{"messages", `id="m1"`, "chat.user", "id,expand.chat.title,expand.chat.expand.user.name", `{"id":"m1","expand":{"chat":{"title":"Alpha 100%","expand":{"user":{"name":"Ann"}}}}}`},
		{"messages", `id="m1"`, "chat", "id", `{"id":"m1"}`},
		{"messages", `id="m1"`, "chat,chat.user", "expand.chat.id", `{"expand":{"chat":{"id":"c1"}}}`},
		{"chats", `id="c1"`, "", "*,title:excerpt(2)", `{"collectionId":"pbc_chats","collectionName":"chats","id":"c1","title":"Al","user":"ann","archived":false,"n":1.5,"created":"2026-03-04 12:00:10.000Z","updated":"2026-03-04 12:00:10.000Z"}`},
		{"chats", `id="c2"`, "messages_via_chat", "expand.messages_via_chat.id,title", `{"title":"beta_two","expand":{"messages_via_chat":[{"id":"m4"}]}}`},
		{"chats", `id="c2"`, "messages_via_chat", "expand.*.id", `{}`},
		{"chats", `id="c2"`, "user", "expand.*", `{"expand":{"user":{"collectionId":"pbc_users","collectionName":"users","id":"ann","email":"ann@x.org","name":"Ann","role":"user","favourite":"c1","created":"2026-03-04 12:00:01.000Z","updated":"2026-03-04 12:00:01.000Z"}}}`},
		{"docs", `id="d1"`, "", "tags,readers.x", `{"tags":["red","blue"],"readers":["ann","bob"]}`},
	} {
		page, err := list(t.Context(), t, db, c.collection, requestOf("ann"),
			Query{Filter: c.filter, Expand: c.expand, Fields: c.fields})
		is.NoErr(err)
		if got := string(page.Items[0].AppendJSON(nil)); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.fields, got, c.want)
		}
	}
	for _, fields := range []string{"id:upper", "id:excerpt", "id:excerpt()", "id:excerpt(0)", "id:excerpt(-1)",
		"id:excerpt(1,2,3)", "id:excerpt(x)", strings.Repeat("a,", 101)} {
		if _, err := list(t.Context(), t, db, "chats", requestOf("ann"), Query{Fields: fields}); err == nil ||
			err.(Invalid).Field != "fields" {
			t.Errorf("%s: %v", fields, err)
		}
	}
}

func TestExcerptsHaveNoTags(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text, want string
		e          excerpt
	}{
		{"plain text", "plain", excerpt{6, false}}, {"<p>one</p><p>two</p>", "one two", excerpt{100, true}}, {"a<b>b</b>c &lt; d &amp; e", "abc < d & e", excerpt{100, true}},
		{"x <script>alert('no')</script> y <style>z</style>", "x y", excerpt{100, true}}, {"1 < 2 and 3 > 2", "1 < 2 and 3 > 2", excerpt{100, true}}, {"<!-- no <b> -->yes", "yes", excerpt{100, true}},
		{"a <img src=x> b", "a b", excerpt{100, true}}, {"<script>never closed", "", excerpt{100, true}}, {"unclosed <", "unclosed <", excerpt{100, true}}, {"<", "<", excerpt{100, true}}, {"<b", "", excerpt{100, true}},
		{"日本語のテキスト", "日本...", excerpt{2, true}}, {"  spaces \n\n and\tlines ", "spaces and lines", excerpt{100, true}}, {"</script>x", "x", excerpt{9, false}},
	} {
		if got := c.e.of(c.text); got != c.want {
			t.Errorf("%q: got %q, want %q", c.text, got, c.want)
		}
	}
}

func TestExpandedBackRelationsAreLimited(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	db := open(t)
	_, err := db.NewQuery("WITH RECURSIVE n(i) AS (SELECT 1000 UNION ALL SELECT i+1 FROM n WHERE i < 2009) INSERT INTO messages SELECT 'x'||i, iif(i < 2005, 'c1', 'c3'), '', '', '', '', '', i, i, 0 FROM n").Execute()
	is.NoErr(err)
	page, err := list(t.Context(), t, db, "chats", requestOf("root"), Query{Expand: "messages_via_chat",
		Fields: "id,expand.messages_via_chat.id"})
	is.NoErr(err)
	for i, want := range []int{1000, 1, 7, 1} {
		is.Equal(len(page.Items[i].expanded[0].records), want)
	}
	is.Equal(page.Items[0].expanded[0].records[0].ID(), "m1") // the oldest ones
}

func TestRecordsReadByExpandAreLimited(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	db, c := open(t), get(t, "chats")
	for left, want := range map[int]string{0: "too_many_records", 11: "too_many_records", 12: ""} {
		page, err := list(t.Context(), t, db, "chats", requestOf("super"), Query{})
		is.NoErr(err)
		e := expander{ctx: t.Context(), db: db, cat: testCatalogue(), req: requestOf("super"), remaining: left}
		// 7 messages, 2 users, their 3 chats
		err = e.expand(c, pointers(page.Items), branches{"messages_via_chat": nil, "user": {"chats_via_user": nil}}, nil)
		i, _ := err.(Invalid)
		is.Equal(i.Code, want)
	}
}

func TestPagesNeitherRepeatNorSkip(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	db := open(t)
	_, err := db.NewQuery("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 50) INSERT INTO messages SELECT 'same'||i, 'c1', 'same', '', '', 'then', 'then', 500, i, 0 FROM n").Execute()
	is.NoErr(err)
	for _, sort := range []string{"created", "-created", "role,-status", ""} {
		var seen []string
		for page := 1; page <= 8; page++ {
			p, err := list(t.Context(), t, db, "messages", requestOf("super"),
				Query{Filter: `role = "same"`, Sort: sort, PerPage: 7, Page: page})
			is.NoErr(err)
			seen = append(seen, strings.Fields(ids(p.Items))...)
		}
		slices.Sort(seen)
		is.Equal(len(slices.Compact(seen)), 50)
	}
}

func TestFastPathReturnsTheSamePage(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	db := open(t)
	is.NoErr(db.Transactional(func(tx *dbx.Tx) error {
		for i := range maxFirst { // newer than all messages of ann, but for the last two
			chat := "c3"
			if i >= maxFirst-2 {
				chat = "c1"
			}
			_, err := tx.NewQuery("INSERT INTO messages VALUES({:id}, {:chat}, 'user', 'delivered', '', {:at}, {:at}, {:seq}, {:seq}, 0)").
				Bind(dbx.Params{"id": fmt.Sprint("new", i), "chat": chat, "at": at(100 + i), "seq": 100 + i}).Execute()
			if err != nil {
				return err
			}
		}
		return nil
	}))
	for perPage, want := range map[int]string{
		2: fmt.Sprintf("new%d new%d", maxFirst-1, maxFirst-2),
		4: fmt.Sprintf("new%d new%d m4 m3", maxFirst-1, maxFirst-2),
	} {
		page, err := list(t.Context(), t, db, "messages", requestOf("ann"),
			Query{Sort: "-created", PerPage: perPage, SkipTotal: true})
		is.NoErr(err)
		is.Equal(ids(page.Items), want)
	}
}
