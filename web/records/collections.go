package records

import (
	"cmp"
	"context"
	"slices"

	"pocketcoder/events"
	"pocketcoder/handlers/channel"
	"pocketcoder/handlers/model"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/schedule"
	"pocketcoder/projections"
	"pocketcoder/projections/turnstate"
	"pocketcoder/web/query"
)

// collection is all that this package knows about one collection.
type collection struct {
	query.Collection
	write         writer
	options       []record.Field // fields of a body that no record shows
	notInBatch    bool           // its writes also change data outside the log, which a transaction cannot undo
	ofAllUsers    bool           // a record without a user is for all users; elsewhere it is the caller's
	madeToken     bool           // a new record gets a token, which the system makes; a body with one is refused
	inCreatedChat bool           // a batch may create a record in a chat that it creates: no rule finds that chat yet
	title, about  string         // for people; see record.Type
	defaults      map[string]any // of a new record
	taken         error          // see record.Type
}

// writer sends the changes of one collection as commands. Each function returns the record's id and the sequence of
// the event. A nil function is not allowed.
type writer struct {
	create, update, remove func(s *Records, ctx context.Context, w change) (id string, seq uint64, err error)
}

// Collections are all collections of the API: those of read models, and one for each type of configuration records.
type Collections []collection

// CollectionsOf returns the collections with those of the types.
func CollectionsOf(types []record.Type) (all Collections) {
	all = slices.Clone(readModels)
	for _, t := range types {
		all = append(all, ofType(t))
	}
	for i := range all {
		c := &all[i].Collection
		c.ID = c.Name // clients only compare it
		c.Type, c.Live = cmp.Or(c.Type, "base"), cmp.Or(c.Live, "NOT t.removed")
	}
	return all
}

// Catalogue returns the schemas of the collections.
func (all Collections) Catalogue() (catalogue query.Catalogue) {
	for _, c := range all {
		catalogue = append(catalogue, c.Collection)
	}
	return catalogue
}

// ConfigTable is the table of the configuration records of all collections. Their fields are JSON objects.
const ConfigTable = "config"

// ofType returns the collection of a type of configuration records.
func ofType(t record.Type) collection {
	c := collection{write: configuration, ofAllUsers: t.AllUsers, title: t.Title, about: t.About, defaults: t.Defaults,
		taken: t.Taken,
		Collection: query.Collection{Name: t.Name,
			Alias: t.Alias, Table: ConfigTable, Key: "t.record", Where: "t.collection = '" + t.Name + "'", Access: t.Access}}
	for _, f := range t.Fields {
		sql := "json_extract(t.fields, '$." + f.Name + "')"
		switch {
		case f.Hidden:
			continue
		case f.Missing != "":
			sql = "coalesce(" + sql + ", '" + f.Missing + "')"
		case f.Argument || f.Kind == record.Secret:
			c.options = append(c.options, f)
			continue
		case f.Derived:
			sql = derived[t.Name+"."+f.Name]
		case f.Kind == record.JSON:
			sql = "t.fields -> '$." + f.Name + "'"
		}
		c.Fields = append(c.Fields, query.Field{Field: f, SQL: sql})
	}
	if write, ok := writers[t.Name]; ok {
		c.write = write
	}
	if t.Internal {
		c.write.create, c.write.update = nil, nil
	}
	if t.Internal && t.Delete == nil {
		c.write.remove = nil
	}
	c.madeToken, c.notInBatch = t.Secret.Made, t.Secret.Field != "" || t.Name == model.Keys
	return c
}

// writers are the writers of types whose records are not only saved and deleted. The values of a provider key are
// merged with the stored ones, and only those of administrators are redacted. A model is looked up among those of the
// providers, and a chat has one selection, whichever account made it. A schedule is stored with its project.
var writers = map[string]writer{
	model.Keys:       {saveProviderKey, saveProviderKey, deleteProviderKey},
	model.Selections: {saveModelSelection, saveModelSelection, deleteRecord},

	schedule.Collection: {saveSchedule, saveSchedule, deleteRecord},
}

// derived are the SQL expressions of fields that no record stores, by COLLECTION.FIELD.
var derived = map[string]string{
	"proposals.in_force":      inForce,
	"schedules.last_executed": ofLastRun("run.started", " AND run.started<>''"),
	"schedules.last_status":   ofLastRun("run.state", ""),
	"schedules.last_error":    ofLastRun("run.reason", ""),
}

