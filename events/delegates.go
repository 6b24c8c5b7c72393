package events

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
	"time"
)

// Parent says which chat delegated work to a delegate. A delegate is a chat of its own that has a parent.
type Parent struct {
	Chat      string `json:"chat"`
	Root      string `json:"root"`                // chat of the person, at the root of the tree
	Depth     int    `json:"depth"`               // 1 for a delegate of the root
	Session   string `json:"session,omitempty"`   // OpenCode's session that delegated
	Call      string `json:"call,omitempty"`      // its tool call
	Agent     string `json:"agent,omitempty"`     // record of the agent that delegated, as it was chosen then
	Subagent  string `json:"subagent,omitempty"`  // name of OpenCode's agent, if a subagent of the chat delegated
	Wait      bool   `json:"wait,omitempty"`      // the call waits for the result
	Directory string `json:"directory,omitempty"` // where the delegate works, absolute; empty for the workspace
	Worktree  string `json:"worktree,omitempty"`  // root of the delegate's git worktree, absolute; empty for none
	Branch    string `json:"branch,omitempty"`    // git branch of the worktree
}

// DelegateFinished means that the turn of a delegate that answered a delegated message is over. Its result belongs to
// the parent.
type DelegateFinished struct {
	Message string `json:"message"`          // the delegated message
	Status  string `json:"status"`           // one of the Delegate… statuses
	Result  string `json:"result,omitempty"` // the last text of the answer, or why there is none
}

// The statuses of a finished delegate.
const (
	DelegateCompleted = "completed"
	DelegateFailed    = "failed"
	DelegateAborted   = "aborted"
	DelegateLost      = "lost" // OpenCode went away in the middle of the turn
)

// DelegateSilent means that nothing happened in a delegate for a long time although its turn runs. It is appended once
// for a delegated message.
type DelegateSilent struct {
	Message string    `json:"message"` // the delegated message
	Since   time.Time `json:"since"`   // of the last event before
}

// WorktreeClosed means that the git worktree of a deleted delegate was removed, or is kept because it holds changes.
type WorktreeClosed struct {
	Worktree string `json:"worktree"`
	Kept     string `json:"kept,omitempty"`   // why it is kept; empty if it was removed
	Branch   string `json:"branch,omitempty"` // branch that is kept because of its commits; empty for none
}

func (WorktreeClosed) Kind() string   { return "worktree.closed" }
func (DelegateFinished) Kind() string { return "worker.finished" }
func (DelegateSilent) Kind() string   { return "worker.silent" }

// ChatActor is chat:<id>, the actor of what the assistant of a chat does by a tool of PocketCoder.
func ChatActor(id string) string { return "chat:" + id }

// DelegateOf returns the id of the delegate that a tool call starts. The same call starts one delegate.
func DelegateOf(chat, session, engineMessage, call string) string {
	return idOf("worker", chat, session, engineMessage, call)
}

// MessageOf returns the id of the message that a tool call sends. The same call sends one message.
func MessageOf(chat, session, engineMessage, call string) string {
	return idOf("send", chat, session, engineMessage, call)
}

// FirstMessageOf returns the id of the message with which a delegate begins.
func FirstMessageOf(delegate string) string { return idOf("message", delegate) }

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
