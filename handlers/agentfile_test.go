package handlers_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events/eventstest"
	"pocketcoder/handlers"
	"pocketcoder/handlers/agent"
	"pocketcoder/handlers/policy"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/recordtype"
	"pocketcoder/ops/expect"
)

const reviewer = `---
description: Reviews changes
mode: subagent
model: anthropic/claude-sonnet-4-5
temperature: 0.1
color: blue
permission:
  edit: deny
  bash:
    "*": ask
    git status*: allow
    git push*: deny
  webfetch: {"https://docs.example.org/*": allow}
  github_list: allow
tools:
  write: false
  bash: true
---

Review every line.
`

// reviewerStored is the reviewer as it is exported.
const reviewerStored = `---
name: reviewer
description: Reviews changes
mode: subagent
model: anthropic/claude-sonnet-4-5
temperature: 0.1
permission:
  bash:
    '*': ask
    git status*: allow
    git push*: deny
  edit: deny
  github_list: allow
  webfetch:
    '*': ask
    https://docs.example.org/*: allow
---

Review every line.
`

func rulesOf(f agent.File) (all []string) {
	for _, r := range f.Rules {
		all = append(all, r.String())
	}
	return all
}

func TestAFileOfOpenCodeIsRead(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	f, notes, err := agent.Parse(reviewer, "reviewer")
	is.NoErr(err)
	is.Equal([]string{f.Name, f.Description, f.Mode, f.Model, f.Prompt},
		[]string{"reviewer", "Reviews changes", "subagent", "anthropic/claude-sonnet-4-5", "Review every line."})
	is.Equal(*f.Temperature, 0.1)
	is.Equal(rulesOf(f), []string{"deny edit: *", "bash: git status*", "deny bash: git push*",
		"webfetch: https://docs.example.org/*", "mcp: github_list"})
	is.Equal(notes, []string{
		"color is left out: it has no meaning in PocketCoder.",
		"tools: bash: true allows nothing. To allow the tool, add bash: allow below permission.",
	})
}

func TestWhatAFileCannotSayIsNamed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ front, note string }{
		"an exception":        {`permission: {bash: {"*": deny, "git log *": allow}}`, `permission: bash: "git log *": allow does not apply where "*": deny does: deny beats ask, and ask beats allow.`},
		"a star in a path":    {`permission: {read: {"*.md": allow}}`, `permission: read: "*.md": allow: It covers one folder only, because * does not match /. Write ** for any folders.`},
		"all subagents":       {`permission: {task: allow}`, `permission: task: allow is left out: column 1: name it exactly, without *.`},
		"every page":          {`permission: {webfetch: allow}`, `permission: webfetch: allow is left out: column 1: want an address such as https://docs.example.org/*.`},
		"everything":          {`permission: allow`, `permission: *: allow is left out: only a rule that denies or asks is for every permission, and its pattern is *.`},
		"of primary and sub":  {`mode: all`, `mode: all is stored as primary. Agents can delegate work to every agent, whatever its mode.`},
		"a key without sense": {`steps: 7`, `steps is left out: it has no meaning in PocketCoder.`},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			_, notes, err := agent.Parse("---\n"+c.front+"\n---\n", "a")
			is.NoErr(err)
			is.Equal(notes, []string{c.note})
		})
	}
}

func TestAFileWithAMistakeIsRefused(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		"Review.":        "must begin with front matter",
		"---\nname: a\n": "must begin with front matter",
		"---\nfoo: 1\ndescription: d\nbar: 2\n---\n":            `unknown keys: "foo", "bar". Known keys are name, description,`,
		"---\nname: [a\n---\n":                                  "is not YAML: line 1",
		"---\n- a\n---\n":                                       "must be keys with values",
		"---\nname: a\ntemperature: hot\n---\n":                 "temperature: the value in line 3",
		"---\nname: a/b\n---\n":                                 "without /",
		"---\nname: ' '\n---\n":                                 "has no name",
		"---\nname: a\nmodel: sonnet\n---\n":                    `"sonnet" is not PROVIDER/MODEL`,
		"---\nname: a\nmode: boss\n---\n":                       `"boss" is not primary`,
		"---\nname: a\npermission: {bash: maybe}\n---\n":        `"maybe" is not allow, ask or deny`,
		"---\nname: a\npermission: {bash: [allow]}\n---\n":      "must be an action or an object",
		"---\nname: a\npermission: {read: {../x: deny}}\n---\n": "cannot be stored: column 1",
		"---\nname: a\ntools: {bash: 7}\n---\n":                 "object of true and false",
	} {
		_, _, err := agent.Parse(text, "")
		if r := (handlers.Refused{}); !errors.As(err, &r) || !strings.Contains(r.Text, says) {
			t.Errorf("%q: got %v, want %q", text, err, says)
		}
	}
}

// openAgents returns agents over a log of its own.
func openAgents(t *testing.T) agent.Agents {
	return agent.Agents{Records: recordtype.Open(eventstest.Log(t), recordtype.Machine{})}
}

