package events

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
	"time"
)

// Parent says who delegated work to a worker. A worker is a chat of its own that has a parent.
type Parent struct {
	Chat      string `json:"chat"`
	Root      string `json:"root"`                // chat of the person, at the root of the tree
	Depth     int    `json:"depth"`               // 1 for a worker of the root
	Session   string `json:"session,omitempty"`   // OpenCode's session that delegated
	Call      string `json:"call,omitempty"`      // its tool call
	Agent     string `json:"agent,omitempty"`     // record of the agent that delegated, as it was chosen then
	Subagent  string `json:"subagent,omitempty"`  // name of OpenCode's agent, if a subagent of the chat delegated
	Wait      bool   `json:"wait,omitempty"`      // the call waits for the result
	Directory string `json:"directory,omitempty"` // where the worker works, absolute; empty for the workspace
	Worktree  string `json:"worktree,omitempty"`  // root of the worker's git worktree, absolute; empty for none
	Branch    string `json:"branch,omitempty"`    // git branch of the worktree
}

// WorkerFinished means that the turn of a worker that answered a delegated message is over. Its result belongs to the
// parent.
type WorkerFinished struct {
	Message string `json:"message"`          // the delegated message
	Status  string `json:"status"`           // one of the Worker… constants
	Result  string `json:"result,omitempty"` // the last text of the answer, or why there is none
}

// The statuses of a finished worker.
const (
	WorkerCompleted = "completed"
	WorkerFailed    = "failed"
	WorkerAborted   = "aborted"
	WorkerLost      = "lost" // OpenCode went away in the middle of the turn
)

// WorkerSilent means that nothing happened in a worker for a long time although its turn runs. It is appended once for
// a delegated message.
type WorkerSilent struct {
	Message string    `json:"message"` // the delegated message
	Since   time.Time `json:"since"`   // of the last event before
}

// WorktreeClosed means that the git worktree of a deleted worker was removed, or is kept because it holds changes.
type WorktreeClosed struct {
	Worktree string `json:"worktree"`
	Kept     string `json:"kept,omitempty"`   // why it is kept; empty if it was removed
	Branch   string `json:"branch,omitempty"` // branch that is kept because of its commits; empty for none
}

func (WorktreeClosed) Kind() string { return "worktree.closed" }
func (WorkerFinished) Kind() string { return "worker.finished" }
func (WorkerSilent) Kind() string   { return "worker.silent" }

// ChatActor is chat:<id>, the actor of what the assistant of a chat does by a tool of PocketCoder.
func ChatActor(id string) string { return "chat:" + id }

// WorkerOf returns the id of the worker that a tool call starts. The same call starts one worker.
func WorkerOf(chat, session, engineMessage, call string) string {
	return idOf("worker", chat, session, engineMessage, call)
}

// MessageOf returns the id of the message that a tool call sends. The same call sends one message.
func MessageOf(chat, session, engineMessage, call string) string {
	return idOf("send", chat, session, engineMessage, call)
}

// FirstMessageOf returns the id of the message with which a worker begins.
func FirstMessageOf(worker string) string { return idOf("message", worker) }

func idOf(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])[:15]
}

// Receipt begins the output of a tool call that returns a result to the parent. It names the result, so that the log
// shows that the parent has received it.
type Receipt struct {
	Message string `json:"message_id"` // the delegated message
	Result  string `json:"result_id"`  // id of the worker.finished event
}

var receipt = regexp.MustCompile(`"message_id":\s*"([A-Za-z0-9_-]+)",\s*"result_id":\s*"([A-Za-z0-9_-]+)"`)

// ReceiptsIn returns the receipts in the output of a tool call.
func ReceiptsIn(output string) (all []Receipt) {
	for _, m := range receipt.FindAllStringSubmatch(output, -1) {
		all = append(all, Receipt{m[1], m[2]})
	}
	return all
}
