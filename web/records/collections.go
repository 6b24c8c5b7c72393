package records

import (
	"cmp"
	"context"

	"pocketcoder/events"
	"pocketcoder/handlers/channel"
	"pocketcoder/handlers/model"
	"pocketcoder/handlers/note"
	"pocketcoder/handlers/proposal"
	"pocketcoder/handlers/record"
	"pocketcoder/projections"
	"pocketcoder/web/query/schema"
)

// collection is all that this package knows about one collection.
type collection struct {
	schema.Collection
	write         writer
	options       []schema.Field // fields of a body that no record shows
	notInBatch    bool           // its writes also change data outside the log, which a transaction cannot undo
	ofAllUsers    bool           // a record without a user is for all users; elsewhere it is the caller's
	madeToken     bool           // a new record gets a token, which the system makes; a body with one is refused
	inCreatedChat bool           // a batch may create a record in a chat that it creates: no rule finds that chat yet
}

// writer sends the changes of one collection as commands. Each function returns the record's id and the sequence of
// the event. A nil function is not allowed.
type writer struct {
	create, update, remove func(s *Records, ctx context.Context, w change) (id string, seq uint64, err error)
}

// Catalogue is the schema of all collections.
var Catalogue = catalogueOf(collections)

// catalogueOf sets what most collections have in common, and returns the schemas.
func catalogueOf(list []collection) (all schema.Catalogue) {
	for i := range list {
		c := &list[i].Collection
		c.ID = c.Name // clients only compare it
		c.Type, c.Live = cmp.Or(c.Type, "base"), cmp.Or(c.Live, "NOT t.removed")
		all = append(all, *c)
	}
	return all
}

// A rule is an expression that must hold for the record. never admits only superusers, whom no rule restricts.
var (
	never   *string
	authed  = schema.Rule(`@request.auth.id != ""`)
	admin   = schema.Rule(isAdmin)
	workers = schema.Rule(isStaff) // administrators and agents

	self       = schema.Rule(`id = @request.auth.id || ` + isAdmin)
	own        = schema.Rule(`user = @request.auth.id`)
	ownOrAdmin = schema.Rule(`user = @request.auth.id || ` + isAdmin)
	ownOrStaff = schema.Rule(`user = @request.auth.id || ` + isStaff)
	chatMember = schema.Rule(`chat.user = @request.auth.id || ` + isStaff)
	chatOwner  = schema.Rule(`chat.user = @request.auth.id || ` + isAdmin)
	// agents never approve
	chatOwnerNotAgent = schema.Rule(`(chat.user = @request.auth.id && @request.auth.role != "agent") || ` + isAdmin)
	ownSelection      = schema.Rule(`user = @request.auth.id && (chat = "" || chat.user = @request.auth.id || ` + isAdmin +
		`)`)
	runOfOwnSchedule = schema.Rule(`schedule.user = @request.auth.id || ` + isAdmin)
	// every account sees records without a chat, and the owner of a chat sees those of the chat
	globalOrOwnChat = schema.Rule(`@request.auth.id != "" && (chat = "" || chat.user = @request.auth.id || ` + isStaff +
		`)`)
	ownBudgets   = schema.Rule(isStaff + ` || (@request.auth.id != "" && (user = "" || user = @request.auth.id) && (chat = "" || chat.user = @request.auth.id))`)
	ranInOwnChat = schema.Rule(`executions_via_command.chat.user ?= @request.auth.id || ` + isStaff)
)

const (
	isAdmin = `@request.auth.role = "admin"`
	isStaff = `(@request.auth.role = "admin" || @request.auth.role = "agent")`
)

// rules takes the rules in this order: list, view, create, update, delete.
func rules(list, view, create, update, remove *string) schema.Rules {
	return schema.Rules{List: list, View: view, Create: create, Update: update, Delete: remove}
}

// inForce is the text of the procedure or the prompt that has the name of a proposal.
const inForce = `coalesce((SELECT coalesce(s.fields ->> '$.content', s.fields ->> '$.body') FROM config AS s
	WHERE s.collection = CASE t.fields ->> '$.kind' WHEN 'agent' THEN '' WHEN 'prompt' THEN 'ai_prompts' ELSE 'sops' END
	AND NOT s.removed AND s.fields ->> '$.name' = t.fields ->> '$.name' ORDER BY s.last_seq DESC LIMIT 1), '')`

// ofLivingChat excludes the records of deleted chats.
const ofLivingChat = "NOT t.removed AND NOT EXISTS (SELECT 1 FROM chats AS living WHERE living.id = t.chat AND living.removed)"

