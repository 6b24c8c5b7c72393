package permission_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/permission/permissiontest"
	"pocketcoder/handlers/rule"
	"pocketcoder/ops/expect"
)

// asDelegate makes c1 a delegate of c2, which is a delegate of c3. Each has an agent: own, middle and top.
func asDelegate(t *testing.T, g *permissiontest.RunningGate) {
	t.Helper()
	for _, agent := range []string{"own", "middle", "top", "later"} {
		permissiontest.SaveRecord(t, g.Handlers, "ai_agents", agent, `{"name":"`+agent+`"}`)
	}
	delegate := func(parent, agent string) *events.Parent {
		return &events.Parent{Chat: parent, Root: "c3", Agent: agent}
	}
	handlerstest.Happened(t, g.Log, "c3", handlerstest.Fact{Data: events.ChatCreated{Agent: "top"}})
	handlerstest.Happened(t, g.Log, "c2", handlerstest.Fact{Data: events.ChatCreated{Agent: "middle",
		Parent: delegate("c3", "top")}})
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Fact{Data: events.ChatCreated{Agent: "own",
		Parent: delegate("c2", "middle")}})
}

func TestADelegateMayDoNothingThatItsParentsAgentMayNot(t *testing.T) {
	t.Parallel()
	rule := func(agent, action, pattern string) string {
		return `{"agent":"` + agent + `","tool":"bash","pattern":"` + pattern + `","action":"` + action + `","active":true}`
	}
	for name, c := range map[string]struct {
		rules []string
		want  string // of git status, which a rule of the start allows all agents
		why   string // a word of the reason
	}{
		"all may":                       {nil, "authorized", ""},
		"the parent may not":            {[]string{rule("middle", "deny", "git *")}, "denied", "the chat that delegated"},
		"a person decides for the root": {[]string{rule("top", "ask", "git *")}, "", "the chat that delegated"},
		"the root may not":              {[]string{rule("top", "deny", "git *"), rule("middle", "ask", "git *")}, "denied", "the chat that delegated"},
		"another agent may not":         {[]string{rule("later", "deny", "git *")}, "authorized", ""},
		"the parent's agent was chosen since": {[]string{rule("later", "deny", "git *"), "choose"}, "denied",
			"the chat that delegated"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			g := permissiontest.OpenGate(t)
			asDelegate(t, g)
			for i, fields := range c.rules {
				if fields == "choose" {
					later := "later"
					handlerstest.Happened(t, g.Log, "c2", handlerstest.Fact{Data: events.ChatUpdated{Agent: &later}})
					continue
				}
				permissiontest.SaveRecord(t, g.Handlers, "tool_permissions", "r"+string(rune('1'+i)), fields)
			}
			handlerstest.Happened(t, g.Log, "c1", handlerstest.Bash("per_1", "git status"))
			g.AwaitIdle()
			found, _ := g.Decisions("per_1")
			if c.want == "" {
				is.Equal(len(found), 0)
				is.True(strings.Contains(g.Referrals("per_1")[0].Reason, c.why))
				return
			}
			is.Equal(string(found[0].Decision), c.want)
			is.True(strings.Contains(found[0].Reason, c.why))
		})
	}
}

