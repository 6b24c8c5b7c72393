// Package stream serves long responses: event streams of a chat or of the whole log, a chat as it was at an event, the
// output of a command, and files of the workspace.
//
// Promises: an event stream resumes after the sequence that the client names, without loss or repetition. A stream
// ends when the login ends, or when the account may no longer see the chat. Output comes byte by byte in order, also
// while the command runs. A file path leads to a regular file inside the workspace, never through a symbolic link.
// Memory per client is bounded.
//
// It must not change anything: it only reads.
package stream

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"pocketcoder/events/log"
	"pocketcoder/web/api"
)

// Streams serves event streams, replayed chats, output and files.
type Streams struct {
	API       *api.Server
	Log       *log.Log
	Directory func(ctx context.Context, project string) (string, error) // returns the absolute directory of a project

	open Slots // of event streams
}

// maxStreams is the largest number of event streams that an account has open at once.
const maxStreams = 200

var (
	streamQuery = []api.Param{
		{Name: "after", Integer: true, About: "sequence after which to begin; default 0"},
		{Name: "deltas", About: "1: also send live deltas, as events without an id; only: send nothing but deltas"},
		{Name: "since", About: "with deltas=only: also send the deltas that are stored since this time (RFC 3339)"},
		{Name: "Last-Event-ID", Header: true, About: "as after, and has precedence over it; a reconnecting client sends it"},
	}
	kindsQuery   = []api.Param{{Name: "kinds", About: "only events of these kinds, such as permission.*,exec.finished"}}
	projectQuery = []api.Param{{Name: "project", About: "id of the project; the first one by default"}}
	subjectQuery = []api.Param{{Name: "subject", About: "filter, such as evt.chat.*.opencode.permission.>"}}
)

func (s *Streams) Routes() []api.Route {
	const execution = "/api/executions/{id}"
	return []api.Route{
		{Method: "GET", Path: "/api/chats/{id}/events", About: "The stored and the new events of a chat, resumable by sequence.", Access: api.Accounts, Query: slices.Concat(kindsQuery, streamQuery), Media: api.EventStream, Serve: s.chatEvents},
		{Method: "GET", Path: "/api/events", About: "The stored and the new events of the log, resumable by sequence.", Access: api.Admins, Query: slices.Concat(subjectQuery, streamQuery), Media: api.EventStream, Serve: s.allEvents},
		{Method: "GET", Path: "/api/chats/{id}/replay", About: "A chat as it was after an event.", Access: api.Accounts, Query: []api.Param{{Name: "at", Integer: true, About: "sequence"}}, Answer: moment{}, Serve: s.replayChat},
		{Method: "GET", Path: execution + "/output", About: "The output of a command, also while it runs. Stored output can be read in byte ranges.", Access: api.Accounts, Query: []api.Param{{Name: "stream", About: "stdout (default) or stderr"}, {Name: "Range", Header: true, About: "bytes=FIRST-LAST"}}, Media: "*/*", Serve: s.executionOutput},
		{Method: "GET", Path: execution + "/deltas", About: "The deltas of the output of a command that are stored, with their offsets.", Access: api.Accounts, Query: []api.Param{{Name: "follow", About: "1: go on with new ones until the client ends"}}, Media: api.EventStream, Serve: s.executionDeltas},
		{Method: "GET", Path: execution + "/artifacts/{path...}", About: "A file that a command created or changed, as the command left it.", Access: api.Accounts, Query: []api.Param{{Name: "Range", Header: true, About: "bytes=FIRST-LAST"}}, Media: "*/*", Serve: s.executionArtifact},
		{Method: "GET", Path: "/api/artifacts/{id}/content", About: "A file that the assistant sent, or that a command left.", Access: api.Accounts, Query: []api.Param{{Name: "Range", Header: true, About: "bytes=FIRST-LAST"}}, Media: "*/*", Serve: s.artifactContent},
		{Method: "GET", Path: api.FilesRoot + "{path...}", About: "The entries of a directory of a project.", Access: api.Accounts, Query: projectQuery, Answer: directory{}, Serve: s.listFiles},
		{Method: "GET", Path: "/api/pocketcoder/artifact/{path...}", About: "A file of a project.", Access: api.Accounts, Query: projectQuery, Media: "*/*", Serve: s.artifact},
	}
}

// Slots limits how many streams or downloads each account has at once. The zero value is ready.
type Slots struct {
	mu   sync.Mutex
	used map[string]int // by Caller.Key
}

// Acquire occupies a slot of a caller until release is called. It refuses a caller that has limit slots already, with
// the text refusal.
func (s *Slots) Acquire(caller api.Caller, limit int, refusal string) (release func(), err error) {
	key := caller.Key()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used[key] >= limit {
		return nil, api.Problem{Status: http.StatusTooManyRequests, Message: refusal, Retry: 10 * time.Second}
	}
	if s.used == nil {
		s.used = map[string]int{}
	}
	s.used[key]++
	return func() { s.release(key) }, nil
}

func (s *Slots) release(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used[key]--; s.used[key] == 0 {
		delete(s.used, key)
	}
}
