package web_test

import (
	"bytes"
	"maps"
	"net/http"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/web/webtest"
)

// What the phone app's Dart SDK and its offline cache send, request by request.

func TestWhatWasWrittenOfflineIsSentAgainWithoutHarm(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	id, token := s.User(t, "ada", "user")
	chat := map[string]any{"id": "abcdefghijklmno", "title": "PocketCoder Main", "user": id, "agent": ""}
	status, first := s.Call(t, token, "POST", webtest.RecordsPath("chats"), chat)
	is.Equal(status, 200)
	status, second := s.Call(t, token, "POST", webtest.RecordsPath("chats"), chat) // the answer was lost
	is.Equal(status, 200)
	is.Equal(second, first)
	chat["title"] = "another"
	status, refused := s.Call(t, token, "POST", webtest.RecordsPath("chats"), chat)
	is.Equal(status, 400) // the id is taken by other content
	is.True(refused["data"] != nil)
	// what the cache does after a 400
	status, patched := s.Call(t, token, "PATCH", webtest.RecordsPath("chats")+"/abcdefghijklmno", chat)
	is.Equal(status, 200)
	is.Equal(patched["title"], "another")

	message := map[string]any{"id": "message00000001", "chat": "abcdefghijklmno", "role": "user",
		"parts": []any{map[string]any{"type": "text", "text": "hello"}}}
	status, sent := s.Call(t, token, "POST", webtest.RecordsPath("messages"), message)
	is.Equal(status, 200)
	is.Equal(sent["user_message_status"], "pending")
	status, _ = s.Call(t, token, "POST", webtest.RecordsPath("messages"), message)
	is.Equal(status, 200)
	for _, bookkeeping := range []string{"synced", "isNew", "deleted", "noSync", "retryCount"} {
		sent[bookkeeping] = false
	}
	// the whole cached record
	status, _ = s.Call(t, token, "PATCH", webtest.RecordsPath("messages")+"/message00000001", sent)
	is.Equal(status, 200)
	status, _ = s.Call(t, token, "PATCH", webtest.RecordsPath("messages")+"/message00000001", message)
	is.Equal(status, 200)
	_, list := s.Call(t, token, "GET", webtest.RecordsPath("messages")+"?sort=created&filter="+
		webtest.Escape(`chat = "abcdefghijklmno"`), nil)
	is.Equal(list["totalItems"], 1.0)

	// OpenCode has taken the message: its parts are OpenCode's now, and say the same.
	s.Append(t, "abcdefghijklmno", events.SessionBound{Session: "ses_1", Directory: "/w"})
	s.Append(t, "abcdefghijklmno", events.MessageSending{Message: "message00000001", Session: "ses_1",
		EngineMessage: "msg_1", EngineParts: []string{"prt_1"}})
	s.AppendOpenCode(t, "abcdefghijklmno", "message.updated", `{"sessionID":"ses_1","info":{"id":"msg_1","role":"user","time":{}}}`)
	s.AppendOpenCode(t, "abcdefghijklmno", "message.part.updated",
		`{"sessionID":"ses_1","part":{"id":"prt_1","messageID":"msg_1","sessionID":"ses_1","type":"text","text":"hello"}}`)
	message["parts"] = []any{map[string]any{"type": "text", "text": "hello"}}
	status, delivered := s.Call(t, token, "PATCH", webtest.RecordsPath("messages")+"/message00000001", message)
	is.Equal(status, 200)
	is.Equal(delivered["user_message_status"], "delivered")
	status, _ = s.Call(t, token, "PATCH", webtest.RecordsPath("messages")+"/message00000001", delivered)
	is.Equal(status, 200)
	message["parts"] = []any{map[string]any{"type": "text", "text": "something else"}}
	status, _ = s.Call(t, token, "PATCH", webtest.RecordsPath("messages")+"/message00000001", message)
	is.Equal(status, 400)
}

func TestADecisionMadeOfflineCountsOnceOrNotAtAll(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	chat := s.Chat(t, token, "x")
	id := s.AppendRequest(t, chat, "per_1")
	at := webtest.RecordsPath("permissions") + "/" + id
	_, cached := s.Call(t, token, "GET", at, nil)
	is.Equal(cached["status"], "draft")

	offline := maps.Clone(cached) // the whole cached record, with read-only fields
	maps.Copy(offline, map[string]any{"status": "denied", "synced": false, "isNew": false,
		"metadata": map[string]any{"command": "rm -rf /"}, "approved_by": "me"})
	status, denied := s.Call(t, token, "PATCH", at, offline)
	is.Equal(status, 200)
	is.Equal(denied["status"], "denied")
	is.Equal(denied["metadata"], map[string]any{"command": "ls"})
	is.Equal(denied["approved_by"], "")
	status, _ = s.Call(t, token, "PATCH", at, offline) // repeats what is true
	is.Equal(status, 200)

	offline["status"] = "authorized"
	status, late := s.Call(t, token, "PATCH", at, offline)
	is.Equal(status, 400)
	is.Equal(late["data"].(map[string]any)["status"].(map[string]any)["code"], "validation_conflict")
	status, _ = s.Call(t, token, "POST", webtest.RecordsPath("permissions"), offline) // what the cache does after a 400
	is.Equal(status, 400)
	_, after := s.Call(t, token, "GET", at, nil)
	is.Equal(after, denied)
}

