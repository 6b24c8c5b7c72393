package query

import (
	"testing"

	"github.com/matryer/is"
)

// filters lists filters and the ids that match. The caller is a superuser, unless the row names another in who.
var filters = []struct{ collection, who, filter, want string }{
	// every operator
	{"chats", "super", `title = "Gamma"`, "c3"},
	{"chats", "super", `title='Gamma'`, "c3"},
	{"chats", "super", `"Gamma" = title`, "c3"},
	{"chats", "super", `title != "Gamma"`, "c1 c2 c4"},
	{"chats", "super", `title = "gamma"`, ""},
	{"chats", "super", `n > 2`, "c3 c4"},
	{"chats", "super", `n >= 2`, "c2 c3 c4"},
	{"chats", "super", `n < 2`, "c1"},
	{"chats", "super", `n <= 2`, "c1 c2"},
	{"chats", "super", `n = 1.5`, "c1"},
	{"chats", "super", `n > -1`, "c1 c2 c3 c4"},
	{"chats", "super", `n != 1.5`, "c2 c3 c4"},
	{"chats", "super", `title ~ "AMM"`, "c3"},
	{"chats", "super", `title ~ "gam%"`, "c3"},
	{"chats", "super", `title ~ "amm%"`, ""},
	{"chats", "super", `title !~ "MM"`, "c1 c2 c4"},
	{"chats", "super", `title ~ "a_two"`, "c2"},
	{"chats", "super", `title ~ "a_a"`, ""},
	{"chats", "super", `title ~ "100\%"`, "c1"},
	{"chats", "super", `title ~ "\\"`, "c4"},
	{"chats", "super", `title ~ ""`, "c1 c2 c3 c4"},
	{"chats", "super", `"Gamma ray" ~ title`, "c3"},
	{"chats", "super", `n ~ 1.5`, "c1"},
	{"chats", "super", `title ?= "Gamma"`, "c3"},
	{"chats", "super", `title ?!= "Gamma"`, "c1 c2 c4"},
	{"chats", "super", `title ?~ "amm"`, "c3"},
	{"chats", "super", `title ?!~ "mm"`, "c1 c2 c4"},
	{"chats", "super", `n ?> 2`, "c3 c4"},
	{"chats", "super", `n ?>= 3`, "c3 c4"},
	{"chats", "super", `n ?< 2`, "c1"},
	{"chats", "super", `n ?<= 2`, "c1 c2"},
	// joins, groups, comments
	{"chats", "super", `n > 1 && n < 3`, "c1 c2"},
	{"chats", "super", `n < 2 || n > 3`, "c1 c4"},
	{"chats", "super", `n = 1.5 || n = 2 && archived = false`, "c1"},
	{"chats", "super", `(n = 1.5 || n = 2) && archived = true`, "c2"},
	{"chats", "super", `((((n=1.5))))`, "c1"},
	{"chats", "super", "n = 2 // the second\n", "c2"},
	{"chats", "super", "// which\nn = 2", "c2"},
	{"chats", "super", `1 = 1`, "c1 c2 c3 c4"},
	{"chats", "super", `1 = 2`, ""},
	// quotes
	{"chats", "super", `title = 'O\'Brien "quoted" \\ back'`, "c4"},
	{"chats", "super", `title = "O'Brien \"quoted\" \\ back"`, "c4"},
	// booleans and null
	{"chats", "super", `archived = true`, "c2"},
	{"chats", "super", `archived != true`, "c1 c3 c4"},
	{"chats", "super", `archived = false`, "c1 c3 c4"},
	{"chats", "super", `archived = TRUE`, "c2"},
	{"chats", "super", `user = null`, "c4"},
	{"chats", "super", `user = ""`, "c4"},
	{"chats", "super", `"" = user`, "c4"},
	{"chats", "super", `user != null`, "c1 c2 c3"},
	{"chats", "super", `user != ""`, "c1 c2 c3"},
	{"chats", "super", `null != user`, "c1 c2 c3"},
	{"chats", "super", `null = ""`, "c1 c2 c3 c4"},
	{"chats", "super", `null != ""`, ""},
	{"chats", "super", `user = title`, ""},
	{"chats", "super", `user != title`, "c1 c2 c3 c4"},
	{"agents", "super", `on = false`, "a2"},
	{"agents", "super", `on = true`, "a1"},
	{"agents", "super", `temperature < 0.1`, "a2"},
	{"agents", "super", `prompt = ""`, "a2"},
	{"agents", "super", `prompt !~ "p"`, "a2"},
	// every collection has these
	{"chats", "super", `id = "c2"`, "c2"},
	{"chats", "super", `created > "2026-03-04 12:00:11.999Z"`, "c3 c4"},
	{"agents", "super", `id = "a1" && updated != ""`, "a1"},
	// JSON
	{"permissions", "super", `metadata.command = "ls"`, "q2"},
	{"permissions", "super", `metadata.command ~ "rm"`, "q1"},
	{"permissions", "super", `metadata.n > 9`, "q1"},
	{"permissions", "super", `metadata.n >= 9`, "q1 q2"},
	{"permissions", "super", `metadata.flag = true`, "q2"},
	{"permissions", "super", `metadata.none = null`, "q1 q2 q3 q4"},
	{"permissions", "super", `metadata.flag != null`, "q2"},
	{"permissions", "super", `metadata.deep.a.1.b = "x"`, "q1"},
	{"permissions", "super", `metadata.deep.a.0 = 1`, "q1"},
	{"permissions", "super", `metadata.deep.a.99999999999999999999 = 1`, ""},
	{"permissions", "super", `patterns.0 = "cat"`, "q3"},
	{"permissions", "super", `patterns ~ "rm"`, "q1"},
	{"permissions", "super", `patterns = "plain"`, "q4"},
	{"permissions", "super", `patterns:length = 2`, "q1"},
	{"permissions", "super", `patterns:length = 0`, "q2"},
	{"permissions", "super", `patterns:each = "ls"`, ""},
	{"permissions", "super", `patterns:each ?= "ls"`, "q1"},
	{"permissions", "super", `metadata = "broken{"`, "q4"},
	{"messages", "super", `error.name = "Boom"`, "m3"},
	{"messages", "super", `error.code = 7`, "m3"},
	{"messages", "super", `error = "not json"`, "m6"},
	{"agents", "super", `notes.k.1 = 2`, "a1"},
	{"messages", "super", `parts.1.text ~ "bold"`, "m1"},
	// relations
	{"messages", "super", `chat = "c3"`, "m5 m6"},
	{"messages", "super", `chat.id = "c3"`, "m5 m6"},
	{"messages", "super", `chat.title = "Gamma"`, "m5 m6"},
	{"messages", "super", `chat.user = "ann"`, "m1 m2 m3 m4"},
	{"messages", "super", `chat.user.email = "bob@x.org"`, "m5 m6"},
	{"messages", "super", `chat.user.email = ""`, "m7"},
	{"messages", "super", `chat.user.name != "Ann"`, "m5 m6 m7"},
	{"messages", "super", `chat.user.favourite.user.name = "Bob"`, "m5 m6"},
	{"agents", "super", `prompt.body = "Do."`, "a1"},
	{"agents", "super", `prompt.body != "Do."`, "a2"},
	{"messages", "super", `chat.title = chat.title`, "m1 m2 m3 m4 m5 m6 m7"},
	// back-relations: without ? every related record must match
	{"chats", "super", `messages_via_chat.role ?= "assistant"`, "c1"},
	{"chats", "super", `messages_via_chat.role = "assistant"`, ""},
	{"chats", "super", `messages_via_chat.role = "user"`, "c2 c3 c4"},
	{"chats", "super", `messages_via_chat.role ?= "user"`, "c1 c2 c3 c4"},
	{"chats", "super", `messages_via_chat.role != "assistant"`, "c2 c3 c4"},
	{"chats", "super", `messages_via_chat.role ?!= "assistant"`, "c1 c2 c3 c4"},
	{"chats", "super", `messages_via_chat.status ?= "gone"`, ""},
	{"chats", "super", `permissions_via_chat.status = ""`, "c4"},
	{"chats", "super", `permissions_via_chat.status != "draft"`, "c2 c4"},
	{"chats", "super", `permissions_via_chat.metadata.n ?> 9`, "c1"},
	{"chats", "super", `permissions_via_chat.metadata.n > 8`, "c1"},
	{"chats", "super", `permissions_via_chat.id ?= "q3"`, "c3"},
	// of the same message
	{"chats", "super", `messages_via_chat.role ?= "assistant" && messages_via_chat.status ?= "delivered"`, ""},
	{"chats", "super", `messages_via_chat.role ?= "assistant" && messages_via_chat.status ?= "failed"`, "c1"},
	{"chats", "super", `messages_via_chat.role ?= "assistant" || title = "Gamma"`, "c1 c3"},
	{"chats", "super", `title ~ "a" && messages_via_chat.role ?= "assistant"`, "c1"},
	{"chats", "super", `messages_via_chat.role = permissions_via_chat.status`, ""},
	{"chats", "super", `messages_via_chat.status ?= messages_via_chat.status`, "c1 c2 c3 c4"},
	{"chats", "super", `messages_via_chat.status = messages_via_chat.status`, "c2 c4"},
	{"chats", "super", `title ?!= messages_via_chat.role`, "c1 c2 c3 c4"},
	{"chats", "super", `title != messages_via_chat.role`, "c1 c2 c3 c4"},
	{"users", "super", `chats_via_user.messages_via_chat.status ?= "pending"`, "bob"},
	{"users", "super", `chats_via_user.messages_via_chat.role = "user"`, "bob"},
	{"users", "super", `chats_via_user.id ?!= ""`, "ann bob"},
	{"messages", "super", `chat.permissions_via_chat.status ?= "denied"`, "m4"},
	// lists
	{"docs", "super", `tags ~ "blue"`, "d1"},
	{"docs", "super", `tags:length > 1`, "d1"},
	{"docs", "super", `tags:length = 0`, "d3"},
	{"docs", "super", `tags:each = "red"`, "d2"},
	{"docs", "super", `tags:each ?= "red"`, "d1 d2"},
	{"docs", "super", `tags:each != "red"`, "d3"},
	{"docs", "super", `tags:each ~ "r%"`, "d2"},
	{"docs", "super", `readers ?~ "bob"`, "d1"},
	{"docs", "super", `readers:length = 2`, "d1"},
	{"users", "super", `docs_via_owner.title ?= "one"`, "ann"},
	// modifiers
	{"chats", "super", `title:lower = "gamma"`, "c3"},
	{"chats", "super", `title:length = "Gamma"`, "c3"}, // no list: the modifier is ignored
	{"messages", "super", `chat.title:lower ~ "gamma"`, "m5 m6"},
	{"chats", "super", `messages_via_chat.role:lower ?= "assistant"`, "c1"},
	// the request
	{"chats", "ann", `user = @request.auth.id`, "c1 c2"},
	{"chats", "ann", `user.name = @request.auth.name`, "c1 c2"},
	{"chats", "ann", `@request.auth.collectionName = "users" && @request.auth.collectionId = "pbc_users"`, "c1 c2"},
	{"chats", "super", `@request.auth.id = ""`, "c1 c2 c3 c4"},
	// any record of a collection
	{"chats", "super", `@collection.users.id ?= user && @collection.users.name ?= "Bob"`, "c3"},
	{"chats", "super", `@collection.users.name = "Bob"`, ""},
	{"chats", "super", `@collection.users:one.name ?= "Bob" && @collection.users:two.name ?= "Ann" && title = "Gamma"`, "c3"},
	{"chats", "super", `@collection.users.name ?= "Bob" && @collection.users.name ?= "Ann"`, ""},
	{"chats", "super", `@collection.messages.chat ?= id && @collection.messages.status ?= "pending"`, "c3"},
	// dates
	{"chats", "super", `created > @now`, "c1 c2 c3 c4"},
	{"chats", "super", `created > @yesterday && created < @tomorrow`, "c1 c2 c3 c4"},
	{"chats", "super", `created >= @todayStart && created <= @todayEnd`, "c1 c2 c3 c4"},
	{"chats", "super", `created >= @monthStart && created <= @monthEnd && created >= @yearStart && created <= @yearEnd`, "c1 c2 c3 c4"},
	{"chats", "super", `@year = 2026 && @month = 3 && @day = 4 && @weekday = 3 && @hour = 12 && @minute = 0 && @second = 0`, "c1 c2 c3 c4"},
	{"chats", "super", `@yearEnd = "2026-12-31 23:59:59.999Z" && @monthEnd = "2026-03-31 23:59:59.999Z"`, "c1 c2 c3 c4"},
	{"chats", "super", `strftime("%S", created) = "12"`, "c3"},
	{"chats", "super", `strftime('%Y-%m', created, '+1 months') = '2026-04'`, "c1 c2 c3 c4"},
	{"chats", "super", `strftime("%H") = "12"`, "c1 c2 c3 c4"},
	{"chats", "super", `strftime("%Y", title) = ""`, "c1 c2 c3 c4"},
	{"chats", "super", `strftime("%S", messages_via_chat.created) = "24"`, "c3"},
	{"chats", "super", `strftime("%S", messages_via_chat.created) ?= "22"`, "c1 c2"},
	// aliases
	{"sandbox_agents", "super", `chat.title = ""`, ""},
	{"chats", "super", `sandbox_agents_via_chat.id = null`, "c1 c2 c3 c4"},
}

