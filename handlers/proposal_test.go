package handlers_test

import (
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/expect"
	"pocketcoder/handlers"
	"pocketcoder/handlers/agentfile"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/proposal"
	"pocketcoder/handlers/record"
)

const deployer = "---\nname: Deployer\npermission:\n  edit: allow\n---\n\nDeploy.\n"

// approved returns the event of an approval that comes after all that is stored.
func approved(t *testing.T, h proposal.Proposals) events.Event {
	seq, err := h.Records.Log.Last(t.Context())
	is.New(t).NoErr(err)
	return events.Event{Seq: seq, Actor: events.UserActor("root")}
}

func TestAnApprovedAgentIsStoredOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := proposal.Proposals{Records: &record.Records{Log: eventstest.Log(t)}}
	p := proposal.Stored{Kind: proposal.Agent, Name: "Deployer", Content: deployer}
	c, err := h.Change(t.Context(), p)
	is.NoErr(err)
	is.Equal(c.Rights, []string{"allows edit: <workspace>"})
	expect.Contains(t, c.Difference, "+Deploy.\n")
	approval := approved(t, h)
	is.NoErr(h.Apply(t.Context(), p, approval))
	agents := agentfile.Agents{Records: h.Records}
	exported, err := agents.Export(t.Context(), agentfile.Export{Name: "Deployer"})
	is.NoErr(err)
	is.Equal(exported.Text, deployer)

	_, err = agents.Import(t.Context(), agentfile.Import{Text: strings.Replace(deployer, "allow", "deny", 1)})
	is.NoErr(err)
	is.NoErr(h.Apply(t.Context(), p, approval)) // delivered again, after a person has changed the agent
	exported, err = agents.Export(t.Context(), agentfile.Export{Name: "Deployer"})
	is.NoErr(err)
	expect.Contains(t, exported.Text, "edit: deny")
}

// Each of these approvals changes one thing beside the record of the agent. An administrator changes it again before
// the approval is delivered a second time, as after a restart.
func TestARepeatedApprovalUndoesNoLaterChange(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ approved, later string }{
		"rule changed": {strings.Replace(deployer, "allow", "deny", 1), strings.Replace(deployer, "allow", "ask", 1)},
		"rule deleted": {strings.Replace(deployer, "edit: allow", "edit: allow\n  read: deny", 1), deployer},
		"rule added":   {strings.Replace(deployer, "allow", "deny", 1), strings.Replace(deployer, "edit: allow", "edit: deny\n  read: deny", 1)},
		"prompt":       {deployer + "Carefully.\n", deployer + "Never.\n"},
		"nothing":      {deployer, strings.Replace(deployer, "allow", "deny", 1)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			h := proposal.Proposals{Records: &record.Records{Log: eventstest.Log(t)}}
			agents := agentfile.Agents{Records: h.Records}
			_, err := agents.Import(t.Context(), agentfile.Import{Text: deployer})
			is.NoErr(err)
			approval := approved(t, h)
			p := proposal.Stored{Kind: proposal.Agent, Name: "Deployer", Content: c.approved}
			text := func() string {
				exported, err := agents.Export(t.Context(), agentfile.Export{Name: "Deployer"})
				is.NoErr(err)
				return exported.Text
			}
			is.NoErr(h.Apply(t.Context(), p, approval))
			is.Equal(text(), c.approved)
			_, err = agents.Import(t.Context(), agentfile.Import{Text: c.later})
			is.NoErr(err)
			is.NoErr(h.Apply(t.Context(), p, approval))
			is.Equal(text(), c.later)
		})
	}
}

func TestARepeatedApprovalDoesNotCreateADeletedAgentAgain(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := proposal.Proposals{Records: &record.Records{Log: eventstest.Log(t)}}
	p, approval := proposal.Stored{Kind: proposal.Agent, Name: "Deployer", Content: deployer}, approved(t, h)
	is.NoErr(h.Apply(t.Context(), p, approval))
	all, err := record.All[struct{}](t.Context(), h.Records, "ai_agents")
	is.NoErr(err)
	_, err = h.Records.Delete(t.Context(), record.Delete{Collection: "ai_agents", Record: all[0].ID})
	is.NoErr(err)
	is.NoErr(h.Apply(t.Context(), p, approval))
	all, err = record.All[struct{}](t.Context(), h.Records, "ai_agents")
	is.NoErr(err)
	is.Equal(len(all), 0)
}

func TestAnApprovedPromptReplacesThePromptOfItsName(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := proposal.Proposals{Records: &record.Records{Log: eventstest.Log(t)}}
	p := proposal.Stored{Kind: proposal.Prompt, Name: "Tone", Content: "Be brief.\n"}
	is.NoErr(h.Apply(t.Context(), p, approved(t, h)))
	p.Content = "Be kind.\n"
	c, err := h.Change(t.Context(), p)
	is.NoErr(err)
	expect.Contains(t, c.Difference, "-Be brief.\n+Be kind.\n")
	is.NoErr(h.Apply(t.Context(), p, approved(t, h)))
	all, err := record.All[struct{ Body string }](t.Context(), h.Records, "ai_prompts")
	is.NoErr(err)
	is.Equal(len(all), 1)
	is.Equal(all[0].Value.Body, "Be kind.\n")
}

// The front matter could otherwise change another agent than the one that the proposal names.
func TestAProposedAgentOfAnotherNameIsRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := proposal.Proposals{Records: &record.Records{Log: eventstest.Log(t)}}
	for _, p := range []proposal.Stored{
		{Kind: proposal.Agent, Name: "Helper", Content: deployer},
		{Kind: proposal.Agent, Name: "Deployer", Content: "no front matter"},
	} {
		is.Equal(handlers.CodeOf(h.Apply(t.Context(), p, approved(t, h))), handlers.Invalid)
		c, err := h.Change(t.Context(), p)
		is.NoErr(err)
		is.True(c.Problem != "")
	}
}

func TestTheDefinitionOfAProposalHasItsKind(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := proposal.Proposals{Records: &record.Records{Log: eventstest.Log(t)}}
	definitions := map[string]bool{}
	for _, kind := range []string{"", proposal.Procedure, proposal.Agent, proposal.Prompt} {
		_, _, err := h.Records.Save(t.Context(), record.Save{Collection: proposal.Collection, New: true,
			Set: handlerstest.Fields(`{"kind":"` + kind + `","name":"n","content":"c","status":"draft"}`)})
		is.NoErr(err)
	}
	all, err := h.List(t.Context())
	is.NoErr(err)
	for _, p := range all {
		definitions[p.Definition] = true
	}
	is.Equal([]any{len(all), len(definitions)}, []any{4, 3}) // no kind is a procedure
}
