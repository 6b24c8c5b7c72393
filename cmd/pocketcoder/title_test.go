package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/opencode"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
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
	spent := func() (s projections.Spending) {
		is.NoErr(p.Get(t.Context(), "/api/pocketcoder/spending?chat="+chat, &s))
		return s
	}
	is.Equal(spent().Tokens, 300+title.Input+title.Output)
	cost := float64(300+title.Input+title.Output) * pricePerMillion / 1e6
	is.True(spent().Cost > cost-1e-9 && spent().Cost < cost+1e-9)

	defaults := 0
	for _, e := range p.history(t, chat) { // OpenCode's own title is in the log, and a replay does not show it either
		var s struct{ Info struct{ Title string } }
		if strings.HasPrefix(e.Subject.Kind, "opencode.session.") && json.Unmarshal(e.Data, &s) == nil &&
			opencode.IsDefaultTitle(s.Info.Title) {
			var then struct{ Chat record }
			admin.must(t, "GET", fmt.Sprintf("/api/chats/%s/replay?at=%d", chat, e.Seq), nil, &then)
			is.Equal(then.Chat["title"], "@@usage in=200 out=100")
			defaults++
		}
	}
	is.True(defaults > 0)

	admin.must(t, "PATCH", recordPath("chats", chat), record{"title": "Mine"}, nil) // a person's title stays
	admin.say(t, chat, "@@usage in=1\n@@say again\nAnother topic")
	p.turnEnds(t, chat)
	is.Equal(p.row(t, chat).Title, "Mine")
	is.Equal(spent().Tokens, 301+title.Input+title.Output)
	is.Equal(p.countEvents(t, chat)[counted.Subject.Kind], 1) // the title is requested once

	var forked record
	admin.must(t, "POST", "/api/pocketcoder/chats/"+chat+"/fork", record{}, &forked)
	fork := forked["id"].(string)
	expect.Eventually(t, "the fork has the history", func() bool { return strings.Contains(p.text(t, fork), "again") })
	admin.say(t, fork, "@@usage in=1\n@@say third")
	p.turnEnds(t, fork)
	is.Equal(p.row(t, fork).Title, "Mine (fork)")
	is.Equal(p.countEvents(t, fork)[counted.Subject.Kind], 0)
}
