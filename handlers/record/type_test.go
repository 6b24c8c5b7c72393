package record_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/secret"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/record"
	"pocketcoder/ops/expect"
)

// things is a type with fields of several kinds.
func things(access record.Access, assistants record.Verbs) record.Type {
	return record.Type{Name: "things", Access: access, Assistants: assistants, Unique: []string{"name"},
		Fields: []record.Field{
			{Name: "name", Kind: record.Text, Required: true}, {Name: "size", Kind: record.Number},
			{Name: "colour", Kind: record.Select, Values: []string{"red", "blue"}}, {Name: "on", Kind: record.Bool},
			{Name: "until", Kind: record.Date}, {Name: "chat", Kind: record.Relation, Relation: "chats"},
			{Name: "seen", Kind: record.Text, ReadOnly: true}, {Name: "runs", Kind: record.Number, ReadOnly: true, Derived: true},
		}}
}

var everybody = record.Rules(record.Accounts, record.Accounts, record.Accounts, record.Accounts, record.Accounts)

// senders are the doors besides the API: the operator, and a tool of the model.
var senders = map[string]func(*record.Records, string) error{
	"by the operator": func(h *record.Records, set string) error {
		_, _, err := h.Save(context.Background(), record.Save{Command: handlers.Command{Actor: handlerstest.Alice},
			Role: account.Admin, Collection: "things", New: true, Set: handlerstest.Fields(set)})
		return err
	},
	"by a tool": func(h *record.Records, set string) error {
		_, _, err := h.Save(context.Background(), record.Save{Command: handlers.Command{Actor: events.ChatActor("c1")},
			Role: account.Agent, Collection: "things", New: true, Set: handlerstest.Fields(set)})
		return err
	},
}

func TestAFieldThatATypeDoesNotAllowIsRefusedAtEachDoor(t *testing.T) {
	t.Parallel()
	for door, send := range senders {
		h := record.Open(eventstest.Log(t), things(everybody, record.Verbs{Create: true}))
		is.New(t).NoErr(send(h, `{"name":"taken"}`))
		for field, set := range map[string]string{
			"weight": `{"name":"n","weight":1}`, "size": `{"name":"n","size":"large"}`, "colour": `{"name":"n","colour":"green"}`,
			"on": `{"name":"n","on":"yes"}`, "until": `{"name":"n","until":"soon"}`, "chat": `{"name":"n","chat":"a/b"}`,
			"seen": `{"name":"n","seen":"x"}`, "runs": `{"name":"n","runs":1}`, "name": `{"size":1}`, "name:": `{"name":"taken"}`,
		} {
			t.Run(door+", "+field, func(t *testing.T) {
				is := is.New(t)
				err := send(h, set)
				is.True(handlerstest.Refusal(t, err) != "")
				expect.Contains(t, err.Error(), field)
			})
		}
		is.New(t).Equal(len(handlerstest.Records(t, h.Log, "things")), 1)
	}
}

func TestACollectionWithoutATypeIsRefusedAtEachDoor(t *testing.T) {
	t.Parallel()
	for door, send := range senders {
		err := send(record.Open(eventstest.Log(t)), `{}`)
		is.New(t).Equal(handlerstest.Refusal(t, err), handlers.Invalid) // door
		expect.Contains(t, door+err.Error(), `there is no collection "things"`)
	}
}

func TestOnlyThoseWhomATypeAdmitsSaveItsRecords(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	system := record.Open(eventstest.Log(t), things(record.Access{}, record.Verbs{}))
	expect.Contains(t, senders["by the operator"](system, `{"name":"n"}`).Error(), "only PocketCoder itself may create records of things")
	id, _, err := system.Save(t.Context(), record.Save{Command: handlers.Command{Actor: events.ActorSystem},
		Collection: "things", New: true, Set: handlerstest.Fields(`{"name":"n","seen":"x"}`)})
	is.NoErr(err)
	_, err = system.Delete(t.Context(), record.Delete{Command: handlers.Command{Actor: handlerstest.Alice},
		Collection: "things", Record: id})
	is.Equal(handlerstest.Refusal(t, err), handlers.Invalid)

	people := record.Open(eventstest.Log(t), things(everybody, record.Verbs{}))
	err = senders["by a tool"](people, `{"name":"n"}`)
	expect.Contains(t, err.Error(), "an assistant may not create records of things")
	is.NoErr(senders["by the operator"](people, `{"name":"n"}`))
}

func TestValuesOfACommandAreNormalized(t *testing.T) {
	t.Parallel()
	h := record.Open(eventstest.Log(t), things(everybody, record.Verbs{}))
	is.New(t).NoErr(senders["by the operator"](h, `{"name":"n","on":null,"until":"2026-01-02T03:04:05+01:00","colour":null}`))
	expect.Contains(t, handlerstest.Records(t, h.Log, "things")[0],
		`{"fields":{"colour":"","name":"n","on":false,"until":"2026-01-02 02:04:05.000Z"}}`)
}

// A secret goes to its bucket from any door. No event has it, and it is redacted from then on.
func TestASecretIsInNoEvent(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	safe := things(everybody, record.Verbs{Create: true})
	safe.Fields = append(safe.Fields, record.Field{Name: "token", Kind: record.Secret})
	safe.Secret = record.SecretStorage{Field: "token", Prefix: "thing", Source: secret.Channels, Changed: "seen"}
	h := record.Open(eventstest.Open(t, nc), safe)
	var err error
	h.Secrets, err = secret.Open(t.Context(), nc, 1)
	is.NoErr(err)
	for door, send := range senders {
		token := rand.Text()
		is.NoErr(send(h, `{"name":"`+door+`","token":"`+token+`"}`)) // door
		all, err := record.All[struct{ Name, Seen string }](t.Context(), h, "things")
		is.NoErr(err)
		last := all[len(all)-1]
		is.Equal(last.Value.Name, door)
		is.True(last.Value.Seen != "") // it says that the secret changed
		stored, err := h.Secret(t.Context(), "things", last.ID)
		is.NoErr(err)
		is.Equal(stored, token)
		expect.Lacks(t, strings.Join(handlerstest.Records(t, h.Log, "things"), "\n"), token)
		is.Equal(string(h.Log.Redactor().Bytes([]byte(token))), "[redacted]")

		_, err = h.Delete(t.Context(), record.Delete{Collection: "things", Record: last.ID})
		is.NoErr(err)
		stored, err = h.Secret(t.Context(), "things", last.ID)
		is.NoErr(err)
		is.Equal(stored, "")
	}
	expect.Contains(t, fmt.Sprint(senders["by the operator"](h, `{"name":"weak","token":"deploy to staging"}`)), "token")
}
