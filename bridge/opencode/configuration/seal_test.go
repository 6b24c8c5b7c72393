package configuration

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"slices"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode"
	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/handlers"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/proposal"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/recordtype"
	"pocketcoder/ops/expect"
)

// run returns procedures that carry out approvals until the test ends.
func run(t *testing.T) *Procedures {
	l := eventstest.Log(t)
	p := &Procedures{Log: l, Records: recordtype.Open(l, recordtype.Machine{}), Server: &opencode.Supervisor{}, Restart: func() {},
		Logger: slog.New(slog.DiscardHandler)}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 2)
	go func() { done <- p.Run(ctx) }()
	go func() { done <- ApplyProposals(ctx, l, p.Records, p.Logger) }()
	t.Cleanup(func() { stop(); <-done; <-done })
	return p
}

// save changes a proposal, or makes it, as an administrator.
func save(t *testing.T, p *Procedures, id, fields string, isNew bool) uint64 {
	t.Helper()
	_, seq, err := p.Records.Save(t.Context(), record.Save{Command: handlers.Command{Actor: events.UserActor("root")},
		Role: "admin", Collection: proposal.Collection, Record: id, New: isNew, Set: handlerstest.Fields(fields)})
	is.New(t).NoErr(err)
	return seq
}

func all[T any](t *testing.T, p *Procedures, collection string) []record.StoredRecord[T] {
	list, err := record.All[T](t.Context(), p.Records, collection)
	is.New(t).NoErr(err)
	return list
}

func TestAnApprovedProcedureIsSealedOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := run(t)
	save(t, p, "p1", `{"name":"Deploy","content":"Push.\n","status":"draft","authored_by":"human"}`, true)
	approved := save(t, p, "p1", `{"status":"approved"}`, false)
	expect.Eventually(t, "it is sealed", func() bool { return len(all[procedure](t, p, proposal.Procedures)) == 1 })
	one := all[procedure](t, p, proposal.Procedures)[0]
	sum := sha256.Sum256([]byte("Push.\n"))
	is.Equal([]string{one.Value.Name, one.Value.Description, one.Value.Signature},
		[]string{"Deploy", "Push.", hex.EncodeToString(sum[:])})
	is.True(one.Value.isSealed())
	one.Value.Content = "Push anywhere.\n"
	is.True(!one.Value.isSealed()) // another text

	_, _, err := p.Records.Save(t.Context(), record.Save{Collection: proposal.Procedures, Record: one.ID,
		Set: handlerstest.Fields(`{"content":"By a person.\n"}`)})
	is.NoErr(err)
	e := events.Event{}
	subject := events.ConfigSubject(proposal.Collection, "p1", "*")
	_, err = p.Log.Fold(t.Context(), subject, approved-1, func(found events.Event) error { e = found; return nil })
	is.NoErr(err)
	is.NoErr(proposal.Proposals{Records: p.Records}.Apply(t.Context(), e)) // delivered again
	is.Equal(all[procedure](t, p, proposal.Procedures)[0].Value.Content, "By a person.\n")
}

// OpenCode gets the approved text until an administrator approves the changed one.
func TestASkillThatChangedOnDiskBecomesADraftOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := run(t)
	approve := func(id, name string, sealed int) {
		save(t, p, id, `{"name":"`+name+`","content":"Push.\n","status":"draft","authored_by":"human"}`, true)
		save(t, p, id, `{"status":"approved"}`, false)
		expect.Eventually(t, "it is sealed", func() bool { return len(all[procedure](t, p, proposal.Procedures)) == sealed })
	}
	approve("p1", "Deploy", 1)
	sealed := all[procedure](t, p, proposal.Procedures)[0]
	type draft struct {
		Name, Description, Content, Status string
		Author                             string `json:"authored_by"`
	}
	drafts := func() []record.StoredRecord[draft] {
		return slices.DeleteFunc(all[draft](t, p, proposal.Collection), func(r record.StoredRecord[draft]) bool {
			return r.ID == "p1"
		})
	}
	changed := func(file string, want int) {
		t.Helper()
		is.Helper()
		is.NoErr(p.Changed(t.Context(), "deploy", file))
		is.Equal(len(drafts()), want)
	}
	changed(skill("deploy", sealed.Value), 0)
	const other = "---\nname: deploy\ndescription: Push.\n---\n\nPush anywhere.\n"
	changed(other, 1)
	is.Equal(drafts()[0].Value, draft{"Deploy", "Push.", "Push anywhere.\n", proposal.Draft, "human"})
	changed(other, 1)
	save(t, p, drafts()[0].ID, `{"status":"denied"}`, false)
	changed(other, 1)
	changed("---\nname: deploy\ndescription: Releases\n---\n\nPush.\n", 2)
	is.Equal(drafts()[1].Value, draft{"Deploy", "Releases", "Push.\n", proposal.Draft, "human"})
	is.True(p.Changed(t.Context(), "deploy", "---\nname: deploy\n") != nil)
	is.Equal(len(drafts()), 2)

	approve("p2", "Other", 2) // every earlier proposal has had its effect
	is.Equal(all[procedure](t, p, proposal.Procedures)[0], sealed)
}

// The file of an agent can be edited after it was proposed. An approval that cannot take effect says why.
func TestAnApprovalWithoutEffectIsADraftAgain(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := run(t)
	save(t, p, "p1", `{"kind":"agent","name":"Deployer","content":"no front matter","status":"draft","authored_by":"human"}`, true)
	now := func() proposal.Stored { return all[proposal.Stored](t, p, proposal.Collection)[0].Value }
	save(t, p, "p1", `{"status":"approved","shown_definition":"`+now().Definition+`"}`, false)
	expect.Eventually(t, "it is a draft again", func() bool { return now().Status == "draft" })
	expect.Contains(t, now().Problem, "must begin with front matter")
	save(t, p, "p1", `{"content":"---\nname: Deployer\n---\n\nDeploy.\n"}`, false)
	save(t, p, "p1", `{"status":"approved","shown_definition":"`+now().Definition+`"}`, false)
	expect.Eventually(t, "the agent is stored", func() bool {
		return len(all[struct{ Name string }](t, p, "ai_agents")) == 1
	})
	is.Equal([]string{now().Status, now().Problem}, []string{"approved", ""})
}
