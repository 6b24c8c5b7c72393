package handlers_test

import (
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events/eventstest"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/recordtype"
	"pocketcoder/ops/expect"
)

// A command obeys the same constraints wherever it comes from.
func TestSavedRecordsObeyTheConstraintsOfTheirCollection(t *testing.T) {
	t.Parallel()
	records := recordtype.Open(eventstest.Log(t), recordtype.Machine{})
	for name, c := range map[string]struct {
		collection, role, first, fields string
		want                            string // "" for a record that is saved
	}{
		"an agent approves a server":                   {collection: "mcp_servers", role: account.Agent, fields: `{"name":"m","status":"approved"}`, want: "an administrator decides"},
		"an administrator approves one":                {collection: "mcp_servers", role: account.Admin, fields: `{"name":"m","status":"approved"}`},
		"an account approves a proposal":               {collection: "proposals", role: account.User, fields: `{"name":"p","content":"c","authored_by":"human","status":"approved"}`, want: "an administrator approves"},
		"a command without a role approves a proposal": {collection: "proposals", fields: `{"name":"p","content":"c","authored_by":"human","status":"approved"}`, want: "an administrator approves"},
		"a second agent of a name":                     {collection: "ai_agents", first: `{"name":"a"}`, fields: `{"name":"a"}`, want: "name: another record has the same value"},
		"a second device of a token":                   {collection: "devices", first: `{"user":"u","push_token":"t","name":"m","push_service":"fcm"}`, fields: `{"user":"u","push_token":"t","name":"n","push_service":"fcm"}`},
		"a rule that cannot be read":                   {collection: "tool_permissions", fields: `{"tool":"bash","pattern":"git 'status","action":"allow"}`, want: "column 5"},
		"a budget that limits nothing":                 {collection: "budgets", fields: `{"name":"b","scope":"day"}`, want: "a budget needs one of them"},
		"an invalid SSH key":                           {collection: "ssh_keys", fields: `{"public_key":"ssh-ed25519 x"}`, want: "one public key on one line"},
		"the value of a provider's key":                {collection: "llm_keys", fields: `{"user":"u","provider_id":"p","env_vars":{"A":"secret"}}`, want: "The value of A is a secret"},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			save := record.Save{Command: handlers.Command{Actor: handlerstest.Alice}, Role: c.role, Collection: c.collection,
				New: true}
			if c.first != "" {
				save.Set = handlerstest.Fields(c.first)
				_, _, err := records.Save(t.Context(), save)
				is.NoErr(err)
			}
			save.Set = handlerstest.Fields(c.fields)
			_, _, err := records.Save(t.Context(), save)
			if c.want == "" {
				is.NoErr(err)
				return
			}
			is.Equal(handlerstest.Refusal(t, err) == "", false)
			expect.Contains(t, err.Error(), c.want)
		})
	}
}