func TestFiltersMatchAsInPocketBase(t *testing.T) {
	t.Parallel()
	db := open(t)
	for _, f := range filters {
		page, err := list(t.Context(), t, db, f.collection, requestOf(f.who), Query{Filter: f.filter})
		if err != nil {
			t.Errorf("%s by %q: %s: %v", f.collection, f.who, f.filter, err)
			continue
		}
		if got := ids(page.Items); got != f.want {
			t.Errorf("%s by %q: %s\n got %q\nwant %q", f.collection, f.who, f.filter, got, f.want)
		}
		if page.TotalItems != len(page.Items) {
			t.Errorf("%s: %s counts %d", f.collection, f.filter, page.TotalItems)
		}
	}
}

func TestInvalidFiltersAreRefused(t *testing.T) {
	t.Parallel()
	db := open(t)
	for _, f := range []struct{ who, filter, code string }{
		{"ann", `nothing = 1`, "unknown_field"}, {"ann", `chat.nothing = 1`, "unknown_field"}, {"ann", `title.x = 1`, "unknown_field"},
		{"ann", `title`, "invalid_syntax"}, {"ann", `title = `, "invalid_syntax"}, {"ann", `= 1`, "invalid_syntax"}, {"ann", `title == 1`, "invalid_syntax"},
		{"ann", `title = "x`, "invalid_syntax"}, {"ann", `(title = 1`, "invalid_syntax"}, {"ann", `   `, "invalid_syntax"}, {"ann", `// only`, "invalid_syntax"},
		{"ann", `title = 1 & title = 2`, "invalid_syntax"}, {"ann", `title = 1 title = 2`, "invalid_syntax"}, {"ann", "title = 1\x00 || 1 = 1", "invalid_text"},
		{"ann", "title = '\xff'", "invalid_text"}, {"ann", `title:upper = 1`, "unknown_modifier"}, {"ann", `@nothing = 1`, "unknown_field"},
		{"ann", `@request.nothing = 1`, "unknown_field"}, {"ann", `@collection.nothing.id = 1`, "unknown_field"}, {"ann", `@collection.users = 1`, "unknown_field"},
		{"ann", `nothing_via_chat.id = 1`, "unknown_field"}, {"ann", `messages_via_role.id = 1`, "unknown_field"}, {"ann", `#title = 1`, "unknown_field"},
		{"ann", `drop(title) = 1`, "unknown_function"}, {"ann", `@request.method = "GET"`, "unknown_field"}, {"ann", `@request.auth.nothing = 1`, "unknown_field"},
		{"ann", `strftime() = 1`, "invalid_arguments"}, {"ann", `strftime(title) = 1`, "invalid_arguments"}, {"ann", `strftime("%Y","now","a","a","a","a","a","a","a","a","a") = 1`, "invalid_arguments"},
		{"ann", `user.keys_via_user.value ?= "sesame"`, "not_allowed"}, {"ann", `@collection.keys.value ?= "sesame"`, "not_allowed"},
	} {
		is := is.New(t)
		_, err := list(t.Context(), t, db, "chats", requestOf(f.who), Query{Filter: f.filter})
		i, ok := err.(Invalid)
		if !ok {
			t.Errorf("%s: got %v", f.filter, err)
			continue
		}
		is.Equal(i.Field, "filter")
		if i.Code != f.code || i.Message == "" {
			t.Errorf("%s: got %s %q, want %s", f.filter, i.Code, i.Message, f.code)
		}
	}
}
