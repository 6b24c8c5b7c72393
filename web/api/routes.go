package api

import (
	"encoding/json"
	"net/http"

	"pocketcoder/handlers"
)

// route is one operation: what serves it, and what the description says about it.
type route struct {
	method, path string
	about        string
	admits       func(caller) error
	query        []parameter
	body         any    // a value of the type of the request's body; nil for none
	answer       any    // a value of the type of the answer's body; nil for none
	media        string // of the answer, when it is not JSON
	serve        func(http.ResponseWriter, *http.Request, caller) error
}

// parameter is one of the query, or a header.
type parameter struct {
	name, about string
	integer     bool
	header      bool
}

// Who may use a route. What of the data they see is for the rules of its collection to say.
func anyone(caller) error { return nil }

// guests may be nobody, but not somebody whose token is not good: they would wait for what never comes.
func guests(who caller) error {
	if who.forged {
		return unauthorized()
	}
	return nil
}

func accounts(who caller) error {
	if who.Identity == nil {
		return unauthorized()
	}
	return nil
}

func staff(who caller) error {
	if err := accounts(who); err != nil {
		return err
	}
	if !who.is("admin") && !who.is("agent") {
		return forbidden("Only administrators and agents may do this.")
	}
	return nil
}

func admins(who caller) error {
	if err := accounts(who); err != nil {
		return err
	}
	if !who.is("admin") {
		return forbidden("Only administrators may do this.")
	}
	return nil
}

// The parameters that several routes take.
var (
	listQuery = []parameter{
		{name: "page", integer: true, about: "from 1"}, {name: "perPage", integer: true, about: "records of a page, at most 1000; 30 when absent"},
		{name: "sort", about: "fields, - before one turns it round; @random"}, {name: "filter", about: "PocketBase's filter language"},
		{name: "expand", about: "relations to include"}, {name: "fields", about: "fields to answer with"},
		{name: "skipTotal", about: "1: do not count"},
	}
	viewQuery   = listQuery[4:6]
	streamQuery = []parameter{
		{name: "after", integer: true, about: "sequence after which to begin; 0 when absent"},
		{name: "deltas", about: "1: live fragments too, as events without id"},
		{name: "Last-Event-ID", header: true, about: "as after, and before it; what a client that reconnects sends"},
	}
	alwaysQuery = []parameter{
		{name: "scope", about: "for whom: chat (when absent), agent or all"}, {name: "for", about: "how long, such as 1h; for ever when absent"},
		{name: "pattern", about: "of the rule; the smallest sensible one when absent"},
	}
	fileMessage = []parameter{{name: "message", about: "OpenCode's id of the message whose changes are meant; the newest when absent"}}
)

// anyMethod is the method of a route that takes all of them; it is described as a GET.
const anyMethod = "ANY"

func (r route) described() string {
	if r.method == anyMethod {
		return http.MethodGet
	}
	return r.method
}

const eventStream = "text/event-stream"

