package schedule

import (
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/handlers"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/permission/permissiontest"
	"pocketcoder/handlers/record"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

func TestAPreviewShowsTheNextRunsAndWhatWouldHaveAsked(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := permissiontest.OpenGate(t)
	agent, _, err := g.Records.Save(t.Context(), record.Save{Collection: "ai_agents", New: true,
		Set: handlerstest.Fields(`{"name":"careful"}`)})
	is.NoErr(err)
	_, _, err = g.Records.Save(t.Context(), record.Save{Collection: "tool_permissions", New: true,
		Set: handlerstest.Fields(`{"agent":"` + agent + `","tool":"bash","pattern":"git push*","action":"deny"}`)})
	is.NoErr(err)
	_, _, err = g.Records.Save(t.Context(), record.Save{Collection: "tool_permissions", New: true,
		Set: handlerstest.Fields(`{"project":"app","tool":"bash","pattern":"make","action":"deny"}`)})
	is.NoErr(err)
	for id, c := range map[string]chat.Create{"c2": {User: "ann"}, "c3": {User: "ann", Agent: agent}} {
		c.Chat = id
		_, _, err := g.Chats.Create(t.Context(), c)
		is.NoErr(err)
	}
	handlerstest.Happened(t, g.Log, "c2", handlerstest.Bash("per_1", "make"), handlerstest.Bash("per_2", "make"),
		handlerstest.Bash("per_3", "git status"), handlerstest.Bash("per_4", "git push origin"))
	handlerstest.Happened(t, g.Log, "c3", handlerstest.Bash("per_5", "git push origin"))
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Bash("per_6", "rm -r x")) // another account's
	g.AwaitIdle()
	before, err := g.Log.Last(t.Context())
	is.NoErr(err)

	m, err := projections.Open(t.Context(), expect.MemoryDir(t), g.Log)
	is.NoErr(err)
	go m.Run(t.Context())
	is.NoErr(m.Wait(t.Context(), before))
	p := Previews{Gate: g.Gate, ChatsOf: m.ChatsOf}
	s := Schedule{Name: "a", Prompt: "p", Mode: "new", Cron: "30 12 * * *", TimeZone: "Europe/Berlin",
		User: "ann"}
	v, err := p.Of(t.Context(), s)
	is.NoErr(err)
	is.Equal([]any{len(v.Next), v.TimeZone, v.History.Scope}, []any{5, "Europe/Berlin", "account"})
	is.Equal(v.Next[0].Format("15:04"), "12:30") // there is no 02:30 when summer time begins
	is.True(v.Next[0].After(time.Now()))
	is.Equal([]int{v.History.Requests, v.History.Allowed, v.History.Asked, v.History.Denied}, []int{5, 1, 4, 0})
	is.Equal(v.History.Groups[0], Group{Type: "bash", Text: "git push origin", Count: 2, Action: "ask"})

	s.Project = "app"
	v, err = p.Of(t.Context(), s)
	is.NoErr(err)
	is.Equal([]int{v.History.Asked, v.History.Denied}, []int{2, 2})

	s.Agent, s.Project = agent, ""
	v, err = p.Of(t.Context(), s)
	is.NoErr(err)
	is.Equal([]any{v.History.Scope, v.History.Requests}, []any{"agent", 1})
	is.Equal(v.History.Groups[0], Group{Type: "bash", Text: "git push origin", Count: 1, Action: "deny",
		Rule: "deny bash: git push*"})

	s.Agent, s.Mode, s.Chat = "", "existing", "c2"
	v, err = p.Of(t.Context(), s)
	is.NoErr(err)
	is.Equal([]any{v.History.Scope, v.History.Requests, v.History.Asked}, []any{"chat", 4, 3})

	s.Cron = "0 0 30 2 *"
	_, err = p.Of(t.Context(), s)
	is.Equal(handlerstest.Refusal(t, err), handlers.Invalid)
}
