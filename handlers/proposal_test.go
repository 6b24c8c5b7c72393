package handlers_test

import (
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/handlers"
	"pocketcoder/handlers/agent"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/proposal"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/recordtype"
	"pocketcoder/ops/expect"
)

const (
	deployer = "---\nname: Deployer\npermission:\n  edit: allow\n---\n\nDeploy.\n"
	cautious = "---\nname: Deployer\npermission:\n  edit: deny\n---\n\nDeploy.\n"
)

// approve stores a proposal as approved, and returns the event of the approval.
func approve(t *testing.T, h proposal.Proposals, p proposal.Stored) events.Event {
	t.Helper()
	is := is.New(t)
	set := record.Fields(map[string]any{"kind": p.Kind, "name": p.Name, "content": p.Content, "status": "approved",
		"authored_by": "human"})
	_, seq, err := h.Records.Save(t.Context(), record.Save{Command: handlers.Command{Actor: events.UserActor("root")},
		Role: "admin", Collection: proposal.Collection, New: true, Set: set})
	is.NoErr(err)
	e, _, err := h.Records.Log.Get(t.Context(), seq)
	is.NoErr(err)
	return e
}

// one returns the proposal of an approval.
func one(t *testing.T, h proposal.Proposals, approval events.Event) proposal.Stored {
	t.Helper()
	p, err := h.One(t.Context(), approval.Subject.ID)
	is.New(t).NoErr(err)
	return p
}

func TestAnApprovedAgentIsStoredOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := proposal.Proposals{Records: recordtype.Open(eventstest.Log(t), recordtype.Machine{})}
	p := proposal.Stored{Kind: proposal.Agent, Name: "Deployer", Content: deployer}
	c, err := h.Change(t.Context(), p)
	is.NoErr(err)
	is.Equal(c.Rights, []string{"allows edit: <workspace>"})
	expect.Contains(t, c.Difference, "+Deploy.\n")
	approval := approve(t, h, p)
	is.NoErr(h.Apply(t.Context(), approval))
	agents := agent.Agents{Records: h.Records}
	exported, err := agents.Export(t.Context(), agent.Export{Name: "Deployer"})
	is.NoErr(err)
	is.Equal(exported.Text, deployer)

	_, err = agents.Import(t.Context(), agent.Import{Text: strings.Replace(deployer, "allow", "deny", 1)})
	is.NoErr(err)
	is.NoErr(h.Apply(t.Context(), approval)) // delivered again, after a person has changed the agent
	is.Equal([]string{one(t, h, approval).Status, one(t, h, approval).Effect}, []string{"approved", "done"})
	exported, err = agents.Export(t.Context(), agent.Export{Name: "Deployer"})
	is.NoErr(err)
	expect.Contains(t, exported.Text, "edit: deny")
}

// An administrator changes the agent after the approval and before it takes effect. The cases are named after that
// change.
func TestAnApprovalUndoesNoLaterChange(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ approved, later string }{
		"a rule is changed":     {strings.Replace(deployer, "allow", "deny", 1), strings.Replace(deployer, "allow", "ask", 1)},
		"a rule is deleted":     {strings.Replace(deployer, "allow", "deny", 1), strings.Replace(deployer, "permission:\n  edit: allow\n", "", 1)},
		"a rule is added":       {strings.Replace(deployer, "allow", "deny", 1), strings.Replace(deployer, "edit: allow", "edit: deny\n  read: deny", 1)},
		"the prompt is changed": {deployer + "Carefully.\n", deployer + "Never.\n"},
		"a rule is changed, and the approval changes nothing": {deployer, strings.Replace(deployer, "allow", "deny", 1)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			h := proposal.Proposals{Records: recordtype.Open(eventstest.Log(t), recordtype.Machine{})}
			agents := agent.Agents{Records: h.Records}
			_, err := agents.Import(t.Context(), agent.Import{Text: deployer})
			is.NoErr(err)
			approval := approve(t, h, proposal.Stored{Kind: proposal.Agent, Name: "Deployer", Content: c.approved})
			text := func() string {
				exported, err := agents.Export(t.Context(), agent.Export{Name: "Deployer"})
				is.NoErr(err)
				return exported.Text
			}
			_, err = agents.Import(t.Context(), agent.Import{Text: c.later})
			is.NoErr(err)
			is.NoErr(h.Apply(t.Context(), approval))
			is.Equal(text(), c.later)
			is.Equal(one(t, h, approval).Status, "draft")
		})
	}
}

func TestAnApprovalDoesNotCreateADeletedAgentAgain(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := proposal.Proposals{Records: recordtype.Open(eventstest.Log(t), recordtype.Machine{})}
	_, err := agent.Agents{Records: h.Records}.Import(t.Context(), agent.Import{Text: deployer})
	is.NoErr(err)
	approval := approve(t, h, proposal.Stored{Kind: proposal.Agent, Name: "Deployer",
		Content: strings.Replace(deployer, "allow", "deny", 1)})
	all, err := record.All[struct{}](t.Context(), h.Records, "ai_agents")
	is.NoErr(err)
	_, err = h.Records.Delete(t.Context(), record.Delete{Collection: "ai_agents", Record: all[0].ID})
	is.NoErr(err)
	is.NoErr(h.Apply(t.Context(), approval))
	all, err = record.All[struct{}](t.Context(), h.Records, "ai_agents")
	is.NoErr(err)
	is.Equal(len(all), 0)
	is.Equal(one(t, h, approval).Status, "draft")
}

