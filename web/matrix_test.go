package web_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/project"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/recordtype"
	"pocketcoder/projections/store"
	"pocketcoder/web/records"
	"pocketcoder/web/webtest"
)

// The isolation matrix: who may do what with the records of each collection. The letters are those who may:
//
//	o  the owner of the record, or of the chat it hangs on        x  another account of the role user
//	a  an account of the role agent                               A  an administrator
//
// No other account may, and callers that are not logged in never may. Realtime shows what list and view show.
var matrix = map[string]struct{ list, view, create, update, remove string }{
	"users":              {"oA", "oA", "A", "oA", "A"},
	"chats":              {"oaA", "oaA", "oA", "oA", "oA"},
	"projects":           {"oxaA", "oxaA", "", "A", "A"}, // see projectMatrix for the members of a project
	"project_members":    {"oxaA", "oxaA", "A", "A", "A"},
	"messages":           {"oaA", "oaA", "oA", "oA", "oA"},
	"permissions":        {"oaA", "oaA", "aA", "oA", ""},
	"questions":          {"oaA", "oaA", "", "oA", ""},
	"executions":         {"oaA", "oaA", "", "", ""},
	"artifacts":          {"oaA", "oaA", "", "", ""},
	"commands":           {"oaA", "oaA", "", "", ""},
	"subagents":          {"oaA", "oaA", "", "", "oA"},
	"usage":              {"oaA", "oaA", "", "", ""},
	"seen_positions":     {"o", "o", "o", "o", ""},
	"ai_prompts":         {"oxaA", "oxaA", "A", "A", "A"},
	"ai_models":          {"oxaA", "oxaA", "A", "A", "A"},
	"ai_agents":          {"oxaA", "oxaA", "A", "A", "A"},
	"agent_notes":        {"oxaA", "oxaA", "A", "A", "A"}, // see projectMatrix
	"tool_permissions":   {"oxaA", "oxaA", "A", "A", "A"},
	"whitelist_actions":  {"oxaA", "oxaA", "A", "A", "A"},
	"whitelist_targets":  {"oxaA", "oxaA", "A", "A", "A"},
	"budgets":            {"oxaA", "oxaA", "A", "A", "A"},
	"proposals":          {"oxaA", "oxaA", "oxaA", "A", "A"},
	"sops":               {"oxaA", "oxaA", "A", "A", "A"},
	"ssh_keys":           {"oA", "oA", "o", "oA", "oA"},
	"schedules":          {"oA", "oA", "o", "oA", "oA"},
	"schedule_runs":      {"oA", "oA", "", "", ""},
	"mcp_servers":        {"aA", "aA", "aA", "A", "A"},
	"devices":            {"o", "o", "o", "o", "o"},
	"notification_rules": {"o", "o", "o", "o", "o"},
	"llm_keys":           {"oA", "oA", "o", "o", "oA"},
	"llm_providers":      {"oxaA", "oxaA", "", "", ""},
	"model_selection":    {"oaA", "oaA", "o", "oA", "oA"},
	"healthchecks":       {"oxaA", "oxaA", "", "", ""},
	"channels":           {"oxaA", "oxaA", "A", "A", "A"},
	"webhooks":           {"oA", "oA", "o", "oA", "oA"},
	"webhook_targets":    {"A", "A", "A", "A", "A"},
	"pairings":           {"oA", "oA", "", "", "oA"},
	"conversations":      {"oA", "oA", "", "", ""},
	"channel_messages":   {"oaA", "oaA", "", "", ""},
	"webhook_failures":   {"A", "A", "", "", ""},
}

// cast are the accounts of the matrix; ada owns every record.
type cast struct {
	*webtest.System
	ada    string
	tokens map[string]string // by letter; "-" is a guest
	n      int
}

func newCast(t *testing.T) *cast {
	c := &cast{System: webtest.NewSystem(t), tokens: map[string]string{"-": ""}}
	c.Provider(t, "p", "first", "other")
	c.ada, c.tokens["o"] = c.User(t, "ada", "user")
	_, c.tokens["x"] = c.User(t, "bob", "user")
	_, c.tokens["a"] = c.User(t, "worker", "agent")
	_, c.tokens["A"] = c.User(t, "root", "admin")
	return c
}