// The rules of records of chats.
var (
	self = record.Rule(`id = @request.auth.id || ` + record.IsAdmin)
	// members of a project are known to all who have access to it
	known = record.Rule(*self + ` || @request.auth.projects ?= project_members_via_user.project`)

	chatReader = record.Rule(record.SeesChat("") + ` || ` + record.IsStaff)
	ownChat    = record.Rule(record.OwnsChat("") + ` || ` + record.IsAdmin)
	chatMember = record.Rule(record.SeesChat("chat.") + ` || ` + record.IsStaff)
	chatOwner  = record.Rule(record.OwnsChat("chat.") + ` || ` + record.IsAdmin)
	// agents never approve
	chatOwnerNotAgent = record.Rule(`(` + record.OwnsChat("chat.") + ` && @request.auth.role != "agent") || ` +
		record.IsAdmin)
	runOfOwnSchedule = record.Rule(`(schedule.user = @request.auth.id && ` + record.ProjectOfChat + `) || ` +
		record.IsAdmin)
	ranInSeenChat = record.Rule(`(@request.auth.projects ?= executions_via_command.chat.project && ` +
		`@request.auth.readers ?= executions_via_command.chat.reader) || ` +
		record.IsStaff)
	ownPosition = record.Rule(`user = @request.auth.id && (` + record.SeesChat("chat.") + ` || ` + record.IsStaff + `)`)
)

// inForce is the text of the procedure or the prompt that has the name of a proposal.
const inForce = `coalesce((SELECT coalesce(s.fields ->> '$.content', s.fields ->> '$.body') FROM config AS s
	WHERE s.collection = CASE t.fields ->> '$.kind' WHEN 'agent' THEN '' WHEN 'prompt' THEN 'ai_prompts' ELSE 'sops' END
	AND NOT s.removed AND s.fields ->> '$.name' = t.fields ->> '$.name' ORDER BY s.last_seq DESC LIMIT 1), '')`

// ofLivingChat excludes the records of deleted chats.
const ofLivingChat = "NOT t.removed AND NOT EXISTS (SELECT 1 FROM chats AS living WHERE living.id = t.chat AND living.removed)"

// ofLivingTarget excludes the records of deleted webhook targets.
const ofLivingTarget = "NOT t.removed AND EXISTS (SELECT 1 FROM config AS living WHERE living.id = '" + channel.Targets +
	"/' || t.target AND NOT living.removed)"

// endings are how a turn, or a step of it, can end.
var endings = []string{string(turnstate.EndComplete), string(turnstate.EndCut), string(turnstate.EndEmpty),
	string(turnstate.EndFiltered), string(turnstate.EndLost), string(turnstate.EndStopped), string(turnstate.EndDenied),
	string(turnstate.EndFailed)}

