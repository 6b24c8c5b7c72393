package main

import "slices"

// behaviour is something that OpenCode does and on which PocketCoder relies. Comments name it as "behaviour" and its
// id.
type behaviour struct {
	id       string
	sentence string // without the subject, which is OpenCode
	tests    []test // those that fail if OpenCode does something else
	usedBy   []string
	untested string // why there is no test
}

// test is a test, or the part of one that t.Run names.
type test struct{ pkg, name, part string }

// path is the name of the test in its output.
func (t test) path() string {
	if t.part == "" {
		return t.name
	}
	return t.name + "/" + written(t.part)
}

func (t test) String() string {
	if t.pkg == own && t.name == serves {
		return t.part
	}
	if t.part == "" {
		return t.name
	}
	return t.name + ": " + t.part
}

const (
	own    = "bridge/opencode/enginetest"
	bridge = "bridge/opencode"
	serves = "TestOpenCodeServes"
)

// alone are parts of the test with nothing but OpenCode.
func alone(parts ...string) (all []test) {
	for _, part := range parts {
		all = append(all, test{own, serves, part})
	}
	return all
}

// bridged are parts of the test of OpenCode with a log.
func bridged(parts ...string) (all []test) {
	for _, part := range parts {
		all = append(all, test{bridge, "TestOpenCodeIsBridgedToALog", part})
	}
	return all
}

func in(pkg string, names ...string) (all []test) {
	for _, name := range names {
		all = append(all, test{pkg: pkg, name: name})
	}
	return all
}

var (
	restarts = func(part string) []test { return []test{{own, "TestOpenCodeRestarts", part}} }
	hostile  = in(bridge, "TestWorkspaceCannotConfigureOpenCode")
	planted  = in(bridge, "TestFilesWrittenByOpenCodeNeitherConfigureNorPreventAStart")
	confined = in(bridge, "TestConfinedOpenCodeReachesOnlyItsOwnFiles")
	landlock = in(bridge, "TestOpenCodeAtLandlockReachesOnlyItsOwnFilesAndNoFIFO")
)

