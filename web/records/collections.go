package records

import (
	"pocketcoder/handlers/record"
	"pocketcoder/web/query/schema"
)

// Every collection, its fields as clients know them, and who may do what with its records. A rule is an expression that
// must hold for the record; never lets nobody, and only a login at _superusers is not asked. What a write does is in write.go:
// a rule that lets somebody create is not enough for that.

// The rules, from which the table below is put together.
var (
	never   *string
	authed  = schema.Rule(`@request.auth.id != ""`)
	admin   = schema.Rule(isAdmin)
	workers = schema.Rule(isStaff) // administrators and agents

	self          = schema.Rule(`id = @request.auth.id || ` + isAdmin)
	own           = schema.Rule(`user = @request.auth.id`)
	ownOrAdmin    = schema.Rule(`user = @request.auth.id || ` + isAdmin)
	ownOrStaff    = schema.Rule(`user = @request.auth.id || ` + isStaff)
	chatMember    = schema.Rule(`chat.user = @request.auth.id || ` + isStaff)
	chatOwner     = schema.Rule(`chat.user = @request.auth.id || ` + isAdmin)
	personOfIt    = schema.Rule(`(chat.user = @request.auth.id && @request.auth.role != "agent") || ` + isAdmin) // agents never approve
	selectsOwn    = schema.Rule(`user = @request.auth.id && (chat = "" || chat.user = @request.auth.id || ` + isAdmin + `)`)
	unlessChats   = schema.Rule(`@request.auth.id != "" && (chat = "" || chat.user = @request.auth.id || ` + isStaff + `)`) // what is of a chat, its members see
	budgetsOfMine = schema.Rule(isStaff + ` || (@request.auth.id != "" && (user = "" || user = @request.auth.id) && (chat = "" || chat.user = @request.auth.id))`)
	ranInMyChat   = schema.Rule(`executions_via_command.chat.user ?= @request.auth.id || ` + isStaff)
)

const (
	isAdmin = `@request.auth.role = "admin"`
	isStaff = `(@request.auth.role = "admin" || @request.auth.role = "agent")`
)

// rules takes the rules in this order: list, view, create, update, delete.
func rules(list, view, create, update, remove *string) schema.Rules {
	return schema.Rules{List: list, View: view, Create: create, Update: update, Delete: remove}
}

// ofLivingChat excludes the records of deleted chats.
const ofLivingChat = "NOT t.removed AND NOT EXISTS (SELECT 1 FROM chats AS living WHERE living.id = t.chat AND living.removed)"