// routes is the whole surface.
func (s *Server) routes() []route {
	const (
		collection = "/api/collections/{collection}"
		records    = collection + "/records"
		record     = records + "/{id}"
		chat       = "/api/pocketcoder/chats/{id}"
		permission = "/api/pocketcoder/permissions/{id}"
		sessions   = "/api/pocketcoder/sessions"
		push       = "/api/pocketcoder/push"
		execution  = "/api/executions/{id}"
	)
	return []route{
		{"GET", "/api/health", "How the parts of the system are.", anyone, nil, nil, healthAnswer{}, "", s.health},
		{"GET", "/api/openapi.json", "This description.", anyone, nil, nil, map[string]any{}, "", s.openAPI},

		{"GET", collection + "/auth-methods", "How an account can log in.", anyone, nil, nil, authMethods{}, "", s.authMethods},
		{"POST", collection + "/auth-with-password", "Log in.", anyone, viewQuery, passwordLogin{}, authAnswer{}, "", s.logIn},
		{"POST", collection + "/auth-refresh", "Exchange a token for a newer one of the same session.", accounts, viewQuery, nil, authAnswer{}, "", s.refresh},
		{"POST", "/api/pocketcoder/setup", "Make the first administrator, with the one-time link that a new system shows.", anyone, nil, setupRequest{}, authAnswer{}, "", s.setUp},
		{"GET", sessions, "The sessions of the account.", accounts, nil, nil, []session{}, "", s.listSessions},
		{"DELETE", sessions + "/{id}", "End a session of the account: its token and its open streams.", accounts, nil, nil, nil, "", s.endSession},

		{"GET", "/api/collections", "The collections, as a schema.", admins, nil, nil, collectionList{}, "", s.listCollections},
		{"GET", collection, "A collection's schema.", admins, nil, nil, collectionSchema{}, "", s.viewCollection},
		{"GET", records, "List records.", accounts, listQuery, nil, page{}, "", s.listRecords},
		{"POST", records, "Create a record: a command, answered with what became of it.", accounts, viewQuery, map[string]any{}, anyRecord{}, "", s.createRecord},
		{"GET", record, "View a record.", accounts, viewQuery, nil, anyRecord{}, "", s.viewRecord},
		{"PATCH", record, "Update a record: a command, answered with what became of it.", accounts, viewQuery, map[string]any{}, anyRecord{}, "", s.updateRecord},
		{"DELETE", record, "Delete a record.", accounts, nil, nil, nil, "", s.deleteRecord},
		{"POST", "/api/batch", "Creates, updates and deletes that happen together or not at all.", accounts, nil, batch{}, []batchAnswer{}, "", s.runBatch},

		{"GET", "/api/realtime", "Changes of records, and what chats are just saying. The first event gives the client id.", guests, nil, nil, nil, eventStream, s.connectRealtime},
		{"POST", "/api/realtime", "Say what a connected client follows.", guests, nil, subscribe{}, nil, "", s.subscribeRealtime},

		{"GET", "/api/chats/{id}/events", "A chat's history from the log and what comes, resumable by sequence.", accounts, streamQuery, nil, nil, eventStream, s.chatEvents},
		{"GET", "/api/events", "The log and what comes, resumable by sequence.", admins,
			append([]parameter{{name: "subject", about: "filter, such as evt.chat.*.opencode.permission.>"}}, streamQuery...), nil, nil, eventStream, s.allEvents},
		{"GET", "/api/chats/{id}/replay", "A chat as it stood after an event.", accounts, []parameter{{name: "at", integer: true, about: "sequence"}}, nil, moment{}, "", s.replayChat},
		{"GET", execution + "/output", "What a command wrote, and what it writes while it runs; byte ranges of what is stored.", accounts,
			[]parameter{{name: "stream", about: "stdout (when absent) or stderr"}, {name: "Range", header: true, about: "bytes=FIRST-LAST"}}, nil, nil, "*/*", s.executionOutput},
		{"POST", execution + "/signal", "Send a signal to a command that runs.", accounts, nil, signalRequest{}, nil, "", s.signalExecution},
		{"GET", execution + "/artifacts/{path...}", "A file that a command created or changed, as it left it.", accounts,
			[]parameter{{name: "Range", header: true, about: "bytes=FIRST-LAST"}}, nil, nil, "*/*", s.executionArtifact},
		{"POST", portOfChat, "A path, good for an hour, under which a browser reaches what the chat's commands serve at a port.", accounts, nil, nil, portAnswer{}, "", s.openPort},
		{anyMethod, portOfChat + "/{path...}", "What a command that runs in the background serves at a port of its own, whatever the method; WebSockets too.", accounts, nil, nil, nil, "*/*", s.servePort},

		{"POST", "/api/pocketcoder/permission", "Ask for a permission: a rule decides at once, or a person later.", staff, nil, permissionRequest{}, permissionAnswer{}, "", s.requestPermission},
		{"GET", permission + "/why", "What was asked, what every rule says of it, who decided, and what then ran.", accounts, nil, nil, handlers.Why{}, "", s.whyPermission},
		{"GET", permission + "/always", "The rule that would allow this kind from now on, and what it would have allowed so far. Nothing is stored.", accounts, alwaysQuery, nil, proposal{}, "", s.proposeAlways},
		{"POST", permission + "/always", "Store that rule, and allow the ask when it still waits.", accounts, nil, alwaysRequest{}, alwaysAnswer{}, "", s.allowAlways},
		{"POST", "/api/pocketcoder/policy/replay", "What a rule would have allowed of what was asked so far.", accounts, nil, replayRequest{}, handlers.DryRun{}, "", s.replayPolicy},
		{"GET", "/api/pocketcoder/ssh_keys", "The active public keys of the account's, a line each.", accounts, nil, nil, nil, "text/plain", s.listSSHKeys},
		{"GET", filesRoot + "{path...}", "The entries of a directory of the workspace.", accounts, nil, nil, directory{}, "", s.listFiles},
		{"GET", "/api/pocketcoder/artifact/{path...}", "A file of the workspace.", accounts, nil, nil, nil, "*/*", s.artifact},
		{"GET", push + "/key", "The public key with which a browser subscribes to Web Push.", accounts, nil, nil, pushKey{}, "", s.pushKey},
		{"POST", push, "Notify an account on its devices, unless it has turned that off or looks at the chat.", accounts, nil, pushRequest{}, pushAnswer{}, "", s.pushTo},
		{"POST", push + "/test", "Notify one device of the account's, to see whether that works.", accounts, nil, pushTestRequest{}, pushAnswer{}, "", s.testPush},
		{"POST", "/api/pocketcoder/act/{token}", "Do what a notification's button says, once.", anyone, nil, nil, actAnswer{}, "", s.act},
		{"POST", chat + "/abort", "Stop the chat's turn.", accounts, nil, nil, nil, "", s.abortChat},
		{"POST", chat + "/fork", "Begin a new chat as this one was before a message, or as it is.", accounts, nil, forkRequest{}, anyRecord{}, "", s.forkChat},
		{"POST", chat + "/revert", "Take back a message, what followed it, and its changes to files; without a message, undo that.", accounts, nil, revertRequest{}, nil, "", s.revertChat},
		{"GET", chat + "/diff", "What the chat's session changed in files.", accounts, fileMessage, nil, []json.RawMessage{}, "", s.diffChat},
		{"GET", chat + "/todo", "The assistant's list of what to do.", accounts, nil, nil, []json.RawMessage{}, "", s.todoOfChat},
	}
}
