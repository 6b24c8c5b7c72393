package query

import (
	"errors"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers/record"
)

func TestListFollowsTheListRules(t *testing.T) {
	t.Parallel()
	db := open(t)
	for _, c := range []struct{ collection, who, filter, want string }{
		{"chats", "ann", "", "c1 c2"}, {"chats", "bob", "", "c3"}, {"chats", "root", "", "c1 c2 c3 c4"}, {"chats", "bot", "", ""},
		{"chats", "", "", ""}, // nor the chat without an owner
		{"messages", "ann", "", "m1 m2 m3 m4"}, {"messages", "bob", "", "m5 m6"}, {"messages", "", "", ""}, {"messages", "root", "", "m1 m2 m3 m4 m5 m6 m7"},
		{"users", "ann", "", "ann"}, {"users", "", "", ""}, {"agents", "ann", "", "a1 a2"}, {"agents", "", "", ""},
		{"docs", "ann", "", "d1 d2"}, {"docs", "bob", "", "d1 d2 d3"}, {"docs", "", "", ""},
		{"messages", "ann", `chat = "c3"`, ""}, {"messages", "ann", `1 = 1 || id != ""`, "m1 m2 m3 m4"}, {"messages", "bob", `role = "user" || role = "assistant"`, "m5 m6"},
	} {
		page, err := list(t.Context(), t, db, c.collection, requestOf(c.who), Query{Filter: c.filter})
		if err != nil || ids(page.Items) != c.want {
			t.Errorf("%s for %q, %q: got %q, %v, want %q", c.collection, c.who, c.filter, ids(page.Items), err, c.want)
		}
	}
	_, err := list(t.Context(), t, db, "keys", requestOf("root"), Query{})
	if !errors.Is(err, ErrSuperusers) {
		t.Errorf("keys: got %v", err)
	}
}

// Ann owns document d1 and reads d2. Both name Bob. No filter or sort reveals records that she may not list.
func TestFilterRevealsNothingOfHiddenRecords(t *testing.T) {
	t.Parallel()
	db := open(t)
	for _, c := range []struct{ collection, filter, want string }{
		{"docs", `owner.name = "Bob"`, ""}, {"docs", `owner.name = "Ann"`, "d1"}, {"docs", `owner.email ~ "b%"`, ""},
		{"docs", `owner.name = ""`, "d2"}, // as if Bob did not exist
		{"docs", `owner.chats_via_user.messages_via_chat.status ?= "pending"`, ""},
		{"users", `docs_via_owner.title ?= "one"`, "ann"},
		{"chats", `@collection.users.name ?= "Bob"`, ""}, {"chats", `@collection.chats.title ?= "Gamma"`, ""}, {"chats", `@collection.messages.status ?= "pending"`, ""},
		{"chats", `@collection.chats.title ?= "beta_two"`, "c1 c2"}, {"chats", `@collection.docs.owner.name ?= "Bob"`, ""},
		{"chats", `@collection.users.chats_via_user.title ?= "Gamma"`, ""}, {"messages", `chat.title = "Gamma"`, ""},
	} {
		page, err := list(t.Context(), t, db, c.collection, requestOf("ann"), Query{Filter: c.filter})
		if err != nil || ids(page.Items) != c.want {
			t.Errorf("%s, %s: got %q, %v, want %q", c.collection, c.filter, ids(page.Items), err, c.want)
		}
	}
	// Bob's name would sort d2 behind d1
	page, err := list(t.Context(), t, db, "docs", requestOf("ann"), Query{Sort: "owner.name"})
	if err != nil || ids(page.Items) != "d2 d1" {
		t.Errorf("sorted: %q, %v", ids(page.Items), err)
	}
}

