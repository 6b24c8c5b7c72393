package api

import (
	"slices"

	"pocketcoder/events/log"
)

// Streams serves event streams, chats as they were, the output of commands, and files.
type Streams struct {
	API       *Server
	Log       *log.Log
	Workspace string // the directory whose files are served, absolute
}

var (
	streamQuery = []Param{
		{Name: "after", Integer: true, About: "sequence after which to begin; 0 when absent"},
		{Name: "deltas", About: "1: live fragments too, as events without id"},
		{Name: "Last-Event-ID", Header: true, About: "as after, and before it; what a client that reconnects sends"},
	}
	subjectQuery = []Param{{Name: "subject", About: "filter, such as evt.chat.*.opencode.permission.>"}}
)

// Routes are the routes of streams and files.
func (s *Streams) Routes() []Route {
	const execution = "/api/executions/{id}"
	return []Route{
		{Method: "GET", Path: "/api/chats/{id}/events", About: "A chat's history from the log and what comes, resumable by sequence.", Admits: accounts, Query: streamQuery, Media: eventStream, Serve: s.chatEvents},
		{Method: "GET", Path: "/api/events", About: "The log and what comes, resumable by sequence.", Admits: admins, Query: slices.Concat(subjectQuery, streamQuery), Media: eventStream, Serve: s.allEvents},
		{Method: "GET", Path: "/api/chats/{id}/replay", About: "A chat as it stood after an event.", Admits: accounts, Query: []Param{{Name: "at", Integer: true, About: "sequence"}}, Answer: moment{}, Serve: s.replayChat},
		{Method: "GET", Path: execution + "/output", About: "What a command wrote, and what it writes while it runs; byte ranges of what is stored.", Admits: accounts, Query: []Param{{Name: "stream", About: "stdout (when absent) or stderr"}, {Name: "Range", Header: true, About: "bytes=FIRST-LAST"}}, Media: "*/*", Serve: s.executionOutput},
		{Method: "GET", Path: execution + "/artifacts/{path...}", About: "A file that a command created or changed, as it left it.", Admits: accounts, Query: []Param{{Name: "Range", Header: true, About: "bytes=FIRST-LAST"}}, Media: "*/*", Serve: s.executionArtifact},
		{Method: "GET", Path: filesRoot + "{path...}", About: "The entries of a directory of the workspace.", Admits: accounts, Answer: directory{}, Serve: s.listFiles},
		{Method: "GET", Path: "/api/pocketcoder/artifact/{path...}", About: "A file of the workspace.", Admits: accounts, Media: "*/*", Serve: s.artifact},
	}
}