func TestAScheduledRunMayDoNothingThatTheChatOfItsAssistantMayNot(t *testing.T) {
	t.Parallel()
	rule := func(scope, action string) string {
		return `{` + scope + `,"tool":"bash","pattern":"git *","action":"` + action + `","active":true}`
	}
	for name, c := range map[string]struct {
		rule string
		want string // of git status, which a rule of the start allows all agents
	}{
		"all may":                           {rule(`"agent":"later"`, "deny"), "authorized"},
		"the agent that called may not":     {rule(`"agent":"middle"`, "deny"), "denied"},
		"the chat that called may not":      {rule(`"chat":"c2"`, "deny"), "denied"},
		"a person decides for that chat":    {rule(`"chat":"c2"`, "ask"), ""},
		"the agent that delegated may not":  {rule(`"agent":"top"`, "deny"), "denied"},
		"the subagent that called may not":  {rule(`"agent":"sub"`, "deny"), "denied"},
		"the agent that was chosen may not": {rule(`"agent":"chosen"`, "deny"), "denied"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			g := permissiontest.OpenGate(t)
			asDelegate(t, g)
			permissiontest.SaveRecord(t, g.Handlers, "ai_agents", "sub", `{"name":"explore"}`)
			permissiontest.SaveRecord(t, g.Handlers, "ai_agents", "chosen", `{"name":"chosen"}`)
			permissiontest.SaveRecord(t, g.Handlers, "tool_permissions", "r1", c.rule)
			chosen := "chosen"
			handlerstest.Happened(t, g.Log, "c2", handlerstest.Fact{Data: events.ChatUpdated{Agent: &chosen}})
			handlerstest.Happened(t, g.Log, "c1", handlerstest.Fact{Data: events.ChatCreated{
				Ceiling: &events.Ceiling{Chat: "c2", Root: "c3", Agent: "middle", Subagent: "explore"}}},
				handlerstest.Bash("per_1", "git status"))
			g.AwaitIdle()
			found, _ := g.Decisions("per_1")
			if c.want == "" {
				is.Equal(len(found), 0)
				expect.Contains(t, g.Referrals("per_1")[0].Reason, "the chat that delegated or scheduled this")
				return
			}
			is.Equal(len(found), 1)
			is.Equal(string(found[0].Decision), c.want)
		})
	}
}

// What is allowed to the parent's agent alone is not allowed to the delegate's.
func TestADelegateMayNotDoWhatOnlyItsParentMay(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := permissiontest.OpenGate(t)
	asDelegate(t, g)
	for _, chat := range []string{"c2", "c3"} {
		permissiontest.SaveRecord(t, g.Handlers, "tool_permissions", "r"+chat,
			`{"chat":"`+chat+`","tool":"bash","pattern":"make","action":"allow","active":true}`)
	}
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Bash("per_1", "make"))
	g.AwaitIdle()
	is.Equal(len(g.Referrals("per_1")), 1)
	permissiontest.SaveRecord(t, g.Handlers, "tool_permissions", "rc1",
		`{"chat":"c1","tool":"bash","pattern":"make","action":"allow","active":true}`)
	handlerstest.Await(t, g.Log, func(d events.PermissionDecided) bool { return d.Permission == "per_1" })
}

// OpenCode's subagents have no more than their own rules allow, and cannot get more by a delegate.
func TestADelegateMayDoNothingThatTheSubagentThatDelegatedMayNot(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := permissiontest.OpenGate(t)
	permissiontest.SaveRecord(t, g.Handlers, "ai_agents", "e", `{"name":"explore"}`)
	permissiontest.SaveRecord(t, g.Handlers, "tool_permissions", "r1",
		`{"agent":"e","tool":"bash","pattern":"git *","action":"deny","active":true}`)
	handlerstest.Happened(t, g.Log, "c2", handlerstest.Fact{Data: events.ChatCreated{}})
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Fact{Data: events.ChatCreated{
		Parent: &events.Parent{Chat: "c2", Root: "c2", Subagent: "explore"}}}, handlerstest.Bash("per_1", "git status"))
	g.AwaitIdle()
	found, _ := g.Decisions("per_1")
	is.Equal(string(found[0].Decision), "denied")
}

// A report on delegates begins a turn that no person began. It does not end an approval.
func TestAReportOnDelegatesEndsNoApproval(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := permissiontest.OpenGate(t)
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Bash("per_1", "make"),
		handlerstest.Fact{Data: events.PermissionInterrupted{Permission: "per_1"}})
	g.AwaitIdle()
	g.Decide("per_1", events.Authorized)
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Fact{Data: events.MessageSubmitted{Message: "m1",
		Parts: handlerstest.Say("report"), Results: []string{"d1"}}}, handlerstest.Bash("per_2", "make"))
	g.AwaitIdle()
	found, _ := g.Decisions("per_2")
	is.Equal(len(found), 1)
	is.Equal(found[0].ApprovalOf, "per_1")
}

