package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/opencode"
	"pocketcoder/expect"
	"pocketcoder/projections"
	"pocketcoder/projections/spending"
)

// titled waits until a chat has a title other than its first words.
func (p *process) titled(t *testing.T, chat string) (c projections.Chat) {
	t.Helper()
	expect.Eventually(t, "the chat has a title", func() bool {
		c = p.row(t, chat)
		return c.Title != events.DefaultTitle && !strings.HasPrefix(c.Title, "@@")
	})
	return c
}

// untitledScript is a message whose first words are not the title that the demo model finds for it. The answer takes
// 300 tokens.
const untitledScript = "@@usage in=200 out=100\n@@say done\nMend the login page"

func TestAChatWithoutATitleGetsThatOfTheTitleAgent(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := openSystem.system(t)
	admin := p.admin(t)
	chat := admin.create(t, "chats", record{})
	is.Equal(p.row(t, chat).Title, events.DefaultTitle)
	admin.say(t, chat, untitledScript)
	is.Equal(p.row(t, chat).Title, "@@usage in=200 out=100") // until there is another
	is.Equal(p.titled(t, chat).Title, "Mend the login page")
	p.turnEnds(t, chat)

	counted := p.event(t, chat, events.TitleGenerated{}.Kind(), nil)
	var title events.TitleGenerated
	decode(t, string(counted.Data), &title)
	is.Equal([]string{title.Provider, title.Model}, []string{"demo", "demo"})
	is.True(title.Input > 100 && title.Output > 0 && title.Input < 2000) // without the prompt of the answering agent
	spent := func() (s spending.Spending) {
		is.NoErr(p.Query(t.Context(), "spent", map[string]any{"chat": chat}, &s))
		return s
	}
	is.Equal(spent().Tokens, 300+title.Input+title.Output)
	cost := float64(300+title.Input+title.Output) * pricePerMillion / 1e6
	is.True(spent().Cost > cost-1e-9 && spent().Cost < cost+1e-9)

	admin.say(t, chat, "@@usage in=1\n@@say again\nAnother topic") // the title is requested once
	p.turnEnds(t, chat)
	is.Equal(p.row(t, chat).Title, "Mend the login page")
	is.Equal(spent().Tokens, 301+title.Input+title.Output)
	is.Equal(p.countEvents(t, chat)[counted.Subject.Kind], 1)

	var forked record
	admin.must(t, "POST", "/api/pocketcoder/chats/"+chat+"/fork", record{}, &forked)
	fork := forked["id"].(string)
	expect.Eventually(t, "the fork has the history", func() bool { return strings.Contains(p.text(t, fork), "again") })
	admin.say(t, fork, "@@usage in=1\n@@say third")
	p.turnEnds(t, fork)
	is.Equal(p.row(t, fork).Title, "Mend the login page (fork)")
	is.Equal(p.countEvents(t, fork)[counted.Subject.Kind], 0)
}

func TestThePersonsTitleStays(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := openSystem.system(t)
	admin := p.admin(t)
	given := admin.create(t, "chats", record{"title": "Mine"})
	admin.say(t, given, untitledScript)
	p.turnEnds(t, given)
	renamed := admin.create(t, "chats", record{})
	admin.must(t, "PATCH", "/api/collections/chats/records/"+renamed, record{"title": "Mine too"}, nil)
	admin.say(t, renamed, untitledScript)
	p.turnEnds(t, renamed)
	for _, chat := range []string{given, renamed} {
		is.Equal(p.countEvents(t, chat)["title.generated"], 0) // none was requested
	}

	later := admin.create(t, "chats", record{})
	admin.say(t, later, untitledScript)
	p.titled(t, later)
	admin.must(t, "PATCH", "/api/collections/chats/records/"+later, record{"title": "Mine at last"}, nil)
	admin.say(t, later, "@@usage in=1\n@@say again")
	p.turnEnds(t, later)
	is.Equal([]string{p.row(t, given).Title, p.row(t, renamed).Title, p.row(t, later).Title},
		[]string{"Mine", "Mine too", "Mine at last"})
}

// The titles that a chat had are in the log, so a replay would show them.
func TestOpenCodesDefaultTitleIsNeverShown(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := openSystem.system(t)
	admin := p.admin(t)
	chat := admin.create(t, "chats", record{})
	admin.say(t, chat, untitledScript)
	p.titled(t, chat)
	p.turnEnds(t, chat)
	var defaults, shown []string
	for _, e := range p.history(t, chat) {
		if d, err := events.Decode(e); err == nil {
			if o, ok := d.(events.OpenCode); ok && strings.HasPrefix(o.Type, "session.") {
				var s struct{ Info struct{ Title string } }
				decode(t, string(o.Properties), &s)
				if opencode.IsDefaultTitle(s.Info.Title) {
					defaults = append(defaults, s.Info.Title)
				}
			}
		}
		m := admin.moment(t, chat, e.Seq)
		shown = append(shown, m.Chat["title"].(string))
	}
	is.True(len(defaults) > 0) // OpenCode had one
	is.Equal(slices.Compact(shown), []string{events.DefaultTitle, "@@usage in=200 out=100", "Mend the login page"})
}
