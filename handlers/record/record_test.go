package record_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events/eventstest"
	"pocketcoder/events/secret"
	"pocketcoder/handlers"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/permission/permissiontest"
	"pocketcoder/handlers/record"
	"pocketcoder/ops/expect"
)

func TestRecordIsSavedWholeAndDeletedOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := permissiontest.New(eventstest.Log(t))
	save := record.Save{Command: handlers.Command{Actor: handlerstest.Alice}, Collection: "ai_agents", Record: "a1",
		New: true, Set: handlerstest.Fields(`{"name": "poco", "mode": "primary"}`)}
	for range 2 {
		id, seq, err := h.Records.Save(t.Context(), save)
		is.NoErr(err)
		is.Equal(id, "a1")
		is.Equal(seq, uint64(1))
	}
	_, _, err := h.Records.Save(t.Context(), record.Save{Collection: "ai_agents", Record: "a1",
		Set: handlerstest.Fields(`{"name":"poco <b>"}`)})
	is.NoErr(err)
	made, _, err := h.Records.Save(t.Context(), record.Save{Collection: "sops", New: true})
	is.NoErr(err)
	is.Equal(len(made), 15)
	for range 2 {
		seq, err := h.Records.Delete(t.Context(), record.Delete{Command: handlers.Command{Actor: handlerstest.Alice},
			Collection: "ai_agents", Record: "a1"})
		is.NoErr(err)
		is.Equal(seq, uint64(4))
	}
	is.Equal(handlerstest.Records(t, h.Log, "ai_agents"), []string{
		`a1 saved {"fields":{"mode":"primary","name":"poco"}}`,
		`a1 saved {"fields":{"mode":"primary","name":"poco <b>"}}`, `a1 deleted {}`,
	})
	_, err = h.Records.Delete(t.Context(), record.Delete{Collection: "ai_agents", Record: made})
	is.Equal(handlerstest.Refusal(t, err), handlers.NotFound) // it is one of another collection
	elsewhere := permissiontest.New(h.Log)
	_, _, err = elsewhere.Records.Save(t.Context(), record.Save{Collection: "ai_agents", Record: "a1",
		Set: handlerstest.Fields(`{"top_p":1}`)})
	is.Equal(handlerstest.Refusal(t, err), handlers.NotFound)
}

func TestARecordThatTheLogWouldStoreOtherwiseIsRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := permissiontest.New(eventstest.Log(t, "sk-very-secret"))
	h.Log.Conceal(secret.System, "token", "private/archive01")
	for field, fields := range map[string]string{
		"pattern": `{"tool":"edit","pattern":"private/archive01/**","action":"deny"}`,
		"rules":   `{"rules":{"in":["sk-very-secret"]}}`,
	} {
		_, _, err := h.Records.Save(t.Context(), record.Save{Collection: map[string]string{
			"pattern": "tool_permissions", "rules": "notification_rules"}[field], New: true, Set: handlerstest.Fields(fields)})
		is.Equal(handlerstest.Refusal(t, err), handlers.Invalid)
		expect.Contains(t, err.Error(), field+" contains a secret")
	}
	is.Equal(len(handlerstest.Records(t, h.Log, "tool_permissions")), 0)
}

func TestBadRecordsAreRefused(t *testing.T) {
	t.Parallel()
	h := record.Open(eventstest.Log(t), record.Type{Name: "c", Fields: []record.Field{{Name: "f", Kind: record.JSON}}})
	value := func(v string) map[string]json.RawMessage { return map[string]json.RawMessage{"f": json.RawMessage(v)} }
	for want, bad := range map[string]record.Save{
		"collection: there is no":        {Collection: "a.b", Record: "a", New: true},
		"id: parse id \"*\"":             {Collection: "c", Record: "*", New: true},
		"id: parse id \"\"":              {Collection: "c"},
		`"f": the value is not JSON`:     {Collection: "c", New: true, Set: value(`{`)},
		`JSON in UTF-8`:                  {Collection: "c", New: true, Set: value("\"\xff\"")},
		"1048582 bytes; the limit is 10": {Collection: "c", New: true, Set: value(`"` + strings.Repeat("x", 1<<20-2) + `"`)},
	} {
		t.Run(want, func(t *testing.T) {
			is := is.New(t)
			_, _, err := h.Save(t.Context(), bad)
			is.Equal(handlerstest.Refusal(t, err), handlers.Invalid)
			expect.Contains(t, err.Error(), want)
		})
	}
	is := is.New(t)
	_, err := h.Delete(t.Context(), record.Delete{Collection: ">", Record: "a"})
	is.Equal(handlerstest.Refusal(t, err), handlers.Invalid)
	_, _, err = h.Save(t.Context(), record.Save{Collection: "c", New: true,
		Set: value(`"` + strings.Repeat("x", 1<<20-8) + `"`)})
	is.NoErr(err) // the largest there is
	is.Equal(len(handlerstest.Records(t, h.Log, "c")), 1)
}

// Several systems save the same unique fields at once: one record results, and each call returns its id.
func TestUniqueIsUniqueAmongSystems(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	l := eventstest.Log(t)
	ids := make([]string, 12)
	for _, err := range handlerstest.AtOnce(len(ids), func(i int) (err error) {
		h := permissiontest.New(l)
		ids[i], _, err = h.Records.Save(t.Context(), record.Save{
			Collection: "model_selection", New: true, Upsert: true, Set: handlerstest.Fields(fmt.Sprintf(`{"user":"u%d"}`, i%2)),
		})
		return err
	}) {
		is.NoErr(err)
	}
	for i := range ids {
		is.Equal(ids[i], ids[i%2])
	}
	is.Equal(len(handlerstest.Records(t, l, "model_selection")), 2)
}