func TestViewFollowsTheViewRules(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	db, cat := open(t), testCatalogue()
	r, err := View(t.Context(), db, cat, get(t, "messages"), "m3", requestOf("ann"), Query{})
	is.NoErr(err)
	is.Equal(r.ID(), "m3")
	is.Equal(r.Get("status"), "failed")
	for _, id := range []string{"m5", "m8", "nothing", "", "m3' OR '1'='1"} {
		_, err = View(t.Context(), db, cat, get(t, "messages"), id, requestOf("ann"), Query{})
		is.True(errors.Is(err, ErrNotFound)) // of others, removed, or not there
	}
	_, err = View(t.Context(), db, cat, get(t, "keys"), "k1", requestOf("ann"), Query{})
	is.True(errors.Is(err, ErrSuperusers))
	r, err = View(t.Context(), db, cat, get(t, "keys"), "k1", requestOf("super"), Query{})
	is.NoErr(err)
	is.Equal(r.Get("value"), "sesame")
	_, err = View(t.Context(), db, cat, get(t, "agents"), "d1", requestOf("super"), Query{})
	is.True(errors.Is(err, ErrNotFound)) // in the same table, of another collection
}

func TestAllowedFollowsTheRules(t *testing.T) {
	t.Parallel()
	db, cat := open(t), testCatalogue()
	for _, c := range []struct {
		collection, id, who string
		rule                *string
		want                bool
	}{
		{"messages", "m1", "ann", chatOwnerOnly, true}, {"messages", "m1", "bob", chatOwnerOnly, false}, {"messages", "m1", "", chatOwnerOnly, false},
		{"messages", "m1", "bob", public, true}, {"messages", "m8", "ann", chatOwnerOnly, false}, {"messages", "no", "ann", public, false},
		{"messages", "m1", "ann", nil, false}, {"messages", "m1", "super", nil, true}, {"messages", "no", "super", nil, false},
		{"permissions", "q1", "ann", record.Rule(`status = "draft" && chat.user = @request.auth.id`), true},
		{"permissions", "q4", "ann", record.Rule(`status = "draft" && chat.user = @request.auth.id`), false},
		{"chats", "c4", "", record.Rule(`user = @request.auth.id`), false}, // a guest is no owner
		{"chats", "c4", "", record.Rule(`@request.auth.id = ""`), true},
		{"chats", "c4", "", record.Rule(`@request.auth.id = user`), false},
	} {
		got, err := Allowed(t.Context(), db, cat, get(t, c.collection), c.id, c.rule, requestOf(c.who))
		if err != nil || got != c.want {
			t.Errorf("%s %s by %q with %v: got %v, %v", c.collection, c.id, c.who, c.rule, got, err)
		}
	}
	_, err := Allowed(t.Context(), db, cat, get(t, "chats"), "c1", record.Rule("nothing = 1"), requestOf("ann"))
	var i Invalid
	if err == nil || errors.As(err, &i) {
		t.Errorf("a mistake in a rule is not the client's: %v", err)
	}
}