func TestAnExportedAgentIsImportedAsItWas(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := openAgents(t)
	first, err := h.Import(t.Context(), agent.Import{Text: reviewer, Name: "reviewer"})
	is.NoErr(err)
	is.True(first.New)
	exported, err := h.Export(t.Context(), agent.Export{Name: "reviewer"})
	is.NoErr(err)
	is.Equal(exported.Text, reviewerStored)
	again, err := h.Import(t.Context(), agent.Import{Text: exported.Text})
	is.NoErr(err)
	is.Equal([]any{again.Diff, again.Record, again.Seq, again.New}, []any{"", first.Record, uint64(0), false})

	elsewhere := openAgents(t)
	_, err = elsewhere.Import(t.Context(), agent.Import{Text: exported.Text})
	is.NoErr(err)
	there, err := elsewhere.Export(t.Context(), agent.Export{Name: "reviewer"})
	is.NoErr(err)
	is.Equal(there, exported)
	a, err := agent.One(t.Context(), elsewhere.Records, mustList(t, elsewhere)[0].ID)
	is.NoErr(err)
	is.Equal(a, agent.Agent{ID: a.ID, Name: "reviewer", Prompt: "Review every line.",
		Model: "anthropic/claude-sonnet-4-5", Temperature: &[]float64{0.1}[0]})
}

func mustList(t *testing.T, h agent.Agents) []agent.Listed {
	all, err := h.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestAnImportChangesTheAgentOfItsName(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := openAgents(t)
	first, err := h.Import(t.Context(), agent.Import{Text: reviewer, Name: "reviewer"})
	is.NoErr(err)
	_, _, err = h.Records.Save(t.Context(), record.Save{Collection: "tool_permissions", New: true,
		Set: map[string]json.RawMessage{"agent": json.RawMessage(`"` + first.Record + `"`), "tool": json.RawMessage(`"bash"`),
			"pattern": json.RawMessage(`"make"`), "action": json.RawMessage(`"allow"`), "chat": json.RawMessage(`"c1"`)}})
	is.NoErr(err)
	changed := agent.Import{Text: "---\nname: reviewer\npermission:\n  edit: ask\n---\nBe brief.\n", Check: true}
	checked, err := h.Import(t.Context(), changed)
	is.NoErr(err)
	is.Equal(checked.Record, first.Record)
	for _, line := range []string{"-  edit: deny\n", "+  edit: ask\n", "-Review every line.\n", "+Be brief.\n",
		"# Rules of the agent that are not in this file, because they are paused, expire or are for one chat: 1."} {
		expect.Contains(t, checked.Diff, line)
	}
	is.Equal(mustList(t, h)[0].Rules, 5) // nothing has changed yet

	stale := "another"
	changed.Check, changed.Base = false, &stale
	_, err = h.Import(t.Context(), changed)
	is.Equal(handlers.CodeOf(err), handlers.Conflict)
	changed.Base = &checked.Before
	_, err = h.Import(t.Context(), changed)
	is.NoErr(err)
	is.Equal(len(mustList(t, h)), 1)
	is.Equal(mustList(t, h)[0].Rules, 1)
	stored, err := record.All[struct {
		Tool, Chat string
		Action     policy.Action
	}](t.Context(), h.Records, "tool_permissions")
	is.NoErr(err)
	is.Equal(len(stored), 2) // that of the chat stays
	_, err = h.Export(t.Context(), agent.Export{Name: "nobody"})
	expect.Contains(t, err.Error(), `There is no agent "nobody". The agents are: reviewer.`)
}

// An alias stands for a value, whatever the anchor is called. A merged mapping would be left out.
func TestAliasesAreReadAsWhatTheyStandFor(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	const before = "---\nname: a\ndescription: &allow deny\npermission:\n"
	f, _, err := agent.Parse(before+"  bash:\n    \"rm *\": *allow\n---\n", "")
	is.NoErr(err)
	is.Equal(f.Rules, []policy.Rule{{Permission: "bash", Pattern: "rm *", Action: policy.Deny}})
	_, _, err = agent.Parse(before+"  <<: {bash: deny}\n---\n", "")
	is.True(err != nil)
}

// A new agent that a chat could use without its rules would have more rights for a moment.
func TestANewAgentIsStoredAfterItsRules(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := openAgents(t)
	_, err := h.Import(t.Context(), agent.Import{Text: reviewer, Name: "reviewer"})
	is.NoErr(err)
	agents, err := record.All[struct{}](t.Context(), h.Records, "ai_agents")
	is.NoErr(err)
	rules, err := record.All[struct{ Agent string }](t.Context(), h.Records, "tool_permissions")
	is.NoErr(err)
	is.Equal(len(rules), 5)
	for _, r := range rules {
		is.True(r.Seq < agents[0].Seq)
		is.Equal(r.Value.Agent, agents[0].ID)
	}
}

// A person who replaces an agent sees what it may do then and may not do now.
func TestAnImportNamesTheRightsThatTheAgentGains(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := openAgents(t)
	file := func(rules string) agent.Import {
		return agent.Import{Text: "---\nname: a\npermission:\n" + rules + "---\n", Check: true}
	}
	first := file("  edit: deny\n  bash: {\"*\": deny, git diff*: allow}\n  webfetch: ask\n")
	checked, err := h.Import(t.Context(), first)
	is.NoErr(err)
	is.Equal(checked.Rights, []string{"allows bash: git diff*"})
	first.Check = false
	_, err = h.Import(t.Context(), first)
	is.NoErr(err)
	checked, err = h.Import(t.Context(), file("  bash: {\"*\": deny, git diff*: allow, git push*: allow}\n"))
	is.NoErr(err)
	is.Equal(checked.Rights, []string{"allows bash: git push*", "no longer denies edit: *",
		"no longer asks about webfetch: *"})
	checked, err = h.Import(t.Context(), file("  read: deny\n  edit: deny\n  bash: deny\n  webfetch: ask\n"))
	is.NoErr(err)
	is.Equal(len(checked.Rights), 0)
}
