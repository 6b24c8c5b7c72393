// Package stream serves what is longer than a record: event streams of a chat or of the whole log, a chat as it was at
// an event, the output of a command, and files of the workspace.
//
// Promises: an event stream resumes after the sequence that the client names, without loss or repetition. A stream
// ends with the login, and with the right to see the chat. Output comes byte by byte in order, also while the command
// runs. A file path leads to a regular file inside the workspace, never through a symbolic link. Memory per client is
// bounded.
//
// It must not change anything: it only reads.
package stream

import (
	"slices"

	"pocketcoder/events/log"
	"pocketcoder/web/api"
	"pocketcoder/web/openapi"
)

// Streams serves event streams, replayed chats, output and files.
type Streams struct {
	API       *api.Server
	Log       *log.Log
	Workspace string // the directory whose files are served, absolute

	open Slots // of event streams
}

// maxStreams is the largest number of event streams that an account has open at once.
const maxStreams = 200

var (
	streamQuery = []openapi.Param{
		{Name: "after", Integer: true, About: "sequence after which to begin; 0 when absent"},
		{Name: "deltas", About: "1: live fragments too, as events without id"},
		{Name: "Last-Event-ID", Header: true, About: "as after, and before it; what a client that reconnects sends"},
	}
	subjectQuery = []openapi.Param{{Name: "subject", About: "filter, such as evt.chat.*.opencode.permission.>"}}
)

func (s *Streams) Routes() []api.Route {
	const execution = "/api/executions/{id}"
	return []api.Route{
		{Method: "GET", Path: "/api/chats/{id}/events", About: "A chat's history from the log and what comes, resumable by sequence.", Admits: api.Accounts, Query: streamQuery, Media: api.EventStream, Serve: s.chatEvents},
		{Method: "GET", Path: "/api/events", About: "The log and what comes, resumable by sequence.", Admits: api.Admins, Query: slices.Concat(subjectQuery, streamQuery), Media: api.EventStream, Serve: s.allEvents},
		{Method: "GET", Path: "/api/chats/{id}/replay", About: "A chat as it stood after an event.", Admits: api.Accounts, Query: []openapi.Param{{Name: "at", Integer: true, About: "sequence"}}, Answer: moment{}, Serve: s.replayChat},
		{Method: "GET", Path: execution + "/output", About: "What a command wrote, and what it writes while it runs; byte ranges of what is stored.", Admits: api.Accounts, Query: []openapi.Param{{Name: "stream", About: "stdout (when absent) or stderr"}, {Name: "Range", Header: true, About: "bytes=FIRST-LAST"}}, Media: "*/*", Serve: s.executionOutput},
		{Method: "GET", Path: execution + "/artifacts/{path...}", About: "A file that a command created or changed, as it left it.", Admits: api.Accounts, Query: []openapi.Param{{Name: "Range", Header: true, About: "bytes=FIRST-LAST"}}, Media: "*/*", Serve: s.executionArtifact},
		{Method: "GET", Path: api.FilesRoot + "{path...}", About: "The entries of a directory of the workspace.", Admits: api.Accounts, Answer: directory{}, Serve: s.listFiles},
		{Method: "GET", Path: "/api/pocketcoder/artifact/{path...}", About: "A file of the workspace.", Admits: api.Accounts, Media: "*/*", Serve: s.artifact},
	}
}