// Catalogue is all collections.
var Catalogue = completed(schema.Catalogue{
	{
		Name: "users", Type: "auth", Table: "users", Rules: rules(self, self, admin, self, admin),
		Fields: fields(required(email("email")), fixed(flag("verified")), text("name"), fixed(text("avatar")),
			choice("role", "admin", "agent", "user"), flag("disabled")),
	},
	{
		Name: "chats", Table: "chats", Rules: rules(ownOrStaff, ownOrStaff, ownOrAdmin, ownOrAdmin, ownOrAdmin),
		Fields: fields(text("title"), fixed(text("ai_engine_session_id")), fixed(choice("engine_type", "opencode", "claude-code", "cursor", "custom")),
			required(relation("user", "users")), relation("agent", "ai_agents"), fixed(date("last_active")), fixed(text("preview")),
			fixed(choice("turn", "user", "assistant")), text("description"), flag("archived"), text("tags")),
	},
	{
		Name: "messages", Table: "messages", Where: "t.role <> ''", Live: ofLivingChat,
		Rules: rules(chatMember, chatMember, chatOwner, chatOwner, never),
		Fields: fields(required(relation("chat", "chats")), required(choice("role", "user", "assistant", "system")),
			fixed(choice("engine_message_status", "processing", "completed", "failed", "aborted")),
			fixed(choice("user_message_status", "pending", "sending", "delivered", "failed")),
			fixed(text("ai_engine_message_id")), fixed(text("parent_id")),
			as(raw("parts"), `coalesce((SELECT '['||group_concat(data, ',')||']' FROM (SELECT data FROM parts WHERE message = t.id AND NOT removed ORDER BY id)), t.submitted)`),
			fixed(choice("error_domain", "infrastructure", "provider")), fixed(raw("error_payload")),
			fixed(text("session")), as(fixed(text("subagent")), `coalesce((SELECT id FROM sessions WHERE id = t.session AND parent <> ''), '')`),
			fixed(text("agent")), fixed(text("provider")), fixed(text("model")), fixed(number("cost")), fixed(number("tokens_input")),
			fixed(number("tokens_output")), fixed(number("tokens_reasoning")), fixed(number("tokens_cache_read")), fixed(number("tokens_cache_write")),
			fixed(text("finish")), fixed(number("position")), fixed(text("held")), fixed(text("held_by")), fixed(text("notice"))),
	},
	{
		Name: "permissions", Table: "permissions", Live: ofLivingChat, Rules: rules(chatMember, chatMember, workers, personOfIt, never),
		Fields: fields(text("ai_engine_permission_id"), as(text("opencode_id"), "t.ai_engine_permission_id"), text("session_id"),
			required(text("permission")), raw("patterns"), raw("metadata"), fixed(raw("always")),
			choice("status", "draft", "authorized", "denied", "expired"), text("message"), text("reason"), fixed(text("source")), text("message_id"),
			text("call_id"), fixed(text("challenge")), required(relation("chat", "chats")), fixed(relation("approved_by", "users")), fixed(date("approved_at")),
			fixed(text("decided_by")), fixed(text("device")), fixed(text("rule")), fixed(text("rule_id")), fixed(number("rule_version")), fixed(flag("referred")),
			fixed(text("referred_reason")), fixed(text("cwd")), text("edited"), fixed(date("expires")), fixed(flag("interrupted")), fixed(text("request"))),
	},
	{
		Name: "questions", Table: "questions", Live: ofLivingChat, Rules: rules(chatMember, chatMember, never, personOfIt, never),
		Fields: fields(fixed(relation("chat", "chats")), fixed(text("question")), fixed(text("header")), fixed(raw("choices")), fixed(raw("descriptions")),
			fixed(flag("multiple")), fixed(flag("custom")), as(text("reply"), `coalesce((SELECT group_concat(value, ', ') FROM json_each(t.reply)), '')`),
			choice("status", "asked", "replied", "rejected", "expired"), as(fixed(number("index")), "t.idx"), fixed(text("ai_engine_question_id")), fixed(text("session_id")),
			fixed(text("message_id")), fixed(text("call_id")), fixed(flag("interrupted")), fixed(text("reason")), fixed(text("replied_by"))),
	},
	{
		Name: "executions", Table: "executions", Live: ofLivingChat, Rules: rules(chatMember, chatMember, never, never, never),
		Fields: fields(fixed(relation("permission", "permissions")), fixed(relation("command", "commands")), fixed(text("original")), fixed(relation("chat", "chats")),
			fixed(text("session_id")), fixed(text("call_id")), fixed(text("cwd")),
			fixed(choice("status", "executing", "completed", "failed", "refused", "cancelled", "timeout", "lost", "memory", "processes", "file-size", "cpu-time", "open-files", "output-size")),
			fixed(raw("outputs")), fixed(number("exit_code")),
			fixed(text("signal")), fixed(text("reason")), fixed(text("error")), fixed(number("stdout_bytes")), fixed(number("stderr_bytes")), fixed(number("duration_ms")),
			fixed(choice("source", "opencode", "person")), fixed(text("pool")), fixed(text("worker")), fixed(text("isolation")), fixed(flag("detached")), fixed(flag("terminal")),
			fixed(flag("private")), fixed(number("changed")), fixed(date("started")), fixed(date("finished"))),
	},
	{
		Name: "artifacts", Table: "artifacts", Live: ofLivingChat, Rules: rules(chatMember, chatMember, never, never, never),
		Fields: fields(fixed(relation("chat", "chats")), fixed(relation("execution", "executions")), fixed(text("path")), fixed(number("size")), fixed(text("sha256")),
			fixed(text("blob"))),
	},
	{
		Name: "commands", Table: "commands", Rules: rules(ranInMyChat, ranInMyChat, never, never, never),
		Fields: fields(fixed(text("hash")), fixed(text("command")), fixed(number("uses"))),
	},
	{
		Name: "subagents", Alias: "sandbox_agents", Table: "subagents", Live: ofLivingChat, Rules: rules(chatMember, chatMember, never, never, personOfIt),
		Fields: fields(fixed(text("subagent_id")), as(fixed(text("sandbox_agent_id")), "t.subagent_id"), fixed(text("delegating_agent_id")), fixed(number("tmux_window_id")),
			fixed(relation("chat", "chats")), as(fixed(relation("delegating_agent", "ai_agents")), "''"), fixed(text("agent")), fixed(text("title")),
			fixed(choice("status", "running", "completed", "failed", "aborted")), fixed(date("started")), fixed(date("finished"))),
	},
	{
		Name: "usage", Type: "view", Table: "usage", Live: "NOT EXISTS (SELECT 1 FROM chats AS living WHERE living.id = t.chat AND living.removed)",
		Rules: rules(chatMember, chatMember, never, never, never),
		Fields: fields(fixed(relation("chat", "chats")), fixed(text("provider")), fixed(text("model")), fixed(number("messages")), fixed(number("cost")),
			fixed(number("tokens_input")), fixed(number("tokens_output")), fixed(number("tokens_reasoning")), fixed(number("tokens_cache_read")), fixed(number("tokens_cache_write"))),
	},

	kept("ai_prompts", rules(authed, authed, admin, admin, admin), required(text("name")), required(text("body"))),
	kept("ai_models", rules(authed, authed, admin, admin, admin), required(text("name")), required(text("identifier"))),
	kept("ai_agents", rules(authed, authed, admin, admin, admin), required(text("name")), text("description"), choice("mode", "primary", "sandbox_agent"),
		number("temperature"), flag("is_init"), relation("prompt", "ai_prompts"), relation("model", "ai_models")),
	kept("tool_permissions", rules(unlessChats, unlessChats, personOfIt, personOfIt, personOfIt), relation("agent", "ai_agents"), required(text("tool")), required(text("pattern")),
		required(choice("action", "allow", "ask", "deny")), flag("active"), relation("chat", "chats"), date("expires_at"), fixed(relation("author", "users")), text("note")),
	kept("whitelist_actions", rules(authed, authed, admin, admin, admin), required(text("permission")), choice("kind", "strict", "pattern"), text("value"), flag("active")),
	kept("whitelist_targets", rules(authed, authed, admin, admin, admin), required(text("name")), required(text("pattern")), flag("active")),
	kept("budgets", rules(budgetsOfMine, budgetsOfMine, admin, admin, admin), required(text("name")), required(choice("scope", "chat", "day")), relation("chat", "chats"),
		relation("user", "users"), number("cost"), number("tokens"), flag("active")),
	kept("proposals", rules(authed, authed, authed, admin, admin), required(text("name")), text("description"), required(text("content")),
		required(choice("authored_by", "human", "poco")), required(choice("status", "draft", "approved")), date("approved_at")),
	kept("sops", rules(authed, authed, admin, admin, admin), required(text("name")), required(text("description")), required(text("content")),
		required(text("signature")), date("approved_at"), relation("proposal", "proposals"), date("sealed_at"), text("sealed_by"), text("version")),
	kept("ssh_keys", rules(ownOrAdmin, ownOrAdmin, own, ownOrAdmin, ownOrAdmin), relation("user", "users"), required(text("public_key")), text("device_name"), required(text("fingerprint")),
		text("algorithm"), number("key_size"), text("comment"), date("expires_at"), date("last_used"), flag("is_active")),
	aliased("cron_jobs", kept("schedules", rules(ownOrAdmin, ownOrAdmin, own, ownOrAdmin, ownOrAdmin), required(text("name")), text("description"), required(text("cron_expression")), required(text("prompt")),
		required(choice("session_mode", "existing", "new")), relation("chat", "chats"), relation("agent", "ai_agents"), required(relation("user", "users")), flag("enabled"),
		fixed(date("last_executed")), fixed(text("last_status")), fixed(text("last_error")))),
	kept("mcp_servers", rules(workers, workers, workers, admin, admin), required(text("name")), required(choice("status", "pending", "approved", "denied", "revoked")),
		text("requested_by"), relation("approved_by", "users"), date("approved_at"), raw("config"), text("catalog"), text("reason"), text("image"), raw("config_schema")),
	kept("devices", rules(own, own, own, own, own), required(relation("user", "users")), required(text("name")), required(text("push_token")),
		required(choice("push_service", "fcm", "unifiedpush", "webpush")), flag("is_active")),
	kept("notification_rules", rules(own, own, own, own, own), required(relation("user", "users")), raw("rules")),
	kept(record.ProviderKeysCollection, rules(ownOrAdmin, ownOrAdmin, own, own, ownOrAdmin), required(text("provider_id")), raw("env_vars"), required(relation("user", "users"))),
	kept("llm_providers", rules(authed, authed, never, never, never), fixed(text("provider_id")), fixed(text("name")), fixed(raw("env_vars")), fixed(raw("models")), fixed(flag("is_connected"))),
	kept(modelSelection, rules(ownOrStaff, ownOrStaff, selectsOwn, ownOrAdmin, ownOrAdmin), required(text("model")), required(relation("user", "users")), nullable(relation("chat", "chats"))),
	kept("healthchecks", rules(authed, authed, never, never, never), fixed(text("name")), fixed(choice("status", "starting", "ready", "degraded", "offline", "error")), fixed(date("last_ping"))),
})