// readModels lists the collections that are no configuration records. A new one is a new value here.
var readModels = []collection{
	{
		Collection: query.Collection{Name: "users", Type: "auth", Table: "users", Access: record.Rules(known, known, record.Admins, self, record.Admins),
			Fields: fields(required(email("email")), fixed(flag("verified")), text("name"), fixed(text("avatar")),
				choice("role", "admin", "agent", "user"), flag("disabled"))},
		write: writer{createUser, updateUser, deleteUser}, notInBatch: true, title: "Accounts",
		about: "of people and agents",
		options: options(of("password", record.Secret), of("passwordConfirm", record.Secret),
			of("oldPassword", record.Secret), raw("emailVisibility")),
	},
	{
		Collection: query.Collection{Name: "chats", Table: "chats", Access: record.Rules(chatReader, chatReader, record.OwnOrAdmin, ownChat, ownChat),
			Fields: fields(text("title"), fixed(text("ai_engine_session_id")), fixed(choice("engine_type", "opencode", "claude-code", "cursor", "custom")),
				required(relation("user", "users")), relation("agent", "ai_agents"), fixed(date("last_active")),
				fixed(text("preview")),
				fixed(choice("turn", "user", "assistant")),
				about(fixed(number("turn_position")), "Sequence of the event that set turn."),
				about(as(fixed(choice("ending", endings...)),
					"coalesce((SELECT ending FROM turns WHERE id = t.current), '')"),
					"How the last turn ended. It is empty while a turn goes on."),
				text("description"), flag("archived"), text("tags"),
				about(relation("project", "projects"), "It is fixed after creation. Without one, the API chooses it, or asks for it."),
				admins(text("reader")),
				about(flag("shared"), "All who have access to the project may read the chat."),
				fixed(relation("parent", "chats")), fixed(relation("root", "chats")), fixed(number("depth")),
				admins(text("engine")), admins(text("directory")), admins(text("worktree")), admins(text("branch")),
				admins(text("kept")), admins(flag("adopted")), admins(flag("awaited")))},
		write: writer{createChat, updateChat, deleteChat},
	},
	{
		Collection: query.Collection{Name: "messages", Table: "messages", Where: "t.role <> ''", Live: ofLivingChat,
			Access: record.Rules(chatMember, chatMember, chatOwner, chatOwner, chatOwner),
			Fields: fields(required(relation("chat", "chats")), required(choice("role", "user", "assistant", "system")),
				fixed(choice("engine_message_status", "processing", "completed", "failed", "aborted")),
				fixed(choice("user_message_status", "pending", "sending", "delivered", "failed")),
				fixed(text("ai_engine_message_id")), fixed(text("parent_id")),
				as(raw("parts"), `coalesce((SELECT '['||group_concat(data, ',')||']' FROM (SELECT data FROM parts WHERE message = t.id AND NOT removed ORDER BY id)), t.submitted)`),
				as(fixed(raw("commands")), projections.CommandsOf("t")),
				fixed(choice("error_domain", "infrastructure", "provider")), fixed(raw("error_payload")),
				fixed(text("session")), as(fixed(text("subagent")),
					`coalesce((SELECT id FROM sessions WHERE id = t.session AND parent <> ''), '')`),
				fixed(text("agent")), fixed(text("provider")), fixed(text("model")), fixed(dollars(number("cost"))),
				fixed(number("tokens_input")),
				fixed(number("tokens_output")), fixed(number("tokens_reasoning")), fixed(number("tokens_cache_read")),
				fixed(number("tokens_cache_write")),
				fixed(text("finish")),
				fixed(choice("ending", endings...)),
				fixed(number("position")), fixed(text("held")), fixed(text("held_by")),
				fixed(text("notice")),
				choice("delivery", events.DeliveryQueue, events.DeliverySteer), fixed(text("sender")), fixed(raw("reports")),
				fixed(relation("schedule", projections.ScheduleCollection)))},
		write: writer{createMessage, updateMessage, deleteQueuedMessage}, inCreatedChat: true,
		options: options(text("before")), // see chat.ChangeMessage
	},
	{
		Collection: query.Collection{Name: "permissions", Table: "permissions", Live: ofLivingChat, Access: record.Rules(chatMember, chatMember, record.Staff, chatOwnerNotAgent, record.Never),
			Fields: fields(text("ai_engine_permission_id"), as(text("opencode_id"), "t.ai_engine_permission_id"), text("session_id"),
				required(text("permission")), raw("patterns"), raw("metadata"), fixed(raw("always")),
				choice("status", events.Draft, events.Authorized, events.Denied, events.Expired), text("message"), text("reason"),
				fixed(text("source")), text("message_id"),
				text("call_id"), fixed(text("challenge")), required(relation("chat", "chats")),
				fixed(relation("approved_by", "users")), fixed(date("approved_at")),
				fixed(text("decided_by")), fixed(text("device")), fixed(text("rule")), fixed(text("rule_id")),
				fixed(number("rule_version")), fixed(flag("referred")),
				fixed(text("referred_reason")), fixed(text("cwd")), text("edited"), fixed(date("expires")),
				fixed(flag("interrupted")), fixed(text("request")), fixed(raw("files")), fixed(text("files_hash")),
				about(fixed(flag("applied")), "Of type keep: the sandbox has carried out the decision."),
				about(fixed(text("failure")), "Of type keep: why the sandbox could not carry out the decision."),
				about(admins(flag("replied")), "OpenCode has the reply, or needs none."),
				about(as(fixed(number("position")), "t.asked_seq"), "The later a request, the higher."),
				about(admins(flag("grant_used")), "The approval was used for a repetition of the request."))},
		write: writer{createPermission, decidePermission, nil},
		// in seconds; see permission.ShownRequest
		options: options(number("expires_in"),
			about(text("shown_command"), shownCommand), about(text("shown_request"), shownRequest),
			about(text("shown_files"), shownFiles)),
	},
	{
		Collection: query.Collection{Name: "questions", Table: "questions", Live: ofLivingChat, Access: record.Rules(chatMember, chatMember, record.Never, chatOwnerNotAgent, record.Never),
			Fields: fields(fixed(relation("chat", "chats")), fixed(text("question")), fixed(text("header")), fixed(raw("choices")), fixed(raw("descriptions")),
				fixed(flag("multiple")), fixed(flag("custom")), as(text("reply"),
					`coalesce((SELECT group_concat(value, ', ') FROM json_each(t.reply)), '')`),
				choice("status", projections.QuestionAsked, projections.QuestionReplied, projections.QuestionRejected,
					projections.QuestionExpired), as(fixed(number("index")), "t.idx"),
				fixed(text("ai_engine_question_id")), fixed(text("session_id")),
				fixed(text("message_id")), fixed(text("call_id")), fixed(flag("interrupted")), fixed(text("reason")),
				fixed(text("replied_by")),
				about(admins(flag("engine_replied")), "OpenCode has the answer, or needs none."))},
		write: writer{nil, answerQuestion, nil},
	},
	{
		Collection: query.Collection{Name: "executions", Table: "executions", Live: ofLivingChat, Access: record.Rules(chatMember, chatMember, record.Never, record.Never, record.Never),
			Fields: fields(fixed(relation("permission", "permissions")), fixed(relation("command", "commands")), fixed(text("original")), fixed(relation("chat", "chats")),
				fixed(text("session_id")), fixed(text("call_id")), fixed(text("cwd")),
				fixed(choice("status", "executing", "completed", "failed", "refused", "cancelled", "timeout", "lost", "memory",
					"processes", "file-size", "cpu-time", "open-files", "output-size", "protected-name")),
				fixed(text("left_behind")), fixed(raw("outputs")), fixed(number("exit_code")),
				fixed(text("signal")), fixed(text("reason")), fixed(text("error")), fixed(number("stdout_bytes")),
				fixed(number("stderr_bytes")), fixed(number("duration_ms")),
				fixed(choice("source", "opencode", "person")), fixed(text("pool")), fixed(text("worker")),
				fixed(text("isolation")), fixed(flag("detached")), fixed(flag("terminal")),
				fixed(flag("private")), fixed(number("changed")), fixed(date("started")), fixed(date("finished")),
				as(fixed(text("text")), `coalesce((SELECT command FROM commands WHERE id = t.command), '')`),
				fixed(number("position")))},
	},
	{
		Collection: query.Collection{Name: "artifacts", Table: "artifacts", Live: ofLivingChat, Access: record.Rules(chatMember, chatMember, record.Never, record.Never, record.Never),
			Fields: fields(fixed(relation("chat", "chats")), fixed(relation("execution", "executions")), fixed(text("path")), fixed(number("size")), fixed(text("sha256")),
				fixed(text("blob")), fixed(text("caption")))},
	},
	{
		Collection: query.Collection{Name: "commands", Table: "commands", Access: record.Rules(ranInSeenChat, ranInSeenChat, record.Never, record.Never, record.Never),
			Fields: fields(fixed(text("hash")), fixed(text("command")), fixed(number("uses")))},
	},
	{
		Collection: query.Collection{Name: "subagents", Alias: "sandbox_agents", Table: "subagents", Live: ofLivingChat, Access: record.Rules(chatMember, chatMember, record.Never, record.Never, chatOwnerNotAgent),
			Fields: fields(fixed(text("subagent_id")), as(fixed(text("sandbox_agent_id")), "t.subagent_id"), fixed(text("delegating_agent_id")), fixed(number("tmux_window_id")),
				fixed(relation("chat", "chats")), as(fixed(relation("delegating_agent", "ai_agents")), "''"), fixed(text("agent")),
				fixed(text("title")),
				fixed(choice("status", "running", "completed", "failed", "aborted")),
				fixed(date("started")), fixed(date("finished")))},
		write: writer{nil, nil, stopSubagent},
	},
	{
		Collection: query.Collection{Name: "usage", Type: "view", Table: "usage", Live: ofLivingChat,
			Access: record.Rules(chatMember, chatMember, record.Never, record.Never, record.Never),
			Fields: fields(fixed(relation("chat", "chats")), fixed(text("provider")), fixed(text("model")), fixed(number("messages")), fixed(dollars(number("cost"))),
				fixed(number("tokens_input")), fixed(number("tokens_output")), fixed(number("tokens_reasoning")),
				fixed(number("tokens_cache_read")), fixed(number("tokens_cache_write")))},
	},

	{
		Collection: query.Collection{Name: "seen_positions", Table: "seen_positions", Live: ofLivingChat, Access: record.Rules(ownPosition, ownPosition, ownPosition, ownPosition, record.Never),
			Fields: fields(required(relation("user", "users")), required(relation("chat", "chats")), required(number("seq")))},
		write: writer{createSeenPosition, updateSeenPosition, nil}, inCreatedChat: true,
	},

	{
		Collection: query.Collection{Name: "schedule_runs", Table: "schedule_runs", Access: record.Rules(runOfOwnSchedule, runOfOwnSchedule, record.Never, record.Never, record.Never),
			Fields: fields(fixed(relation("schedule", projections.ScheduleCollection)), fixed(relation("chat", "chats")), fixed(date("due")), fixed(date("first_due")),
				fixed(flag("manual")),
				fixed(choice("state", "queued", "running", "waiting", "completed", "failed", "aborted", "lost",
					projections.RunSkipped)),
				fixed(text("reason")), fixed(date("started")), fixed(date("finished")),
				fixed(dollars(number("max_cost"))),
				as(fixed(dollars(number("cost"))), projections.RunCost))},
	},
	{
		Collection: query.Collection{Name: "channel_messages", Table: "channel_messages", Live: ofLivingChat,
			Access: record.Rules(chatMember, chatMember, record.Never, record.Never, record.Never),
			Fields: fields(fixed(relation("chat", "chats")), fixed(relation("channel", channel.Collection)),
				fixed(text("place")), fixed(choice("type", "answer", "error", "permission", "question", "file", "notice")),
				fixed(text("text")), fixed(text("about")),
				fixed(choice("state", "queued", "sending", "sent", "failed", "unknown")), fixed(text("reason")),
				fixed(number("attempts")), fixed(number("position")), admins(flag("whole")), admins(text("receipt")))},
		title: "Sent messages", about: "that were sent, wait or failed",
	},
	{
		Collection: query.Collection{Name: "webhook_failures", Table: "webhook_failures", Live: ofLivingTarget,
			Access: record.Rules(record.Admins, record.Admins, record.Never, record.Never, record.Never),
			Fields: fields(fixed(relation("target", channel.Targets)), fixed(number("event")), fixed(text("type")),
				fixed(number("attempts")), fixed(text("reason")), fixed(number("position")))},
		title: "Failures of webhooks", about: "events that a target did not accept",
	},
}

