package projections_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/projections"
	"pocketcoder/projections/store"
)

// saved makes a config record as it is from now on.
func saved(t testing.TB, collection, id, fields string) events.Event {
	t.Helper()
	return configured(t, collection, id, events.Saved{Fields: json.RawMessage(fields)})
}

func configured(t testing.TB, collection, id string, d events.Data) events.Event {
	t.Helper()
	e, err := events.NewConfig(collection, id, user, d)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// account makes a fact about an account.
func account(t testing.TB, id string, d events.Data) events.Event {
	t.Helper()
	e, err := events.NewUser(id, user, d)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// rows gives all rows of a table, and how many events could not be applied.
func rows[R any](t testing.TB, m *projections.Model, table string) ([]R, int) {
	t.Helper()
	all, err := store.List[R](t.Context(), m.Model, table, "SELECT * FROM "+table+" ORDER BY id", nil)
	if err != nil {
		t.Fatal(err)
	}
	n, err := m.DeadLetters(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	return all, n.Count
}

func TestConfigRecordIsAsItWasSavedLast(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m := still(t)
	feed(t, m, saved(t, "sops", "one", `{"name": "a", "n": [1, 2]}`), saved(t, "ai_models", "one", `{}`),
		saved(t, "sops", "one", `{"name": "b"}`))
	all, _ := rows[projections.Config](t, m, "config")
	is.Equal(len(all), 2) // the same id in another collection is another record
	is.Equal(fmt.Sprint(all[1].ID, all[1].Collection, all[1].RecordID, all[1].Fields), `sops/onesopsone{"name":"b"}`)
	is.Equal([]int64{all[1].First, all[1].Last}, []int64{1, 3})
	is.True(all[1].Updated > all[1].Created)

	feed(t, m, saved(t, "sops", "one", `{ "name":"b" }`)) // what it says already
	all, _ = rows[projections.Config](t, m, "config")
	is.Equal(all[1].Last, int64(3))

	feed(t, m, configured(t, "sops", "one", events.Deleted{}), configured(t, "sops", "one", events.Deleted{}))
	all, _ = rows[projections.Config](t, m, "config")
	is.True(all[1].Removed)
	is.Equal(all[1].Last, int64(5))
	before := all[1]
	feed(t, m, saved(t, "sops", "one", `{"name":"b"}`))
	all, bad := rows[projections.Config](t, m, "config")
	is.True(!all[1].Removed)
	is.Equal([]int64{all[1].First, all[1].Last}, []int64{7, 7}) // a new record
	is.Equal(all[1].Created, all[1].Updated)
	is.True(all[1].Updated > before.Updated)
	is.Equal(bad, 0)
}

func TestUpdatedOfARecordMovesForwardThroughItsEnd(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m := still(t)
	all := []events.Event{saved(t, "sops", "one", `{}`), configured(t, "sops", "one", events.Deleted{}),
		saved(t, "sops", "one", `{}`)}
	for i := range all { // in the same millisecond
		all[i].Seq, all[i].Time = uint64(i+1), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	}
	is.NoErr(m.Apply(all))
	records, _ := rows[projections.Config](t, m, "config")
	is.Equal(records[0].Updated, "2026-01-02 03:04:05.002Z")
}

func TestConfigThatCannotBeIsSetAside(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m := still(t)
	feed(t, m, saved(t, "sops", "one", `[1]`), saved(t, "sops", "one", `"text"`),
		configured(t, "sops", "two", events.Deleted{}))
	all, bad := rows[projections.Config](t, m, "config")
	is.Equal(len(all), 0)
	is.Equal(bad, 3)
}

// One such record made each list of its collection fail, also lists of other accounts.
func TestConfigValueThatNestsTooDeepForSQLiteIsReplaced(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m := still(t)
	nested := func(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }
	feed(t, m, saved(t, "notification_rules", "deep", `{"user":"bob","note":"<b>","rules":`+nested(1000)+`}`),
		saved(t, "notification_rules", "most", `{"user":"bob","rules":`+nested(999)+`}`))
	all, bad := rows[projections.Config](t, m, "config")
	is.Equal(bad, 0)
	is.Equal(string(all[0].Fields), `{"note":"<b>","rules":{"error":"The value nests more than 1,000 levels. Only the log holds it."},"user":"bob"}`)
	is.Equal(string(all[1].Fields), `{"user":"bob","rules":`+nested(999)+`}`)
	type row struct {
		User  string
		Rules string
	}
	readable, err := store.List[row](t.Context(), m.Model, "rules",
		"SELECT json_extract(fields, '$.user') AS user, fields -> '$.rules' AS rules FROM config ORDER BY id", nil)
	is.NoErr(err)
	is.Equal(len(readable), 2)
	is.Equal(readable[0].User, "bob")
}

func TestAccountIsWhatWasSaidOfItLast(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m := still(t)
	feed(t, m, account(t, "ann", events.AccountCreated{Email: "a@b.c", Name: "Ann", Role: "user"}))
	feed(t, m, account(t, "ann", events.AccountUpdated{Role: new("admin"), Disabled: new(true)}))
	for _, quiet := range []events.Data{events.PasswordChanged{}, events.SessionOpened{Session: "s"},
		events.SessionRefreshed{Session: "s"}, events.SessionClosed{Session: "s"}, events.LoginFailed{}} {
		feed(t, m, account(t, "ann", quiet))
	}
	all, _ := rows[projections.User](t, m, "users")
	is.Equal(fmt.Sprint(all[0].ID, " ", all[0].Email, " ", all[0].Name, " ", all[0].Role, all[0].Avatar),
		"ann a@b.c Ann admin")
	is.True(all[0].Verified && all[0].Disabled)
	is.Equal([]int64{all[0].First, all[0].Last}, []int64{1, 2}) // logins and passwords change nothing that is shown

	feed(t, m, account(t, "ann", events.Deleted{}))
	all, bad := rows[projections.User](t, m, "users")
	is.True(all[0].Removed)
	is.Equal(bad, 0)
	feed(t, m, account(t, "ann", events.AccountCreated{Email: "x"}), account(t, "bob", events.AccountUpdated{}),
		account(t, "bob", events.Deleted{}))
	_, bad = rows[projections.User](t, m, "users")
	is.Equal(bad, 3)
}

func TestTheSameKindMeansAnotherThingInAnotherScope(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	feed(t, m, s.created(), saved(t, "chats", chatID, `{}`), account(t, chatID, events.AccountCreated{Email: "a@b.c"}))
	audit, err := events.NewAudit(events.ActorNobody, events.LoginFailed{Reason: "unknown"})
	is.NoErr(err)
	feed(t, m, configured(t, "chats", chatID, events.Deleted{}),
		account(t, chatID, events.ChatUpdated{Title: new("Other")}), audit)
	is.Equal(chat(t, m).Title, "Chat")
	is.True(!chat(t, m).Removed)
	all, bad := rows[projections.User](t, m, "users")
	is.True(!all[0].Removed)
	is.Equal(bad, 0)
	feed(t, m, s.own(events.Deleted{}))
	all, _ = rows[projections.User](t, m, "users")
	is.True(chat(t, m).Removed && !all[0].Removed)
}