// ofLivingTarget excludes the records of deleted webhook targets.
const ofLivingTarget = "NOT t.removed AND EXISTS (SELECT 1 FROM config AS living WHERE living.id = '" + channel.Targets +
	"/' || t.target AND NOT living.removed)"

// collections lists every collection. A new collection is a new value here. Package handlers/record checks
// configuration records further.
var collections = []collection{
	{
		Collection: schema.Collection{Name: "users", Type: "auth", Table: "users", Rules: rules(self, self, admin, self, admin),
			Fields: fields(required(email("email")), fixed(flag("verified")), text("name"), fixed(text("avatar")),
				choice("role", "admin", "agent", "user"), flag("disabled"))},
		write: writer{createUser, updateUser, deleteUser}, notInBatch: true,
		options: fields(raw("password"), raw("passwordConfirm"), raw("oldPassword"), raw("emailVisibility")),
	},
	{
		Collection: schema.Collection{Name: "chats", Table: "chats", Rules: rules(ownOrStaff, ownOrStaff, ownOrAdmin, ownOrAdmin, ownOrAdmin),
			Fields: fields(text("title"), fixed(text("ai_engine_session_id")), fixed(choice("engine_type", "opencode", "claude-code", "cursor", "custom")),
				required(relation("user", "users")), relation("agent", "ai_agents"), fixed(date("last_active")),
				fixed(text("preview")),
				fixed(choice("turn", "user", "assistant")), text("description"), flag("archived"), text("tags"),
				fixed(relation("parent", "chats")), fixed(relation("root", "chats")), fixed(number("depth")))},
		write: writer{createChat, updateChat, deleteChat},
	},
	{
		Collection: schema.Collection{Name: "messages", Table: "messages", Where: "t.role <> ''", Live: ofLivingChat,
			Rules: rules(chatMember, chatMember, chatOwner, chatOwner, chatOwner),
			Fields: fields(required(relation("chat", "chats")), required(choice("role", "user", "assistant", "system")),
				fixed(choice("engine_message_status", "processing", "completed", "failed", "aborted")),
				fixed(choice("user_message_status", "pending", "sending", "delivered", "failed")),
				fixed(text("ai_engine_message_id")), fixed(text("parent_id")),
				as(raw("parts"), `coalesce((SELECT '['||group_concat(data, ',')||']' FROM (SELECT data FROM parts WHERE message = t.id AND NOT removed ORDER BY id)), t.submitted)`),
				as(fixed(raw("commands")), projections.CommandsOf("t")),
				fixed(choice("error_domain", "infrastructure", "provider")), fixed(raw("error_payload")),
				fixed(text("session")), as(fixed(text("subagent")),
					`coalesce((SELECT id FROM sessions WHERE id = t.session AND parent <> ''), '')`),
				fixed(text("agent")), fixed(text("provider")), fixed(text("model")), fixed(about(number("cost"), inDollars)),
				fixed(number("tokens_input")),
				fixed(number("tokens_output")), fixed(number("tokens_reasoning")), fixed(number("tokens_cache_read")),
				fixed(number("tokens_cache_write")),
				fixed(text("finish")),
				as(fixed(choice("ending", "complete", "cut", "empty", "filtered", "lost", "stopped", "denied", "failed")),
					projections.EndingOfMessage("t")),
				fixed(number("position")), fixed(text("held")), fixed(text("held_by")),
				fixed(text("notice")),
				choice("delivery", events.DeliveryQueue, events.DeliverySteer), fixed(text("sender")), fixed(raw("reports")),
				fixed(relation("schedule", projections.ScheduleCollection)))},
		write: writer{createMessage, updateMessage, deleteQueuedMessage}, inCreatedChat: true,
		options: fields(text("before")), // see chat.ChangeMessage
	},
	{
		Collection: schema.Collection{Name: "permissions", Table: "permissions", Live: ofLivingChat, Rules: rules(chatMember, chatMember, workers, chatOwnerNotAgent, never),
			Fields: fields(text("ai_engine_permission_id"), as(text("opencode_id"), "t.ai_engine_permission_id"), text("session_id"),
				required(text("permission")), raw("patterns"), raw("metadata"), fixed(raw("always")),
				choice("status", "draft", "authorized", "denied", "expired"), text("message"), text("reason"),
				fixed(text("source")), text("message_id"),
				text("call_id"), fixed(text("challenge")), required(relation("chat", "chats")),
				fixed(relation("approved_by", "users")), fixed(date("approved_at")),
				fixed(text("decided_by")), fixed(text("device")), fixed(text("rule")), fixed(text("rule_id")),
				fixed(number("rule_version")), fixed(flag("referred")),
				fixed(text("referred_reason")), fixed(text("cwd")), text("edited"), fixed(date("expires")),
				fixed(flag("interrupted")), fixed(text("request")), fixed(raw("files")), fixed(text("files_hash")),
				about(fixed(flag("applied")), "Of type keep: the sandbox has carried out the decision."),
				about(fixed(text("failure")), "Of type keep: why the sandbox could not carry out the decision."))},
		write: writer{createPermission, decidePermission, nil},
		// in seconds; see permission.ShownRequest
		options: fields(number("expires_in"),
			about(text("shown_command"), shownCommand), about(text("shown_request"), shownRequest),
			about(text("shown_files"), shownFiles)),
	},
	{
		Collection: schema.Collection{Name: "questions", Table: "questions", Live: ofLivingChat, Rules: rules(chatMember, chatMember, never, chatOwnerNotAgent, never),
			Fields: fields(fixed(relation("chat", "chats")), fixed(text("question")), fixed(text("header")), fixed(raw("choices")), fixed(raw("descriptions")),
				fixed(flag("multiple")), fixed(flag("custom")), as(text("reply"),
					`coalesce((SELECT group_concat(value, ', ') FROM json_each(t.reply)), '')`),
				choice("status", "asked", "replied", "rejected", "expired"), as(fixed(number("index")), "t.idx"),
				fixed(text("ai_engine_question_id")), fixed(text("session_id")),
				fixed(text("message_id")), fixed(text("call_id")), fixed(flag("interrupted")), fixed(text("reason")),
				fixed(text("replied_by")))},
		write: writer{nil, answerQuestion, nil},
	},
	{
		Collection: schema.Collection{Name: "executions", Table: "executions", Live: ofLivingChat, Rules: rules(chatMember, chatMember, never, never, never),
			Fields: fields(fixed(relation("permission", "permissions")), fixed(relation("command", "commands")), fixed(text("original")), fixed(relation("chat", "chats")),
				fixed(text("session_id")), fixed(text("call_id")), fixed(text("cwd")),
				fixed(choice("status", "executing", "completed", "failed", "refused", "cancelled", "timeout", "lost", "memory",
					"processes", "file-size", "cpu-time", "open-files", "output-size", "protected-name")),
				fixed(text("left_behind")), fixed(raw("outputs")), fixed(number("exit_code")),
				fixed(text("signal")), fixed(text("reason")), fixed(text("error")), fixed(number("stdout_bytes")),
				fixed(number("stderr_bytes")), fixed(number("duration_ms")),
				fixed(choice("source", "opencode", "person")), fixed(text("pool")), fixed(text("worker")),
				fixed(text("isolation")), fixed(flag("detached")), fixed(flag("terminal")),
				fixed(flag("private")), fixed(number("changed")), fixed(date("started")), fixed(date("finished")))},
	},
	{
		Collection: schema.Collection{Name: "artifacts", Table: "artifacts", Live: ofLivingChat, Rules: rules(chatMember, chatMember, never, never, never),
			Fields: fields(fixed(relation("chat", "chats")), fixed(relation("execution", "executions")), fixed(text("path")), fixed(number("size")), fixed(text("sha256")),
				fixed(text("blob")), fixed(text("caption")))},
	},
	{
		Collection: schema.Collection{Name: "commands", Table: "commands", Rules: rules(ranInOwnChat, ranInOwnChat, never, never, never),
			Fields: fields(fixed(text("hash")), fixed(text("command")), fixed(number("uses")))},
	},
	{
		Collection: schema.Collection{Name: "subagents", Alias: "sandbox_agents", Table: "subagents", Live: ofLivingChat, Rules: rules(chatMember, chatMember, never, never, chatOwnerNotAgent),
			Fields: fields(fixed(text("subagent_id")), as(fixed(text("sandbox_agent_id")), "t.subagent_id"), fixed(text("delegating_agent_id")), fixed(number("tmux_window_id")),
				fixed(relation("chat", "chats")), as(fixed(relation("delegating_agent", "ai_agents")), "''"), fixed(text("agent")),
				fixed(text("title")),
				as(fixed(choice("status", "running", "completed", "failed", "aborted")), projections.StatusOfSubagent("t")),
				fixed(date("started")), fixed(date("finished")))},
		write: writer{nil, nil, stopSubagent},
	},
	{
		Collection: schema.Collection{Name: "usage", Type: "view", Table: "usage", Live: ofLivingChat,
			Rules: rules(chatMember, chatMember, never, never, never),
			Fields: fields(fixed(relation("chat", "chats")), fixed(text("provider")), fixed(text("model")), fixed(number("messages")), fixed(about(number("cost"), inDollars)),
				fixed(number("tokens_input")), fixed(number("tokens_output")), fixed(number("tokens_reasoning")),
				fixed(number("tokens_cache_read")), fixed(number("tokens_cache_write")))},
	},

	{
		Collection: schema.Collection{Name: "seen_positions", Table: "seen_positions", Live: ofLivingChat, Rules: rules(own, own, own, own, never),
			Fields: fields(required(relation("user", "users")), required(relation("chat", "chats")), required(number("seq")))},
		write: writer{createSeenPosition, updateSeenPosition, nil},
	},

	configCollection("ai_prompts", rules(authed, authed, admin, admin, admin), required(text("name")),
		required(text("body"))),
	configCollection("ai_models", rules(authed, authed, admin, admin, admin), required(text("name")),
		required(text("identifier"))),
	configCollection("ai_agents", rules(authed, authed, admin, admin, admin), required(text("name")), text("description"),
		choice("mode", "primary", "sandbox_agent"),
		number("temperature"), number("top_p"), flag("is_init"),
		relation("prompt", "ai_prompts"), relation("model", "ai_models")),
	writtenBy(writer{saveNote, saveRecord, deleteRecord}, configCollection(note.Collection,
		rules(workers, workers, admin, admin, admin), required(relation("agent", "ai_agents")), required(text("name")),
		text("content"))),
	configCollection("tool_permissions", rules(globalOrOwnChat, globalOrOwnChat, chatOwnerNotAgent, chatOwnerNotAgent,
		chatOwnerNotAgent),
		relation("agent", "ai_agents"), required(text("tool")), required(text("pattern")),
		required(choice("action", "allow", "ask", "deny")), flag("active"), relation("chat", "chats"), date("expires_at"),
		fixed(relation("author", "users")), text("note")),
	configCollection("whitelist_actions", rules(authed, authed, admin, admin, admin), required(text("permission")),
		choice("kind", "strict", "pattern"), text("value"), flag("active")),
	configCollection("whitelist_targets", rules(authed, authed, admin, admin, admin), required(text("name")),
		required(text("pattern")), flag("active")),
	ofAllUsers(configCollection("budgets", rules(ownBudgets, ownBudgets, admin, admin, admin), required(text("name")),
		required(choice("scope", "chat", "day")), relation("chat", "chats"),
		relation("user", "users"), about(number("cost"), inDollars), number("tokens"), flag("active"))),
	withOptions(fields(about(text(record.ShownDefinition), shownProposal)), configCollection(proposal.Collection,
		rules(authed, authed, authed, admin, admin),
		choice("kind", proposal.Procedure, proposal.Agent, proposal.Prompt),
		required(text("name")), text("description"), required(text("content")),
		required(choice("authored_by", "human", "poco")),
		required(choice("status", proposal.Draft, proposal.Approved, proposal.Denied)),
		date("approved_at"), fixed(text("definition")), fixed(as(text("in_force"), inForce)), fixed(text("problem")),
		fixed(choice("effect", proposal.Pending, proposal.Done)))),
	configCollection(proposal.Procedures, rules(authed, authed, admin, admin, admin), required(text("name")),
		required(text("description")),
		required(text("content")),
		computed(required(text("signature"))), date("approved_at"), relation("proposal", proposal.Collection),
		date("sealed_at"), text("sealed_by"), text("version")),
	writtenBy(writer{saveSSHKey, saveSSHKey, deleteRecord}, configCollection("ssh_keys",
		rules(ownOrAdmin, ownOrAdmin, own, ownOrAdmin, ownOrAdmin), relation("user", "users"),
		required(text("public_key")), text("device_name"), computed(required(text("fingerprint"))), text("algorithm"),
		number("key_size"), text("comment"), date("expires_at"), date("last_used"), flag("is_active"))),
	aliased("cron_jobs", configCollection(projections.ScheduleCollection,
		rules(ownOrAdmin, ownOrAdmin, own, ownOrAdmin, ownOrAdmin),
		required(text("name")), text("description"), text("cron_expression"), text("every"), date("at"),
		text("time_zone"), date("starts"), choice("missed", "skip", "once"),
		choice("overlap", "skip", "queue"), required(text("prompt")),
		required(choice("session_mode", "existing", "new")), relation("chat", "chats"),
		relation("agent", "ai_agents"), text("model"), about(number("max_cost"), inDollars),
		required(relation("user", "users")),
		flag("enabled"),
		as(fixed(date("last_executed")), ofLastRun("run.started", " AND run.started<>''")),
		as(fixed(text("last_status")), ofLastRun(projections.RunState("run"), "")),
		as(fixed(text("last_error")), ofLastRun(projections.RunReason("run"), "")))),
	{
		Collection: schema.Collection{Name: "schedule_runs", Table: "schedule_runs", Rules: rules(runOfOwnSchedule, runOfOwnSchedule, never, never, never),
			Fields: fields(fixed(relation("schedule", projections.ScheduleCollection)), fixed(relation("chat", "chats")), fixed(date("due")), fixed(date("first_due")),
				fixed(flag("manual")),
				as(fixed(choice("state", "queued", "running", "waiting", "completed", "failed", "aborted", "lost",
					projections.RunSkipped)), projections.RunState("t")),
				as(fixed(text("reason")), projections.RunReason("t")), fixed(date("started")), fixed(date("finished")),
				fixed(about(number("max_cost"), inDollars)),
				as(fixed(about(number("cost"), inDollars)), projections.RunCost))},
	},
	withOptions(fields(about(text(record.ShownDefinition), shownServer)), configCollection("mcp_servers",
		rules(workers, workers, workers, admin, admin), required(text("name")),
		required(choice("status", "pending", "approved", "denied", "revoked")),
		text("requested_by"), relation("approved_by", "users"), date("approved_at"), raw("config"), text("catalog"),
		text("reason"), text("image"), raw("config_schema"), text("command"), text("url"), raw("environment"), raw("hosts"),
		raw("limits"),
		fixed(text("version")), fixed(raw("tools")), fixed(text("found_version")), fixed(raw("found_tools")),
		fixed(text("difference")), fixed(text("problem")), fixed(text("not_offered")), fixed(text("definition")))),
	configCollection("devices", rules(own, own, own, own, own), required(relation("user", "users")),
		required(text("name")),
		required(text("push_token")),
		required(choice("push_service", "fcm", "unifiedpush", "webpush")), flag("is_active")),
	configCollection("notification_rules", rules(own, own, own, own, own), required(relation("user", "users")),
		raw("rules")),
	notInBatch(writtenBy(writer{saveProviderKey, saveProviderKey, deleteProviderKey},
		configCollection(model.Keys, rules(ownOrAdmin, ownOrAdmin, own, own, ownOrAdmin),
			required(text("provider_id")), raw("env_vars"), required(relation("user", "users"))))),
	withOptions(fields(text("token")), notInBatch(writtenBy(writer{saveChannel, saveChannel, deleteChannel},
		configCollection(channel.Collection, rules(authed, authed, admin, admin, admin), required(text("name")),
			required(choice("kind", channel.Telegram, channel.Email)), flag("enabled"), text("server"), text("trigger"),
			text("address"), text("smtp"), text("authserv_id"),
			fixed(date("token_changed")))))),
	madeToken(notInBatch(writtenBy(writer{saveWebhook, saveWebhook, deleteWebhook},
		configCollection(channel.Webhooks, rules(ownOrAdmin, ownOrAdmin, own, ownOrAdmin, ownOrAdmin), required(text("name")),
			required(relation("user", "users")), relation("chat", "chats"), text("prompt"), flag("enabled"),
			fixed(date("token_changed")))))),
	madeToken(notInBatch(writtenBy(writer{saveTarget, saveTarget, deleteTarget},
		configCollection(channel.Targets, rules(admin, admin, admin, admin, admin), required(text("name")),
			required(text("url")), required(text("types")), flag("enabled"))))),
	writtenBy(writer{nil, nil, deleteRecord}, configCollection(channel.Pairings,
		rules(ownOrAdmin, ownOrAdmin, never, never, ownOrAdmin), fixed(relation("channel", channel.Collection)),
		fixed(text("name")), fixed(text("address")), fixed(text("place")), fixed(flag("group")),
		fixed(relation("user", "users")), fixed(date("expires_at")))),
	writtenBy(writer{}, configCollection(channel.Conversations, rules(ownOrAdmin, ownOrAdmin, never, never, never),
		fixed(relation("channel", channel.Collection)), fixed(text("place")), fixed(relation("chat", "chats")),
		fixed(relation("user", "users")), fixed(text("subject")), fixed(text("thread")))),
	{
		Collection: schema.Collection{Name: "channel_messages", Table: "channel_messages", Live: ofLivingChat,
			Rules: rules(chatMember, chatMember, never, never, never),
			Fields: fields(fixed(relation("chat", "chats")), fixed(relation("channel", channel.Collection)),
				fixed(text("place")), fixed(choice("type", "answer", "error", "permission", "question", "file", "notice")),
				fixed(text("text")), fixed(text("about")),
				fixed(choice("state", "queued", "sending", "sent", "failed", "unknown")), fixed(text("reason")),
				fixed(number("attempts")), fixed(number("position")))},
	},
	{
		Collection: schema.Collection{Name: "webhook_failures", Table: "webhook_failures", Live: ofLivingTarget,
			Rules: rules(admin, admin, never, never, never),
			Fields: fields(fixed(relation("target", channel.Targets)), fixed(number("event")), fixed(text("type")),
				fixed(number("attempts")), fixed(text("reason")), fixed(number("position")))},
	},
	configCollection("llm_providers", rules(authed, authed, never, never, never), fixed(text("provider_id")),
		fixed(text("name")),
		fixed(raw("env_vars")), fixed(raw("models")), fixed(raw("reads")),
		fixed(flag("is_connected")), fixed(text("key_error"))),
	writtenBy(writer{saveModelSelection, saveModelSelection, deleteRecord},
		configCollection("model_selection", rules(ownOrStaff, ownOrStaff, ownSelection, ownOrAdmin, ownOrAdmin),
			required(text("model")), required(relation("user", "users")), nullable(relation("chat", "chats")))),
	configCollection("healthchecks", rules(authed, authed, never, never, never), fixed(text("name")),
		fixed(choice("status", "starting", "ready", "degraded", "offline", "error")), fixed(date("last_ping"))),
}