// body is what creates a record that belongs to ada.
func (c *cast) body(t *testing.T, collection string) map[string]any {
	c.n++
	unique := fmt.Sprintf("n%d", c.n)
	chat := func() string { return c.Chat(t, c.tokens["o"], unique) }
	switch collection {
	case "users":
		return map[string]any{"email": unique + "@example.org", "password": webtest.Password, "name": unique, "role": "user"}
	case "chats":
		return map[string]any{"title": unique, "user": c.ada}
	case "messages":
		return map[string]any{"chat": chat(), "role": "user", "parts": []map[string]any{{"type": "text", "text": unique}}}
	case "permissions":
		return map[string]any{"chat": chat(), "permission": "bash", "patterns": []string{"rm *"},
			"metadata": map[string]any{"command": "rm x"}}
	case "ai_prompts":
		return map[string]any{"name": unique, "body": "b"}
	case "ai_models":
		return map[string]any{"name": unique, "identifier": "p/m"}
	case "ai_agents":
		return map[string]any{"name": unique, "temperature": 0.1}
	case "agent_notes":
		return map[string]any{"agent": c.record(t, "ai_agents"), "name": unique, "content": "c"}
	case "tool_permissions":
		return map[string]any{"tool": "bash", "pattern": unique, "action": "ask", "active": true}
	case "whitelist_actions":
		return map[string]any{"permission": "bash", "kind": "strict", "value": unique, "active": true}
	case "whitelist_targets":
		return map[string]any{"name": unique, "pattern": "/workspace/**", "active": true}
	case "budgets":
		return map[string]any{"name": unique, "scope": "day", "cost": 5, "active": true}
	case "proposals":
		return map[string]any{"name": unique, "content": "c", "authored_by": "human", "status": "draft"}
	case "sops":
		return map[string]any{"name": unique, "description": "d", "content": "c"}
	case "ssh_keys":
		return map[string]any{"user": c.ada, "public_key": webtest.PublicKey(t), "device_name": unique, "is_active": true}
	case "schedules":
		return map[string]any{"user": c.ada, "name": unique, "cron_expression": "0 9 * * *", "prompt": "p",
			"session_mode": "new", "enabled": true}
	case "mcp_servers":
		return map[string]any{"name": unique, "status": "pending"}
	case "devices":
		return map[string]any{"user": c.ada, "name": "phone", "push_token": unique, "push_service": "unifiedpush",
			"is_active": true}
	case "notification_rules":
		return map[string]any{"user": c.ada, "rules": map[string]bool{"permission": true}}
	case "llm_keys":
		return map[string]any{"user": c.ada, "provider_id": unique, "env_vars": map[string]string{"KEY": "value-" + unique}}
	case "webhooks":
		return map[string]any{"user": c.ada, "name": unique}
	case "webhook_targets":
		return map[string]any{"name": unique, "url": "https://example.org/" + unique, "types": "turn.lost"}
	case "channels":
		return map[string]any{"name": unique, "kind": "telegram", "token": botToken}
	case "seen_positions":
		return map[string]any{"user": c.ada, "chat": chat(), "seq": 1}
	case "project_members":
		c.NewAccount(t, unique, "user")
		return map[string]any{"project": events.DefaultEngine, "email": unique + "@example.org", "role": "viewer"}
	case "model_selection":
		return map[string]any{"user": c.ada, "model": "p/first", "chat": chat()}
	}
	return map[string]any{"name": unique}
}

// updates are fields to update in a record of each collection.
var updates = map[string]map[string]any{
	"projects": {"agent": ""}, "project_members": {"role": "member"}, "users": {"name": "other"}, "chats": {"title": "other"}, "messages": {}, "permissions": {"status": "denied"}, "questions": {"status": "replied", "reply": "Red"},
	"ai_prompts": {"body": "other"}, "ai_models": {"identifier": "other"}, "ai_agents": {"description": "other"}, "agent_notes": {"content": "other"}, "tool_permissions": {"active": false},
	"whitelist_actions": {"active": false}, "whitelist_targets": {"active": false}, "budgets": {"cost": 6}, "proposals": {"status": "approved", "approved_at": "2026-01-02T03:04:05"},
	"sops": {"version": "2"}, "ssh_keys": {"is_active": false}, "schedules": {"enabled": false}, "mcp_servers": {"status": "denied"},
	"devices": {"is_active": false}, "notification_rules": {"rules": map[string]bool{}}, "llm_keys": {"env_vars": map[string]string{"KEY": "x-other-value"}}, "model_selection": {"model": "p/other"}, "channels": {"enabled": false}, "webhook_targets": {"enabled": false}, "webhooks": {"enabled": false}, "seen_positions": {"seq": 2},
}

