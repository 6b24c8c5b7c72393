package projections_test

import (
	"testing"

	"github.com/matryer/is"
	"github.com/pocketbase/dbx"

	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

// queryPlan returns how SQLite would find the rows.
func queryPlan(t testing.TB, m *projections.Model, query string) (plan string) {
	t.Helper()
	err := m.View(t.Context(), func(db dbx.Builder, _ uint64) error {
		var steps []struct{ Detail string }
		err := db.NewQuery("EXPLAIN QUERY PLAN " + query).All(&steps)
		for _, s := range steps {
			plan += s.Detail + "\n"
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func TestListsOfClientsComeFromAnIndex(t *testing.T) {
	t.Parallel()
	m := still(t)
	for query, index := range map[string]string{
		"SELECT * FROM messages WHERE chat='c' AND NOT removed AND role<>'' ORDER BY created LIMIT 50":                                                  "messages_created",
		"SELECT * FROM messages WHERE chat='c' AND NOT removed AND role<>'' ORDER BY created DESC, first_seq DESC, id DESC":                             "messages_created",
		"SELECT * FROM messages WHERE chat='c' ORDER BY position":                                                                                       "messages_chat",
		"SELECT * FROM chats WHERE user='u' AND NOT removed ORDER BY last_active DESC LIMIT 50":                                                         "chats_user",
		"SELECT * FROM config WHERE collection='sops' AND record='r'":                                                                                   "config_record",
		"SELECT * FROM users WHERE email='e'":                                                                                                           "users_email",
		"SELECT * FROM commands c WHERE EXISTS (SELECT 1 FROM executions x WHERE x.command=c.id) AND c.id='one'":                                        "executions_command",
		"SELECT * FROM permissions WHERE 1 AND chat='c' AND status='draft' ORDER BY asked_seq":                                                          "permissions_",
		"SELECT * FROM permissions WHERE 1 AND status=lower('DRAFT') AND status='draft' ORDER BY asked_seq":                                             "permissions_draft",
		"SELECT * FROM questions WHERE 1 AND status=lower('ASKED') AND status='asked' ORDER BY position, idx":                                           "questions_asked",
		"SELECT * FROM chats c WHERE c.worktree<>'' AND c.removed ORDER BY c.first_seq":                                                                 "chats_worktree",
		"SELECT * FROM artifacts WHERE execution='x' ORDER BY path":                                                                                     "artifacts_execution",
		"SELECT x.*, coalesce(c.command,'') AS text FROM executions x LEFT JOIN commands c ON c.id=x.command WHERE 1 ORDER BY x.position DESC LIMIT 50": "executions_position",
	} {
		plan := queryPlan(t, m, query)
		expect.Contains(t, plan, index) // the index is used
		expect.Lacks(t, plan, "TEMP")   // and nothing sorted
	}
	for _, table := range shownTables {
		expect.Contains(t, queryPlan(t, m, "SELECT * FROM "+table+" WHERE last_seq > 7"), table+"_last")
	}
}

func TestUsageCanBeReadAsOtherRows(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	feed(t, m, s.begun()...)
	feed(t, m, s.assistant(ses, "msg_a", msg1, ended))
	rows, err := m.UsageByModel(t.Context(), chatID)
	is.NoErr(err)
	is.Equal(len(rows), 1)
	is.Equal(rows[0].ID, chatID+"."+rows[0].Provider+"."+rows[0].Model)
	is.Equal(rows[0].Last, int64(m.Seq()))
	is.True(!rows[0].Removed)
}