// The descriptions of fields that bind a decision to what was shown.
const (
	shownCommand = "The command that was shown. The decision is refused if the request has another one. Without " +
		"shown_command and shown_request, a decision is not bound to what was shown."
	shownRequest = "The SHA-256 of the request that was shown. The decision is refused if the request has another one."
	shownFiles   = "The files_hash of the request that was shown. The decision is refused if the files have changed since."
)

// ofLastRun is SQL for an expression on the last run of a schedule t, of those that a condition selects.
func ofLastRun(column, condition string) string {
	return "coalesce((SELECT " + column + " FROM schedule_runs run WHERE run.schedule=t.record" + condition +
		" ORDER BY run.position DESC LIMIT 1), '')"
}

func about(f query.Field, text string) query.Field { f.About = text; return f }
func dollars(f query.Field) query.Field            { f.Unit = record.Dollars; return f }

// options returns fields of bodies.
func options(list ...query.Field) (all []record.Field) {
	for _, f := range list {
		all = append(all, f.Field)
	}
	return all
}

func of(name string, kind record.Kind) query.Field {
	return query.Field{Field: record.Field{Name: name, Kind: kind}}
}

// The kinds of fields.
func fields(list ...query.Field) []query.Field { return list }

func text(name string) query.Field   { return of(name, record.Text) }
func email(name string) query.Field  { return of(name, record.Email) }
func number(name string) query.Field { return of(name, record.Number) }
func flag(name string) query.Field   { return of(name, record.Bool) }
func date(name string) query.Field   { return of(name, record.Date) }
func raw(name string) query.Field    { return of(name, record.JSON) }
func relation(name, to string) query.Field {
	f := of(name, record.Relation)
	f.Relation = to
	return f
}

func choice(name string, values ...string) query.Field {
	f := of(name, record.Select)
	f.Values = values
	return f
}

func required(f query.Field) query.Field       { f.Required = true; return f }
func fixed(f query.Field) query.Field          { f.ReadOnly = true; return f }
func admins(f query.Field) query.Field         { f.ReadOnly, f.Admins = true, true; return f }
func as(f query.Field, sql string) query.Field { f.SQL = sql; return f }