// record makes a record of ada's, in whatever way such a record comes to be.
func (c *cast) record(t *testing.T, collection string) string {
	t.Helper()
	c.n++
	unique := fmt.Sprintf("u%d", c.n)
	switch collection {
	case "users":
		return c.ada
	case "projects":
		_, err := project.Ensure(t.Context(), c.Records, project.Project{ID: unique, Name: unique, Directory: "/" + unique,
			Everyone: project.Viewer})
		webtest.Check(t, err)
		last, err := c.Log.Last(t.Context())
		webtest.Check(t, err)
		webtest.Check(t, c.Model.Wait(t.Context(), last))
		return unique
	case "permissions":
		return c.AppendRequest(t, c.Chat(t, c.tokens["o"], unique), "per_"+unique)
	case "questions":
		chat := c.Chat(t, c.tokens["o"], unique)
		c.AppendOpenCode(t, chat, "question.asked", `{"id":"que_`+unique+
			`","sessionID":"ses_1","questions":[{"question":"?","header":"h","options":[{"label":"Red","description":"d"}]}],"tool":{"messageID":"m","callID":"c"}}`)
		return store.RecordID("que_" + unique + "/0")
	case "executions", "commands":
		return c.ran(t, c.Chat(t, c.tokens["o"], unique), unique)[collection]
	case "artifacts":
		chat := c.Chat(t, c.tokens["o"], unique)
		exec := c.ran(t, chat, unique)["executions"]
		c.Append(t, chat, events.ExecChanged{Exec: exec, Files: []events.Artifact{{Path: "a", SHA256: "00"}}})
		return store.RecordID(exec + "/a")
	case "subagents":
		chat := c.Chat(t, c.tokens["o"], unique)
		c.AppendOpenCode(t, chat, "session.created", `{"sessionID":"ses_`+unique+`","info":{"id":"ses_`+unique+
			`","parentID":"ses_p","directory":"/w","title":"t"}}`)
		c.AppendOpenCode(t, chat, "session.status", `{"sessionID":"ses_`+unique+`","status":{"type":"busy"}}`)
		return store.RecordID("ses_" + unique)
	case "usage":
		chat := c.Chat(t, c.tokens["o"], unique)
		c.AppendOpenCode(t, chat, "message.updated", `{"sessionID":"ses_1","info":{"id":"msg_`+unique+
			`","role":"assistant","providerID":"p","modelID":"m","cost":1,"time":{}}}`)
		return chat + ".p.m"
	case "schedule_runs":
		e, err := events.NewConfig("schedules", c.record(t, "schedules"), events.ActorSystem,
			events.ScheduleSkipped{Reason: "missed"})
		webtest.Check(t, err)
		seq, err := c.Log.Append(t.Context(), e)
		webtest.Check(t, err)
		webtest.Check(t, c.Model.Wait(t.Context(), seq))
		return e.ID
	case "webhook_failures":
		target := c.record(t, "webhook_targets")
		e, err := events.NewConfig("webhook_targets", target, events.ActorSystem, events.WebhookFailed{Event: 1})
		webtest.Check(t, err)
		seq, err := c.Log.Append(t.Context(), e)
		webtest.Check(t, err)
		webtest.Check(t, c.Model.Wait(t.Context(), seq))
		return events.ChannelID(target, "1")
	case "channel_messages":
		c.Append(t, c.Chat(t, c.tokens["o"], unique), events.ChannelQueued{Message: unique, Type: events.OutgoingNotice, Text: "t"})
		return unique
	case "llm_providers", "healthchecks", "pairings", "conversations":
		set := map[string]map[string]any{"llm_providers": {"name": unique}, "healthchecks": {"name": unique},
			"pairings": {"name": unique, "user": c.ada}, "conversations": {"place": unique, "user": c.ada}}[collection]
		id, seq, err := c.Records.Save(t.Context(), record.Save{
			Command: handlers.Command{Actor: events.ActorSystem}, Collection: collection, New: true, Set: record.Fields(set),
		})
		webtest.Check(t, err)
		webtest.Check(t, c.Model.Wait(t.Context(), seq))
		return id
	}
	by := c.tokens["A"]
	if strings.Contains(matrix[collection].create, "o") {
		by = c.tokens["o"]
	}
	status, made := c.Call(t, by, "POST", "/api/collections/"+collection+"/records", c.body(t, collection))
	if status != 200 {
		t.Fatalf("make a record of %s: %d %v", collection, status, made)
	}
	return made["id"].(string)
}