func TestAnApprovedPromptReplacesThePromptOfItsName(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := proposal.Proposals{Records: recordtype.Open(eventstest.Log(t), recordtype.Machine{})}
	p := proposal.Stored{Kind: proposal.Prompt, Name: "Tone", Content: "Be brief.\n"}
	is.NoErr(h.Apply(t.Context(), approve(t, h, p)))
	p.Content = "Be kind.\n"
	c, err := h.Change(t.Context(), p)
	is.NoErr(err)
	expect.Contains(t, c.Difference, "-Be brief.\n+Be kind.\n")
	is.NoErr(h.Apply(t.Context(), approve(t, h, p)))
	all, err := record.All[struct{ Body string }](t.Context(), h.Records, "ai_prompts")
	is.NoErr(err)
	is.Equal(len(all), 1)
	is.Equal(all[0].Value.Body, "Be kind.\n")
}

// Two administrators approve two texts of one name before the first takes effect, because the engine is down.
func TestApprovalsOfOneNameTakeEffectInOrder(t *testing.T) {
	t.Parallel()
	first := map[string]string{proposal.Agent: deployer, proposal.Prompt: "Be brief.\n",
		proposal.Procedure: "Push.\n"}
	second := map[string]string{proposal.Agent: cautious, proposal.Prompt: "Be kind.\n",
		proposal.Procedure: "Ask first.\n"}
	for kind := range first {
		for name, delivered := range map[string][]int{"in order": {0, 1}, "reversed": {1, 0}, "twice": {0, 0, 1, 1, 0},
			"only the second": {1}} {
			t.Run(kind+" "+name, func(t *testing.T) {
				t.Parallel()
				is := is.New(t)
				h := proposal.Proposals{Records: recordtype.Open(eventstest.Log(t), recordtype.Machine{})}
				approvals := []events.Event{
					approve(t, h, proposal.Stored{Kind: kind, Name: "Deployer", Content: first[kind]}),
					approve(t, h, proposal.Stored{Kind: kind, Name: "Deployer", Content: second[kind]}),
				}
				for _, i := range delivered {
					is.NoErr(h.Apply(t.Context(), approvals[i]))
				}
				for _, approval := range approvals {
					p := one(t, h, approval)
					is.Equal([]string{p.Status, p.Effect, p.Problem}, []string{"approved", "done", ""})
				}
				is.Equal(one(t, h, approvals[1]).Difference, "") // the second is in force
				is.True(one(t, h, approvals[0]).Difference != "")
			})
		}
	}
}

func TestAnApprovalWhoseTargetWasChangedIsADraftAgain(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := proposal.Proposals{Records: recordtype.Open(eventstest.Log(t), recordtype.Machine{})}
	p := proposal.Stored{Kind: proposal.Agent, Name: "Deployer", Content: deployer}
	approval := approve(t, h, p)
	agents := agent.Agents{Records: h.Records}
	_, err := agents.Import(t.Context(), agent.Import{Text: cautious})
	is.NoErr(err)
	for range 2 {
		is.NoErr(h.Apply(t.Context(), approval))
		exported, err := agents.Export(t.Context(), agent.Export{Name: "Deployer"})
		is.NoErr(err)
		is.Equal(exported.Text, cautious)
		now := one(t, h, approval)
		is.Equal([]string{now.Status, now.Effect, now.Approved}, []string{"draft", "", ""})
		expect.Contains(t, now.Problem, "was changed before this approval")
	}
	_, seq, err := h.Records.Save(t.Context(), record.Save{Command: handlers.Command{Actor: events.UserActor("root")},
		Role: "admin", Collection: proposal.Collection, Record: approval.Subject.ID,
		Set: record.Fields(map[string]any{"status": "approved", "shown_definition": one(t, h, approval).Definition})})
	is.NoErr(err)
	is.NoErr(h.Apply(t.Context(), approval)) // of the first approval, again
	now := one(t, h, approval)
	is.Equal([]string{now.Status, now.Effect, now.Problem, now.Difference}, []string{"approved", "done", "", ""})
	again, _, err := h.Records.Log.Get(t.Context(), seq)
	is.NoErr(err)
	is.NoErr(h.Apply(t.Context(), again))
	is.Equal(one(t, h, approval), now)
}

