package webtest

import (
	"encoding/json"
	"testing"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/record"
	"pocketcoder/projections/store"
)

// AppendCommandRequest appends a request of OpenCode to run a command, and returns the id of its record.
func (s *System) AppendCommandRequest(t testing.TB, chat, request, command string) string {
	t.Helper()
	properties, err := json.Marshal(Object{
		"id": request, "sessionID": "ses_" + chat, "permission": "bash", "patterns": []string{command}, "always": []string{command}, "metadata": Object{"command": command},
		"tool": Object{"messageID": "msg_1", "callID": "call_" + request},
	})
	Check(t, err)
	s.commands.Store("call_"+request, command)
	s.AppendOpenCode(t, chat, "permission.asked", string(properties))
	return store.RecordID(request)
}

// Provider records a connected provider, as the running system does for those that OpenCode knows.
func (s *System) Provider(t testing.TB, id string, models ...string) {
	t.Helper()
	set := map[string]json.RawMessage{}
	for field, value := range map[string]any{"provider_id": id, "name": id, "models": models, "is_connected": true} {
		set[field], _ = json.Marshal(value)
	}
	_, seq, err := s.Records.Save(t.Context(), record.Save{
		Command: handlers.Command{Actor: events.ActorSystem}, Collection: "llm_providers", New: true, Set: set,
	})
	Check(t, err)
	Check(t, s.Model.Wait(t.Context(), seq))
}

func RecordsPath(collection string) string { return "/api/collections/" + collection + "/records" }

type Object = map[string]any

// Batch sends a batch and returns the status and the answer, as a list or as an object.
func (s *System) Batch(t testing.TB, token string, requests ...Object) (int, []any, Object) {
	t.Helper()
	status, answer := s.Raw(t, token, "POST", "/api/batch", Object{"requests": requests})
	var list []any
	var refused Object
	if status == 200 {
		Check(t, json.Unmarshal(answer, &list))
	} else {
		Check(t, json.Unmarshal(answer, &refused))
	}
	return status, list, refused
}