func TestTheScreensOfTheAppLoad(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	user, token := s.User(t, "ada", "user")
	_, admin := s.User(t, "root", "admin")
	for _, query := range []string{
		"users/records?sort=email&perPage=200&page=1", "ssh_keys/records?sort=-created",
		"chats/records?filter=" + webtest.Escape(`title = "PocketCoder Main"`),
		"ai_agents/records?expand=prompt,model&sort=name&filter=" + webtest.Escape(`name = "poco"`),
		"chats/records?sort=-updated", "chats/records?sort=-last_active&filter=" + webtest.Escape(`archived != true`),
		"permissions/records?sort=created&filter=" + webtest.Escape(`chat = "X" && status = "draft"`),
		"questions/records?sort=created&filter=" + webtest.Escape(`chat = "X" && status = "asked"`),
		"tool_permissions/records?sort=-created", "ai_prompts/records?sort=name", "ai_models/records?sort=name",
		"sandbox_agents/records?sort=-created", "proposals/records?sort=-created",
		"sops/records?sort=-created", "llm_keys/records", "llm_providers/records?sort=name", "model_selection/records",
		"mcp_servers/records?sort=-created",
		"devices/records?sort=-created&filter=" + webtest.Escape(`user = "`+user+`" && is_active = true`),
		"healthchecks/records?sort=name", "cron_jobs/records", "notification_rules/records",
	} {
		status, list := s.Call(t, token, "GET", "/api/collections/"+query, nil)
		if status != http.StatusOK {
			t.Errorf("%s: %d %v", query, status, list)
		}
	}

	// Creates without a user, which is the caller, and a second one for the same key changes the first.
	status, key := s.Call(t, token, "POST", webtest.RecordsPath("llm_keys"),
		map[string]any{"provider_id": "anthropic", "env_vars": map[string]string{"ANTHROPIC_API_KEY": "sk-secret-canary"}})
	is.Equal(status, 200)
	is.Equal(key["user"], user)
	is.Equal(key["env_vars"], map[string]any{"ANTHROPIC_API_KEY": ""}) // names only
	status, same := s.Call(t, token, "POST", webtest.RecordsPath("llm_keys"),
		map[string]any{"provider_id": "anthropic", "env_vars": map[string]string{"ANTHROPIC_API_KEY": "sk-other-canary"}})
	is.Equal(status, 200)
	is.Equal(same["id"], key["id"])
	s.Provider(t, "anthropic", "claude")
	status, chosen := s.Call(t, token, "POST", webtest.RecordsPath("model_selection"),
		map[string]any{"model": "anthropic/claude"})
	is.Equal(status, 200)
	chat, there := chosen["chat"]
	is.True(!there || chat == nil) // the global choice is the one without a chat

	status, wrong := s.Call(t, token, "POST", webtest.RecordsPath("ssh_keys"),
		map[string]any{"title": "t", "key": "k", "user": user})
	is.Equal(status, 400)
	is.True(wrong["data"].(map[string]any)["title"] != nil)
	line := webtest.PublicKey(t)
	status, ssh := s.Call(t, token, "POST", webtest.RecordsPath("ssh_keys"),
		map[string]any{"user": user, "public_key": line, "device_name": "phone", "fingerprint": "SHA256:forged=",
			"is_active": true})
	is.Equal(status, 200)
	is.True(ssh["fingerprint"] != "SHA256:forged=")
	status, _ = s.Call(t, token, "PATCH", webtest.RecordsPath("ssh_keys")+"/"+ssh["id"].(string),
		map[string]any{"last_used": "2026-01-02T03:04:05.678"})
	is.Equal(status, 200)
	status, lines := s.Raw(t, token, "GET", "/api/pocketcoder/ssh_keys", nil)
	is.Equal(status, 200)
	is.True(len(lines) > 0)

	status, proposal := s.Call(t, token, "POST", webtest.RecordsPath("proposals"),
		map[string]any{"name": "n", "content": "c", "authored_by": "human", "status": "draft"})
	is.Equal(status, 200)
	status, approved := s.Call(t, admin, "PATCH", webtest.RecordsPath("proposals")+"/"+proposal["id"].(string),
		map[string]any{"status": "approved", "approved_at": "2026-01-02T03:04:05.678901"})
	is.Equal(status, 200)
	is.Equal(approved["approved_at"], "2026-01-02 03:04:05.678Z")
	is.True(approved["updated"].(string) > proposal["updated"].(string))
	status, _ = s.Call(t, admin, "PATCH", webtest.RecordsPath("proposals")+"/"+proposal["id"].(string),
		map[string]any{"content": "never shown"})
	is.Equal(status, 400) // what was approved does not change afterwards

	var stored []byte
	_, err := s.Log.Fold(t.Context(), events.AllEvents, 0, func(e events.Event) error {
		stored = append(stored, e.Data...)
		return nil
	})
	is.NoErr(err)
	for _, canary := range []string{"sk-secret-canary", "sk-other-canary", webtest.Password} {
		is.True(!bytes.Contains(stored, []byte(canary))) // secrets are in no event
	}
}
