package events_test

import (
	"encoding/json"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/opencode"
	"pocketcoder/ops/expect"
)

func payload(typ, properties string) events.OpenCode {
	return events.OpenCode{Type: typ, Properties: json.RawMessage(properties)}
}

func TestDecodeReturnsTheTypeOfThePayload(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	for typ, c := range map[string]struct {
		properties string
		want       any
	}{
		"session.deleted":        {`{"sessionID":"ses_1","more":1}`, opencode.SessionDeleted{SessionID: "ses_1"}},
		"message.removed":        {`{"sessionID":"ses_1","messageID":"msg_1"}`, opencode.MessageRemoved{SessionID: "ses_1", MessageID: "msg_1"}},
		"message.part.removed":   {`{"sessionID":"ses_1","messageID":"msg_1","partID":"prt_1"}`, opencode.PartRemoved{SessionID: "ses_1", MessageID: "msg_1", PartID: "prt_1"}},
		events.PermissionReplied: {`{"sessionID":"ses_1","requestID":"per_1","reply":"once"}`, opencode.PermissionReplied{SessionID: "ses_1", RequestID: "per_1", Reply: "once"}},
		events.QuestionRejected:  {`{"sessionID":"ses_1","requestID":"que_1"}`, opencode.QuestionReplied{SessionID: "ses_1", RequestID: "que_1"}},
		events.QuestionAsked:     {`{"sessionID":"ses_1","id":"que_1"}`, events.QuestionRequest{ID: "que_1", SessionID: "ses_1"}},
		"not.known":              {`{"sessionID":"ses_1"}`, opencode.OtherPayload{SessionID: "ses_1"}},
		"server.connected":       {`{}`, opencode.OtherPayload{}},
	} {
		got, err := opencode.Decode(payload(typ, c.properties))
		is.NoErr(err)
		is.Equal(got, c.want)
	}
}

func TestDecodeRefusesAPayloadWithoutItsIDs(t *testing.T) {
	t.Parallel()
	for typ, properties := range map[string]string{
		"session.updated":      `{"info":{"id":"ses_1"}}`,
		"session.status":       `{"sessionID":"ses_1"}`,
		"message.updated":      `{"sessionID":"ses_1","info":{"id":"msg_1"}}`,
		"message.part.updated": `{"sessionID":"ses_1","part":{"id":"prt_1","type":"text"}}`,
		"message.part.removed": `{"sessionID":"ses_1","messageID":"msg_1"}`,
		"permission.asked":     `{"id":"per_1"}`,
	} {
		_, err := opencode.Decode(payload(typ, properties))
		is.New(t).True(err != nil)
		expect.Contains(t, err.Error(), "a "+typ+" without a required field")
	}
	_, err := opencode.Decode(payload("session.deleted", `{"sessionID":1}`))
	is.New(t).True(err != nil)
}

func TestPartKeepsItsText(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	const part = `{"id":"prt_1", "messageID":"msg_1","type":"tool","state":{"status":"running"},"later":[1]}`
	p, err := opencode.Read[opencode.PartUpdated](payload("message.part.updated", `{"sessionID":"ses_1","part":`+part+`}`))
	is.NoErr(err)
	is.Equal(p.Part.Raw, part)
	is.Equal(string(p.Part.State), `{"status":"running"}`)
}

func TestErrorIsReadWhateverItsShape(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		exists, aborted bool
		shown           string
	}{
		`{}`:             {},
		`{"error":null}`: {},
		`{"error":{"name":"MessageAbortedError","data":{"message":"Aborted"}}}`:   {true, true, "Aborted"},
		`{"error":{"name":"APIError","data":{"message":"no key\n  at line 1"}}}`:  {true, false, "no key"},
		`{"error":{"name":"UnknownError"}}`:                                       {true, false, "UnknownError"},
		`{"error":{"name":"MessageAbortedError","data":"a text, and no object"}}`: {true, true, "MessageAbortedError"},
		`{"error":"a text, and no object"}`:                                       {true, false, ""},
	} {
		is := is.New(t)
		p, err := opencode.Read[opencode.SessionError](payload("session.error", text))
		is.NoErr(err)
		is.Equal(p.Error.Exists(), want.exists)
		is.Equal(p.Error.Aborted(), want.aborted)
		is.Equal(p.Error.String(), want.shown)
	}
}
