package projections_test

import (
	"encoding/json"
	"regexp"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
	"pocketcoder/projections/store"
)

func TestRecordIDIsTheSameForEver(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	is.Equal(store.RecordID("msg_1fb48af9d001CqRQMGNhMcc2pM"),
		store.RecordID("msg_1fb48af9d001CqRQMGNhMcc2pM"))
	is.True(store.RecordID("msg_1") != store.RecordID("msg_2"))
	is.True(regexp.MustCompile(`^[a-z0-9]{15}$`).MatchString(store.RecordID("")))
	is.Equal(store.RecordID("per_1"), "xqpiir1bys6xmxm")
}

func TestRowsAreJSONAsClientsReadThem(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	feed(t, m, s.begun()...)
	feed(t, m, textPart(s, msg1, "prt_1", "<b> & \u2028"), s.request("per_1", ses, "echo <hi>"))
	permissions, err := m.Permissions(t.Context(), chatID, "")
	is.NoErr(err)
	for row, want := range map[any][]string{
		permissions[0]: {`"id":"` + store.RecordID("per_1") + `"`, `"created":"2026-01-02 03:04:05.`,
			`"metadata":{"command":`, `"patterns":[`, `"status":"draft"`},
		shown(t, m)[0]: {`"id":"m1"`, `"parts":[{`, `"error_payload":null`, `"user_message_status":"delivered"`},
	} {
		text, err := json.Marshal(row)
		is.NoErr(err)
		for _, w := range want {
			expect.Contains(t, string(text), w) // what clients look for
		}
	}
	var parts []struct{ Text string }
	is.NoErr(json.Unmarshal([]byte(shown(t, m)[0].Parts), &parts))
	is.Equal(parts[0].Text, "<b> & \u2028")
}