func TestRulesOfAProjectAreForItsChats(t *testing.T) {
	t.Parallel()
	deny := `{"project":"app","tool":"bash","pattern":"git *","action":"deny","active":true}`
	allow := `{"project":"app","tool":"bash","pattern":"make","action":"allow","active":true}`
	delegate := &events.Parent{Chat: "c2", Root: "c2"}
	run := &events.Ceiling{Chat: "c2", Root: "c2"}
	for name, c := range map[string]struct {
		chat, above events.ChatCreated // of c1 and c2
		rule        string
		command     string
		want        events.Decision // "" if a person decides
	}{
		"denied in the project":            {events.ChatCreated{Engine: "app"}, events.ChatCreated{}, deny, "git status", events.Denied},
		"denied at another engine of it":   {events.ChatCreated{Project: "app", Engine: "app-2"}, events.ChatCreated{}, deny, "git status", events.Denied},
		"not denied in another one":        {events.ChatCreated{}, events.ChatCreated{}, deny, "git status", events.Authorized},
		"allowed in the project":           {events.ChatCreated{Engine: "app"}, events.ChatCreated{}, allow, "make", events.Authorized},
		"not allowed in another one":       {events.ChatCreated{}, events.ChatCreated{}, allow, "make", ""},
		"allowed to a delegate":            {events.ChatCreated{Engine: "app", Parent: delegate}, events.ChatCreated{Engine: "app"}, allow, "make", events.Authorized},
		"allowed to a run from elsewhere":  {events.ChatCreated{Engine: "app", Ceiling: run}, events.ChatCreated{}, allow, "make", ""},
		"denied to the chat of a schedule": {events.ChatCreated{Ceiling: run}, events.ChatCreated{Engine: "app"}, deny, "git status", events.Denied},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			g := permissiontest.OpenGate(t)
			permissiontest.SaveRecord(t, g.Handlers, "tool_permissions", "r1", c.rule)
			handlerstest.Happened(t, g.Log, "c2", handlerstest.Fact{Data: c.above})
			handlerstest.Happened(t, g.Log, "c1", handlerstest.Fact{Data: c.chat}, handlerstest.Bash("per_1", c.command))
			g.AwaitIdle()
			found, _ := g.Decisions("per_1")
			if c.want == "" {
				is.Equal(len(found), 0)
				return
			}
			is.Equal(found[0].Decision, c.want)
		})
	}
}

// A replica of the log that lags may not have the delegate's chat yet. Its rules alone would allow too much.
func TestRulesAreNotJudgedWithoutTheChatsAbove(t *testing.T) {
	t.Parallel()
	g := permissiontest.OpenGate(t)
	_, err := g.Gate.RuleSets(t.Context(), rule.Scope{Chat: "not-there-yet"})
	expect.Contains(t, fmt.Sprint(err), "the chat is not there yet")
}

// The text of an erased chat is gone, and with it the agent. Its delegates keep what they say of it.
func TestTheDelegatesOfAnErasedChatAreJudged(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	for _, agent := range []string{"top", "middle"} {
		g := permissiontest.OpenGate(t)
		for _, agent := range []string{"middle", "top"} {
			permissiontest.SaveRecord(t, g.Handlers, "ai_agents", agent, `{"name":"`+agent+`"}`)
		}
		permissiontest.SaveRecord(t, g.Handlers, "tool_permissions", "r1",
			`{"agent":"`+agent+`","tool":"bash","pattern":"git *","action":"deny","active":true}`)
		handlerstest.Happened(t, g.Log, "c3", handlerstest.Fact{Data: events.ChatCreated{Agent: "top"}})
		handlerstest.Happened(t, g.Log, "c2", handlerstest.Fact{Data: events.ChatErased{}})
		handlerstest.Happened(t, g.Log, "c1", handlerstest.Fact{Data: events.ChatCreated{
			Parent: &events.Parent{Chat: "c2", Root: "c3", Agent: "middle"}}}, handlerstest.Bash("per_1", "git status"))
		g.AwaitIdle()
		found, _ := g.Decisions("per_1")
		is.Equal(len(found), 1)
		is.Equal(string(found[0].Decision), "denied")
	}
}
