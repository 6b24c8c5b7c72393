package projections_test

import (
	"encoding/xml"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/matryer/is"
	"pgregory.net/rapid"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
	"pocketcoder/projections/projectionstest"
)

func TestContextNamesChatPersonAgentAndWorkspace(t *testing.T) {
	t.Parallel()
	exact, half := 0.0, 0.5
	for want, c := range map[string]projections.TurnContext{
		`<context/>`: {},
		`<context chat="fix &lt;b&gt; &amp; &#34;q&#34;" person="Ada" agent="Reviewer" workspace="/work/shop"/>`: {
			Chat: "fix <b>\n& \"q\"\u202e", Person: "Ada", Agent: "Reviewer", Workspace: "/work/shop",
		},
		`<context chat="` + strings.Repeat("t", 76) + `…" person="Ada" workspace="…` + strings.Repeat("d", 71) + `/shop"/>`: {
			Chat: strings.Repeat("t", 300), Person: "Ada", Workspace: "/" + strings.Repeat("d", 300) + "/shop",
		},
		`<context agent="Reviewer" temperature="0" top_p="0.5"/>`: {Agent: "Reviewer", Temperature: &exact, TopP: &half},
	} {
		is.New(t).Equal(c.String(), want)
	}
}

func TestContextIsShortAndWellFormed(t *testing.T) {
	t.Parallel()
	expect.Property(t, func(r *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[<>&"'a-z ]{0,400}`))
		c := projections.TurnContext{Chat: text.Draw(r, "chat"), Person: text.Draw(r, "person"), Agent: text.Draw(r, "agent"),
			Workspace: text.Draw(r, "workspace")}
		s := c.String()
		if n := utf8.RuneCountInString(s); n >= 200 {
			r.Fatalf("%d characters: %s", n, s)
		}
		var element struct {
			XMLName xml.Name   `xml:"context"`
			Attrs   []xml.Attr `xml:",any,attr"`
		}
		if err := xml.Unmarshal([]byte(s), &element); err != nil || strings.Count(s, "<") != 1 {
			r.Fatalf("%v: %s", err, s)
		}
	})
}

func TestContextOfAChatHasItsTitleAndItsOwner(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	server := eventstest.Server(t, expect.MemoryDir(t))
	log := eventstest.Open(t, eventstest.Conn(t, server))
	m, err := projectionstest.Open(t.Context(), expect.MemoryDir(t), log)
	is.NoErr(err)
	defer m.Close()
	go m.Run(t.Context())
	store := func(e events.Event, err error) {
		t.Helper()
		is.NoErr(err)
		seq, err := log.Append(t.Context(), e)
		is.NoErr(err)
		is.NoErr(m.Wait(t.Context(), seq))
	}
	for _, chat := range []struct{ id, user, name string }{
		{"named", "u1", "Ada"}, {"unnamed", "u2", ""}, {"nobodys", "", ""}, {"delegate", "", ""},
	} {
		if chat.user != "" {
			store(events.NewUser(chat.user, events.ActorSystem,
				events.AccountCreated{Email: chat.user + "@example.org", Name: chat.name, Role: "user"}))
		}
		created := events.ChatCreated{Title: "title of " + chat.id, User: chat.user}
		if chat.id == "delegate" {
			created.Parent = &events.Parent{Chat: "named", Root: "named", Depth: 1}
		}
		store(events.New(chat.id, events.ActorSystem, created))
	}
	parts := []events.Part{{Type: "text", Text: "hello"}}
	store(events.New("named", events.UserActor("u1"), events.MessageSubmitted{Message: "said", Parts: parts,
		Origin: &events.Origin{Channel: "ch1", Name: "phone", Sender: "Bob"}}))
	store(events.NewConfig("schedules", "s1", events.UserActor("u1"), events.Saved{Fields: []byte(`{"name":"Nightly"}`)}))
	store(events.New("named", events.ActorSystem, events.MessageSubmitted{Message: "due", Parts: parts, Schedule: "s1"}))
	for of, want := range map[[2]string]string{
		{"named", ""}:     `<context chat="title of named" person="Ada"/>`,
		{"unnamed", ""}:   `<context chat="title of unnamed" person="u2"/>`,
		{"nobodys", ""}:   `<context chat="title of nobodys"/>`,
		{"delegate", ""}:  `<context chat="title of delegate" parent="title of named"/>`,
		{"named", "said"}: `<context chat="title of named" person="Ada" channel="phone" speaker="Bob"/>`,
		{"named", "due"}:  `<context chat="title of named" person="Ada" schedule="Nightly"/>`,
	} {
		c, err := m.TurnContext(t.Context(), of[0], of[1])
		is.NoErr(err)
		is.Equal(c.String(), want)
	}
}