// ran makes an execution of a command that nothing else ran.
func (c *cast) ran(t *testing.T, chat, unique string) map[string]string {
	t.Helper()
	e, err := events.New(chat, events.ActorSandbox, events.ExecRequested{Exec: "x" + unique, Permission: "per_1",
		Session: "ses_1", Call: "call_1", Command: "echo " + unique, Cwd: "/w", Pool: "default"})
	webtest.Check(t, err)
	seq, err := c.Log.Append(t.Context(), e)
	webtest.Check(t, err)
	webtest.Check(t, c.Model.Wait(t.Context(), seq))
	_, list := c.Call(t, c.tokens["A"], "GET", "/api/collections/commands/records?filter="+
		webtest.Escape(`command="echo `+unique+`"`), nil)
	items := list["items"].([]any)
	return map[string]string{"executions": "x" + unique, "commands": items[0].(map[string]any)["id"].(string)}
}

func TestTheMatrixNamesEveryCollection(t *testing.T) {
	var names []string
	for _, c := range records.CollectionsOf(recordtype.All(recordtype.Machine{})).Catalogue() {
		names = append(names, c.Name)
	}
	slices.Sort(names)
	if want := slices.Sorted(maps.Keys(matrix)); !slices.Equal(names, want) {
		t.Fatalf("collections %v, in the matrix %v", names, want)
	}
}

func TestIsolationMatrix(t *testing.T) {
	t.Parallel()
	c := newCast(t)
	for _, collection := range slices.Sorted(maps.Keys(matrix)) {
		may := matrix[collection]
		records := "/api/collections/" + collection + "/records"
		for _, who := range []string{"o", "x", "a", "A", "-"} {
			name := func(op string) string { return op + " " + collection + " as " + who }
			token := c.tokens[who]

			id := c.record(t, collection)
			status, list := c.Call(t, token, "GET", records+"?filter="+webtest.Escape(`id="`+id+`"`), nil)
			seen := status == 200 && len(list["items"].([]any)) == 1
			c.verdict(t, name("list"), seen, strings.Contains(may.list, who), status, list)
			status, got := c.Call(t, token, "GET", records+"/"+id, nil)
			c.verdict(t, name("view"), status == 200, strings.Contains(may.view, who), status, got)
			status, got = c.Call(t, token, "POST", records, c.body(t, collection))
			c.verdict(t, name("create"), status == 200, strings.Contains(may.create, who), status, got)
			status, got = c.Call(t, token, "PATCH", records+"/"+id, updates[collection])
			c.verdict(t, name("update"), status == 200, strings.Contains(may.update, who), status, got)
			if collection == "users" && who != "-" {
				id, _ = c.User(t, fmt.Sprint("extra", c.n), "user") // not the one that the rest needs
			}
			status, got = c.Call(t, token, "DELETE", records+"/"+id, nil)
			c.verdict(t, name("delete"), status == 204, strings.Contains(may.remove, who), status, got)
		}
	}
}

// verdict fails when what happened is not what may, or when a refusal is not one that PocketBase would give.
func (c *cast) verdict(t *testing.T, what string, did, may bool, status int, answer map[string]any) {
	t.Helper()
	if did != may {
		t.Errorf("%s: happened %v, may %v: %d %v", what, did, may, status, answer)
	}
	if status >= 500 || status >= 400 && answer["data"] == nil {
		t.Errorf("%s: %d %v", what, status, answer)
	}
	if strings.HasSuffix(what, " as -") && status != 401 {
		t.Errorf("%s: want 401, got %d", what, status)
	}
}