// completed sets what most collections have in common. The id of a collection is its name; clients only compare it.
func completed(list schema.Catalogue) schema.Catalogue {
	for i, c := range list {
		list[i].ID = c.Name
		if c.Type == "" {
			list[i].Type = "base"
		}
		if c.Live == "" {
			list[i].Live = "NOT t.removed"
		}
	}
	return list
}

// kept is a collection of configuration records: JSON objects in the table config.
func kept(name string, r schema.Rules, list ...schema.Field) schema.Collection {
	for i, f := range list {
		list[i].SQL = "json_extract(t.fields, '$." + f.Name + "')"
		if f.Kind == schema.JSON {
			list[i].SQL = "t.fields -> '$." + f.Name + "'"
		}
	}
	return schema.Collection{Name: name, Table: "config", Key: "t.record", Where: "t.collection = '" + name + "'", Rules: r, Fields: fields(list...)}
}

func aliased(alias string, c schema.Collection) schema.Collection { c.Alias = alias; return c }

// The kinds of fields.
func fields(list ...schema.Field) []schema.Field { return list }

func text(name string) schema.Field   { return schema.Field{Name: name, Kind: schema.Text} }
func email(name string) schema.Field  { return schema.Field{Name: name, Kind: schema.Email} }
func number(name string) schema.Field { return schema.Field{Name: name, Kind: schema.Number} }
func flag(name string) schema.Field   { return schema.Field{Name: name, Kind: schema.Bool} }
func date(name string) schema.Field   { return schema.Field{Name: name, Kind: schema.Date} }
func raw(name string) schema.Field    { return schema.Field{Name: name, Kind: schema.JSON} }
func relation(name, to string) schema.Field {
	return schema.Field{Name: name, Kind: schema.Relation, Relation: to}
}
func choice(name string, values ...string) schema.Field {
	return schema.Field{Name: name, Kind: schema.Select, Values: values}
}

func required(f schema.Field) schema.Field       { f.Required = true; return f }
func fixed(f schema.Field) schema.Field          { f.ReadOnly = true; return f }
func nullable(f schema.Field) schema.Field       { f.Nullable = true; return f }
func as(f schema.Field, sql string) schema.Field { f.SQL = sql; return f }