func TestAllowedNewFollowsTheRules(t *testing.T) {
	t.Parallel()
	db, cat := open(t), testCatalogue()
	for _, c := range []struct {
		collection, who, rule string
		values                map[string]any
		want                  bool
	}{
		{"messages", "ann", *chatOwnerOnly, map[string]any{"chat": "c1"}, true}, {"messages", "bob", *chatOwnerOnly, map[string]any{"chat": "c1"}, false},
		{"messages", "", *chatOwnerOnly, map[string]any{"chat": "c4"}, false}, {"messages", "ann", *chatOwnerOnly, map[string]any{}, false},
		{"messages", "ann", *chatOwnerOnly, map[string]any{"chat": "c5"}, false}, // removed
		{"messages", "ann", *chatOwnerOnly, map[string]any{"chat": []any{"c1"}}, false}, {"messages", "ann", *chatOwnerOnly, map[string]any{"chat": nil}, false},
		{"messages", "ann", `role = "user" && chat.user = @request.auth.id`, map[string]any{"chat": "c1", "role": "assistant"}, false},
		{"messages", "ann", `parts.0.text = "hi"`, map[string]any{"parts": []any{map[string]any{"text": "hi"}}}, true},
		{"chats", "ann", *ownerOnly, map[string]any{"user": "ann", "title": "'; DROP TABLE chats; --"}, true}, {"chats", "ann", *ownerOnly, map[string]any{"user": "bob"}, false},
		{"chats", "ann", `archived = false && n = 0 && title = ""`, map[string]any{}, true}, {"chats", "ann", `archived = true && n > 1`, map[string]any{"archived": true, "n": 2.5}, true},
		{"chats", "ann", `id = "new" && created != ""`, map[string]any{"id": "new"}, true},
		{"chats", "ann", `@collection.chats.id ?= id`, map[string]any{"id": "c1"}, true}, {"chats", "ann", `@collection.chats.id ?= id`, map[string]any{"id": "c9"}, false},
		{"docs", "ann", `readers:each ?= "bob" && tags:length = 1`, map[string]any{"readers": []any{"ann", "bob"}, "tags": []any{"red"}}, true},
		{"agents", "ann", `prompt.body = "Do."`, map[string]any{"prompt": "p1"}, true}, {"chats", "ann", "", nil, true},
	} {
		got, err := AllowedNew(t.Context(), db, cat, get(t, c.collection), c.values, &c.rule, requestOf(c.who))
		if err != nil || got != c.want {
			t.Errorf("%s by %q, %s with %v: got %v, %v", c.collection, c.who, c.rule, c.values, got, err)
		}
	}
	is := is.New(t)
	got, err := AllowedNew(t.Context(), db, cat, get(t, "chats"), nil, nil, requestOf("ann"))
	is.NoErr(err)
	is.True(!got)
	got, err = AllowedNew(t.Context(), db, cat, get(t, "chats"), nil, nil, requestOf("super"))
	is.NoErr(err)
	is.True(got)
}

func TestChangedIncludesRemovedRecords(t *testing.T) {
	t.Parallel()
	db, cat := open(t), testCatalogue()
	for _, c := range []struct {
		who, filter string
		ids         []string
		since       int64
		limit       int
		want        string
	}{
		{"ann", "", nil, 0, 100, "m1 m2 m3 m4 m8"}, {"bob", "", nil, 0, 100, "m5 m6"}, {"ann", "", nil, 42, 100, "m4 m8"}, {"ann", "", nil, 0, 2, "m1 m2"},
		{"ann", `role = "user"`, nil, 0, 100, "m1 m4 m8"}, {"ann", "", []string{"m2", "m8", "m5", "x' OR 1"}, 0, 100, "m2 m8"}, {"ann", "", []string{}, 0, 100, ""},
		{"super", "", nil, 45, 100, "m7 m8"}, {"", "", nil, 0, 100, ""},
	} {
		changes, err := Changed(t.Context(), db, cat, get(t, "messages"), requestOf(c.who), chatOwnerOnly,
			Query{Filter: c.filter},
			c.ids, c.since, c.limit)
		if err != nil {
			t.Fatal(err)
		}
		var found []Record
		for _, change := range changes {
			found = append(found, change.Record)
			if change.Removed != (change.ID == "m8") || change.Last-change.First != 20 {
				t.Errorf("%+v", change)
			}
		}
		if ids(found) != c.want {
			t.Errorf("%+v: got %q", c, ids(found))
		}
	}
	is := is.New(t)
	changes, err := Changed(t.Context(), db, cat, get(t, "chats"), requestOf("ann"), ownerOnly, Query{}, nil, 33, 10)
	is.NoErr(err)
	is.Equal(len(changes), 1) // the removed chat
	is.True(changes[0].Removed)
	_, err = Changed(t.Context(), db, cat, get(t, "keys"), requestOf("ann"), nil, Query{}, nil, 0, 10)
	is.True(errors.Is(err, ErrSuperusers))
}