// An approval can be taken back while its effect is pending, and not later.
func TestAPendingApprovalCanBeTakenBack(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := proposal.Proposals{Records: recordtype.Open(eventstest.Log(t), recordtype.Machine{})}
	approval := approve(t, h, proposal.Stored{Kind: proposal.Agent, Name: "Deployer", Content: deployer})
	save := func(fields string) error {
		_, _, err := h.Records.Save(t.Context(), record.Save{Command: handlers.Command{Actor: events.UserActor("root")},
			Role: "admin", Collection: proposal.Collection, Record: approval.Subject.ID,
			Set: handlerstest.Fields(fields)})
		return err
	}
	is.Equal(handlers.CodeOf(save(`{"content":"other"}`)), handlers.Invalid)
	is.Equal(handlers.CodeOf(save(`{"authored_by":"poco"}`)), handlers.Conflict) // would look like a new approval
	is.NoErr(save(`{"status":"denied"}`))
	is.NoErr(h.Apply(t.Context(), approval))
	all, err := record.All[struct{}](t.Context(), h.Records, "ai_agents")
	is.NoErr(err)
	is.Equal(len(all), 0)
	is.NoErr(save(`{"status":"approved","shown_definition":"` + one(t, h, approval).Definition + `"}`))
	is.NoErr(h.Apply(t.Context(), approval))
	is.Equal(one(t, h, approval).Effect, "done")
	is.Equal(handlers.CodeOf(save(`{"status":"denied"}`)), handlers.Invalid)
}

// An approval of an older version has no effect field. It is applied if it is delivered and nothing changed since.
func TestAnApprovalOfAnOlderVersionTakesEffectOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := proposal.Proposals{Records: recordtype.Open(eventstest.Log(t), recordtype.Machine{})}
	store := func(name string) events.Event {
		body := handlerstest.Fields(`{"kind":"prompt","name":"` + name + `","content":"Be brief.\n","status":"approved"}`)
		fields, err := events.Encode(body)
		is.NoErr(err)
		e, err := events.NewConfig(proposal.Collection, events.NewID(), events.UserActor("root"),
			events.Saved{Fields: fields})
		is.NoErr(err)
		e.Seq, err = h.Records.Log.Append(t.Context(), e)
		is.NoErr(err)
		return e
	}
	applied := store("Tone")
	_, _, err := h.Records.Save(t.Context(), record.Save{Collection: "ai_prompts", New: true,
		Set: handlerstest.Fields(`{"name":"Tone","body":"Be loud.\n"}`)})
	is.NoErr(err)
	is.NoErr(h.Apply(t.Context(), store("Style")))
	is.NoErr(h.Apply(t.Context(), applied)) // delivered again: the prompt was changed since
	all, err := record.All[struct{ Name, Body string }](t.Context(), h.Records, "ai_prompts")
	is.NoErr(err)
	is.Equal([]string{all[0].Value.Body, all[1].Value.Name, all[1].Value.Body},
		[]string{"Be loud.\n", "Style", "Be brief.\n"})
	is.Equal(one(t, h, applied).Status, "approved")
}

// The front matter could otherwise change another agent than the one that the proposal names.
func TestAProposedAgentOfAnotherNameIsRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := proposal.Proposals{Records: recordtype.Open(eventstest.Log(t), recordtype.Machine{})}
	for _, p := range []proposal.Stored{
		{Kind: proposal.Agent, Name: "Helper", Content: deployer},
		{Kind: proposal.Agent, Name: "Deployer", Content: "no front matter"},
	} {
		approval := approve(t, h, p)
		is.NoErr(h.Apply(t.Context(), approval))
		refused := one(t, h, approval)
		is.Equal([]string{refused.Status, refused.Effect, refused.Approved}, []string{"draft", "", ""})
		is.True(refused.Problem != "")
	}
}

func TestTheDefinitionOfAProposalHasItsKind(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := proposal.Proposals{Records: recordtype.Open(eventstest.Log(t), recordtype.Machine{})}
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

// Two processes apply the same approvals at the same time, as after a lease of the engine has moved.
func TestTwoProcessesApplyApprovalsOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	l := eventstest.Log(t)
	h := proposal.Proposals{Records: recordtype.Open(l, recordtype.Machine{})}
	approvals := []events.Event{
		approve(t, h, proposal.Stored{Kind: proposal.Agent, Name: "Deployer", Content: deployer}),
		approve(t, h, proposal.Stored{Kind: proposal.Agent, Name: "Deployer", Content: cautious}),
	}
	done := make(chan error, len(approvals))
	for _, e := range approvals {
		go func() {
			done <- proposal.Proposals{Records: recordtype.Open(l, recordtype.Machine{})}.Apply(t.Context(), e)
		}()
	}
	is.NoErr(<-done)
	is.NoErr(<-done)
	stored := 0
	_, err := l.Fold(t.Context(), events.ConfigSubject("tool_permissions", "*", "*"), 0, func(events.Event) error {
		stored++
		return nil
	})
	is.NoErr(err)
	is.Equal(stored, 3) // the first stores a rule, and the second replaces it
	is.Equal([]string{one(t, h, approvals[0]).Effect, one(t, h, approvals[1]).Effect}, []string{"done", "done"})
	is.Equal(one(t, h, approvals[1]).Difference, "")
}