// The descriptions of fields: the currency of costs, and those that bind a decision to what was shown.
const (
	shownCommand = "The command that was shown. The decision is refused if the request has another one. Without " +
		"shown_command and shown_request, a decision is not bound to what was shown."
	inDollars     = "In US dollars."
	shownRequest  = "The SHA-256 of the request that was shown. The decision is refused if the request has another one."
	shownFiles    = "The files_hash of the request that was shown. The decision is refused if the files have changed since."
	shownProposal = "The definition that was shown. The change is refused if the proposal has another one. An approval " +
		"of an agent or a prompt is refused without it. An approval of a procedure without it is not bound to what was " +
		"shown: it approves the current text."
	shownServer = "The definition that was shown. An approval is refused if the server has another one, or has one and " +
		"this field is missing."
)

// ConfigTable is the table of the configuration records of all collections.
const ConfigTable = "config"

// configCollection returns a collection of configuration records, which are JSON objects.
func configCollection(name string, r schema.Rules, list ...schema.Field) collection {
	for i, f := range list {
		if f.SQL != "" {
			continue
		}
		list[i].SQL = "json_extract(t.fields, '$." + f.Name + "')"
		if f.Kind == schema.JSON {
			list[i].SQL = "t.fields -> '$." + f.Name + "'"
		}
	}
	where := "t.collection = '" + name + "'"
	return collection{
		Collection: schema.Collection{Name: name, Table: ConfigTable, Key: "t.record", Where: where, Rules: r, Fields: list}, write: configuration,
	}
}

// ofLastRun is SQL for an expression on the last run of a schedule t, of those that a condition selects.
func ofLastRun(column, condition string) string {
	return "coalesce((SELECT " + column + " FROM schedule_runs run WHERE run.schedule=t.record" + condition +
		" ORDER BY run.position DESC LIMIT 1), '')"
}

func aliased(alias string, c collection) collection { c.Alias = alias; return c }
func writtenBy(w writer, c collection) collection   { c.write = w; return c }
func madeToken(c collection) collection {
	c.madeToken = true
	return c
}

func notInBatch(c collection) collection { c.notInBatch = true; return c }
func ofAllUsers(c collection) collection { c.ofAllUsers = true; return c }

func about(f schema.Field, text string) schema.Field { f.About = text; return f }

func withOptions(o []schema.Field, c collection) collection {
	c.options = o
	return c
}

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
func computed(f schema.Field) schema.Field       { f.Computed = true; return f }
func nullable(f schema.Field) schema.Field       { f.Nullable = true; return f }
func as(f schema.Field, sql string) schema.Field { f.SQL = sql; return f }