// behaviours is the list, with the table of docs/engine.md.
var behaviours = []behaviour{
	{id: "announces-address", sentence: "prints its address once it listens, and reports its version",
		tests:  alone("it prints the address once it listens"),
		usedBy: []string{"bridge/opencode/process.go", "bridge/opencode/supervise.go"}},
	{id: "early-request-unanswered", sentence: "may never answer a request that arrives just as it opens its port",
		untested: "it depends on the moment", usedBy: []string{"bridge/opencode/supervise.go"}},
	{id: "port-zero", sentence: "takes port 0 for its default port",
		untested: "the default port may be in use", usedBy: []string{"bridge/opencode/supervise.go"}},
	{id: "password", sentence: "answers only requests with the password, and 401 to others",
		tests: alone("requests need the password"), usedBy: []string{"bridge/opencode/client/client.go"}},
	{id: "errors-404", sentence: "answers 404 about a session, message, request or question that it does not know",
		tests: alone("unknown objects are answered with 404"), usedBy: []string{"bridge/opencode/client/client.go"}},
	{id: "message-pages", sentence: "returns messages in pages, the newest page first",
		tests: alone("messages come in pages"), usedBy: []string{"bridge/opencode/client/sessions.go"}},

	{id: "stream", sentence: "begins its stream with server.connected, and sends a heartbeat every 10 s",
		tests:  alone("the stream begins with server.connected and has heartbeats"),
		usedBy: []string{"bridge/opencode/client/stream.go", "bridge/opencode/ingest/idle.go"}},
	{id: "durable-twins", sentence: "reports each durable event twice: plain, and with a number that counts without gaps",
		tests: alone("each durable event has a twin"), usedBy: []string{"bridge/opencode/client/stream.go"}},
	{id: "history", sentence: "keeps the durable events of each session as it reported them, until the session is deleted",
		tests:  alone("the history has the durable events", "a deleted session has no history"),
		usedBy: []string{"bridge/opencode/ingest/reconcile.go"}},
	{id: "database", sentence: "has its events and sessions in an SQLite database, in known tables",
		tests:  alone("the database has the events and the sessions"),
		usedBy: []string{"bridge/opencode/plugin.js"}},
	{id: "late-beginning", sentence: "on a busy machine, reports a short answer as ended before its parts",
		untested: "it depends on the moment", usedBy: []string{"bridge/opencode/ingest/burst.go"}},

	{id: "message-ids", sentence: "takes the ids of a message from the client, and runs a message with known ids once",
		tests:  alone("a message with known ids runs once"),
		usedBy: []string{"bridge/opencode/client/sessions.go", "bridge/opencode/ingest/comparison.go", "ops/adr/0005-delivery-is-an-outbox-in-the-log.md"}},
	{id: "accepts-before-storing", sentence: "accepts a message before it stores it",
		tests: alone("a message is accepted before it is stored"), usedBy: []string{"bridge/opencode/ingest/comparison.go"}},
	{id: "steer", sentence: "adds a message that comes during a turn to the turn, after the current step",
		tests:  alone("a message during a turn joins it"),
		usedBy: []string{"bridge/opencode/outbox/deliver.go"}},
	{id: "system-and-tools", sentence: "appends the system prompt of a message for its turn, and withholds tools from then on",
		tests:  alone("a message names its system prompt and tools"),
		usedBy: []string{"bridge/opencode/client/sessions.go", "bridge/opencode/outbox/deliver.go"}},
	{id: "model-errors", sentence: "ends a turn whose request the provider refuses, with the provider's error",
		tests:  alone("a refused model request ends the turn"),
		usedBy: []string{"bridge/opencode/outbox/omit.go"}},
	{id: "model-retries", sentence: "repeats a failed model request, and reports the status retry meanwhile",
		tests: alone("a failed model request is repeated"), usedBy: []string{"events/opencode/opencode.go"}},
	{id: "text-when-complete", sentence: "stores the text of an answer only when it is complete",
		tests: alone("a text is stored when it is complete"), usedBy: []string{"bridge/opencode/ingest/text.go"}},
	{id: "replace-part", sentence: "replaces a part of a message, and reports it",
		tests: alone("a part can be replaced"), usedBy: []string{"bridge/opencode/ingest/text.go"}},
	{id: "delete-message", sentence: "deletes no message of a session during a turn",
		tests: alone("a message cannot be deleted during a turn"), usedBy: []string{"bridge/opencode/client/sessions.go"}},
	{id: "title", sentence: "asks a model for the title of a session without one, in known words",
		tests:  alone("a session without a title asks the model for one"),
		usedBy: []string{"bridge/opencode/demo/demo.go", "bridge/opencode/plugin.js"}},
	{id: "title-usage", sentence: "calls the integrations of the AI SDK about the request for a title",
		tests: alone("the integrations are called about the title"), usedBy: []string{"bridge/opencode/plugin.js"}},
	{id: "fork-metadata", sentence: "copies the metadata of a session to a fork",
		tests:  alone("a fork copies the metadata"),
		usedBy: []string{"bridge/opencode/ingest/ingest.go"}},
	{id: "fork-unknown-message", sentence: "copies the whole session if a fork names an unknown message",
		tests: alone("a fork before an unknown message copies all"), usedBy: []string{"bridge/opencode/outbox/fork.go"}},
	{id: "revert", sentence: "restores files and messages, and keeps reverted messages until the next one",
		tests:  bridged("a revert restores messages and files"),
		usedBy: []string{"bridge/opencode/client/sessions.go", "bridge/opencode/snapshots/snapshots.go"}},

	{id: "asks", sentence: "makes a request for every tool call but a question, also in a subagent",
		tests: append(alone("every tool call makes a request", "a subagent makes requests of its own"), hostile...),
		usedBy: []string{"bridge/opencode/config.go", "bridge/opencode/verify.go",
			"ops/adr/0003-one-authority-for-permissions.md"}},
	{id: "session-rules", sentence: "does not apply the ask rules of a session to its subagents",
		untested: "no code relies on it", usedBy: []string{"ops/adr/0003-one-authority-for-permissions.md"}},
	{id: "call-with-request", sentence: "reports the call of a request, with its arguments, at the same time",
		tests: alone("the call of a request is reported with it"), usedBy: []string{"handlers/permission/gate.go"}},
	{id: "lists-by-directory", sentence: "lists and answers requests by directory, and calls a waiting session busy",
		tests: alone("requests are listed by directory"), usedBy: []string{"bridge/opencode/client/client.go"}},
	{id: "list-400", sentence: "answers 400 to a list of requests with one of glob, grep or webfetch without optional arguments",
		tests: alone("a request without optional arguments spoils the list"), usedBy: []string{"bridge/opencode/ingest/comparison.go"}},
	{id: "rejection", sentence: "ends the turn with a known error after a rejection, or continues if that has a text",
		tests:  alone("a rejection ends the turn", "a rejection with a text continues the turn"),
		usedBy: []string{"bridge/opencode/client/sessions.go", "bridge/opencode/ingest/comparison.go"}},
	{id: "rejects-others", sentence: "rejects the other requests of a session with the first",
		tests: alone("a rejection rejects the other requests of the session"), usedBy: []string{"bridge/opencode/client/sessions.go"}},
	{id: "questions", sentence: "lists the questions of the model, and passes the answers on",
		tests: alone("questions are listed and answered"), usedBy: []string{"bridge/opencode/client/sessions.go"}},

	{id: "abort-idle-first", sentence: "reports an aborted turn as idle before it ends the message, and again after",
		tests: alone("an abort reports idle before the message ends"), usedBy: []string{"bridge/opencode/ingest/idle.go"}},
	{id: "abort-keeps-requests", sentence: "keeps the requests of an aborted turn in its list",
		tests:  alone("an abort leaves its request in the list"),
		usedBy: []string{"bridge/opencode/client/sessions.go", "bridge/opencode/outbox/abort.go"}},
	{id: "abort-subagents", sentence: "ends the subagents of an aborted turn",
		tests:  alone("an abort ends subagents"),
		usedBy: []string{"bridge/opencode/client/sessions.go"}},
	{id: "abort-connecting", sentence: "ends every later turn in a directory if the first is aborted while it connects MCP servers, " +
		"unless a request has made it connect before",
		tests:  bridged("an abort while OpenCode connects its tools ends no other turn"),
		usedBy: []string{"bridge/opencode/client/configuration.go"}},
	{id: "idle-unstored", sentence: "reports a turn as idle and does not end it if it cannot store the end",
		tests: bridged("a turn whose end OpenCode cannot store is lost"), usedBy: []string{"bridge/opencode/ingest/idle.go"}},
	{id: "kill", sentence: "after a kill, keeps its history, leaves turns unfinished and forgets requests",
		tests:  restarts("a kill leaves turns unfinished and requests forgotten"),
		usedBy: []string{"bridge/opencode/process.go", "bridge/opencode/ingest/comparison.go"}},
	{id: "stop", sentence: "asked to stop, rejects the calls that wait and aborts the other turns",
		tests: restarts("a stop rejects the calls that wait"), usedBy: []string{"bridge/opencode/process.go"}},

	{id: "configuration", sentence: "reads our configuration and none of the workspace",
		tests:  slices.Concat(hostile, planted),
		usedBy: []string{"bridge/opencode/config.go", "bridge/opencode/verify.go"}},
	{id: "preload", sentence: "loads our plugin before its own code, and with it only plugins that we allow",
		tests: append(alone("preloaded code can answer requests"), hostile...), usedBy: []string{"bridge/opencode/plugin.js", "bridge/opencode/config.go"}},
	{id: "front-matter", sentence: "evaluates JavaScript of the workspace with the global eval only",
		tests: planted, usedBy: []string{"bridge/opencode/plugin.js"}},
	{id: "seeded-library", sentence: "installs no plugin library if the configuration directory says that it is there",
		tests: hostile, usedBy: []string{"bridge/opencode/config.go"}},
	{id: "project-id", sentence: "takes the id of a project from the file .git/opencode",
		tests: planted, usedBy: []string{"bridge/opencode/verify.go"}},
	{id: "shell-environment", sentence: "runs commands with our shell and the environment of the plugin",
		tests: hostile, usedBy: []string{"bridge/opencode/plugin.js"}},
	{id: "tool-hook", sentence: "calls the plugin before each tool call and before its request, and uses the arguments that the plugin sets",
		tests: confined, usedBy: []string{"bridge/opencode/plugin.js"}},
	{id: "subagent-files", sentence: "puts the files that the prompt of a subagent names with @ into it, without a request",
		tests: alone("a subagent's prompt includes files"), usedBy: []string{"bridge/opencode/plugin.js"}},
	{id: "task-id", sentence: "continues any session that the argument task_id names",
		tests: alone("a subagent can be any session"), usedBy: []string{"bridge/opencode/plugin.js"}},
	{id: "comparisons", sentence: "compares an edited file with jsdiff, in known steps, in its only thread",
		tests:  append(alone("an edit reads the options of jsdiff"), bridged("tool calls cannot block OpenCode")...),
		usedBy: []string{"bridge/opencode/plugin.js", "bridge/opencode/git.sh"}},
	{id: "numbers", sentence: "uses the temperature and top_p that the plugin sets",
		tests: bridged("the numbers of an agent reach the model"), usedBy: []string{"bridge/opencode/plugin.js"}},
	{id: "http-server", sentence: "serves requests with node:http, so that the plugin can answer some",
		tests: alone("preloaded code can answer requests"), usedBy: []string{"bridge/opencode/plugin.js"}},
	{id: "opens-early", sentence: "opens the file of an edit before it makes the request",
		tests: landlock, usedBy: []string{"bridge/opencode/plugin.js"}},
	{id: "git-on-path", sentence: "takes snapshots with the git on PATH, and continues if that fails",
		tests: landlock, usedBy: []string{"bridge/opencode/config_git.go", "bridge/opencode/git.sh"}},
	{id: "mcp-progress", sentence: "ends the call of an MCP server after 60 s without progress",
		untested: "it takes a minute", usedBy: []string{"bridge/mcp/mcp.go"}},
	{id: "compaction", sentence: "shortens a session with the agent compaction",
		untested: "only a recorded stream shows it", usedBy: []string{"events/opencode/opencode.go"}},
}
