package projections

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/projections/store"
)

// Execution is a run of a command in a sandbox, or its refusal.
type Execution struct {
	store.Record
	Permission  string     `db:"permission" json:"permission"` // record id; empty for a refused one
	Command     string     `db:"command" json:"command"`       // record id
	Original    string     `db:"original" json:"original"`     // as the model gave it, when a person has edited it
	Chat        string     `db:"chat" json:"chat"`
	Session     string     `db:"session_id" json:"session_id"`
	Call        string     `db:"call_id" json:"call_id"`
	Message     string     `db:"message" json:"-"` // OpenCode's id of the message with the call
	Cwd         string     `db:"cwd" json:"cwd"`
	Status      string     `db:"status" json:"status"` // one of Exec…, or the reason why it ended other than by itself
	ExitCode    int64      `db:"exit_code" json:"exit_code"`
	Signal      string     `db:"signal" json:"signal"`
	Reason      string     `db:"reason" json:"reason"`
	Error       string     `db:"error" json:"error"`
	LeftBehind  string     `db:"left_behind" json:"left_behind"` // see events.LeftProcesses.Sentence
	Outputs     store.JSON `db:"outputs" json:"outputs"`         // {stdout, stderr}, each an events.Output
	StdoutBytes int64      `db:"stdout_bytes" json:"stdout_bytes"`
	StderrBytes int64      `db:"stderr_bytes" json:"stderr_bytes"`
	DurationMS  int64      `db:"duration_ms" json:"duration_ms"`
	Source      string     `db:"source" json:"source"` // opencode, or person for their own shell
	Pool        string     `db:"pool" json:"pool"`
	Worker      string     `db:"worker" json:"worker"`       // that took it; empty when none did
	Isolation   string     `db:"isolation" json:"isolation"` // bwrap, landlock, container or none; likewise
	Detached    bool       `db:"detached" json:"detached"`   // runs in the background
	Terminal    bool       `db:"terminal" json:"terminal"`   // a person's own shell
	Private     bool       `db:"private" json:"private"`     // its output is not recorded
	Changed     int64      `db:"changed" json:"changed"`     // files that were created or changed while it ran
	Started     string     `db:"started" json:"started"`
	Finished    string     `db:"finished" json:"finished"`
	Position    int64      `db:"position" json:"position"`
}

// Command is the text of the commands with one hash. It is stored once, however often it is requested.
type Command struct {
	store.Record
	Hash    string `db:"hash" json:"hash"` // SHA-256, hex
	Command string `db:"command" json:"command"`
	Uses    int64  `db:"uses" json:"uses"` // how often it was handed to a sandbox
}

// executionTables are the tables of executions.
type executionTables struct {
	Tx         *store.Tx
	Executions *store.Table[Execution]
	Commands   *store.Table[Command]
}

// update applies an event of a chat.
func (t executionTables) update(e events.Event, body any) error {
	switch b := body.(type) {
	case events.ExecRequested:
		x, err := t.begin(e, b.Exec, b.Session, b.Call, b.Cwd)
		if err != nil {
			return err
		}
		x.Permission, x.Pool, x.Status = store.RecordID(b.Permission), b.Pool, events.ExecutionRunning
		x.Started = t.Tx.EventTime()
		x.Original, x.Detached, x.Terminal, x.Private = b.Original, b.Detached, b.Terminal, b.Private
		if b.Terminal {
			x.Permission, x.Source = "", sourcePerson
		} else {
			x.Command = t.command(b.Command, 1)
		}
		t.Executions.Put(x)
	case events.ExecRefused:
		x, err := t.begin(e, b.Exec, b.Session, b.Call, b.Cwd)
		if err != nil {
			return err
		}
		x.Status, x.Reason, x.ExitCode, x.Finished = events.ExecutionRefused, b.Reason, refusedExitCode, t.Tx.EventTime()
		x.Command = t.command(b.Command, 0)
		t.Executions.Put(x)
	case events.ExecStarted:
		return t.change(b.Exec, func(x *Execution) { x.Worker, x.Isolation = b.Worker, b.Isolation })
	case events.ExecFinished:
		return t.change(b.Exec, func(x *Execution) { x.finish(t.Tx.EventTime(), b) })
	case events.ExecChanged:
		return t.change(b.Exec, func(x *Execution) { x.Changed = int64(len(b.Files) + b.More) })
	}
	return nil
}

// The sources of an execution.
const (
	sourceEngine = "opencode"
	sourcePerson = "person"
)

// setMessage names the message with the call of an execution.
func (t executionTables) setMessage(id, engineMessage string) error {
	return t.change(id, func(x *Execution) { x.Message = engineMessage })
}

func (t executionTables) change(id string, change func(*Execution)) error {
	x, found := t.Executions.Get(id)
	if !found {
		return fmt.Errorf("execution %s was never requested", id)
	}
	change(&x)
	t.Executions.Put(x)
	return nil
}

// refusedExitCode is the exit code of a refused command. POSIX shells use it for "command found but not executable".
const refusedExitCode = 126

func (t executionTables) begin(e events.Event, id, session, call, cwd string) (Execution, error) {
	x, found := t.Executions.Get(id)
	if found {
		return x, fmt.Errorf("execution %s exists", id)
	}
	x.Chat, x.Session, x.Call, x.Cwd = e.Subject.ID, session, call, cwd
	x.Source, x.Outputs, x.Position = sourceEngine, "{}", int64(e.Seq)
	return x, nil
}

func (x *Execution) finish(now string, b events.ExecFinished) {
	x.Status, x.ExitCode, x.Signal, x.Reason, x.Error = b.Status, int64(b.ExitCode), b.Signal, b.Reason, b.Error
	x.DurationMS, x.StdoutBytes, x.StderrBytes, x.Finished = b.DurationMS, b.Stdout.Bytes, b.Stderr.Bytes, now
	if b.Worker != "" {
		x.Worker, x.Isolation = b.Worker, b.Isolation
	}
	x.LeftBehind = b.Left.Sentence()
	x.Outputs = store.JSON(events.MustEncode(ExecutionOutputs{b.Stdout, b.Stderr}))
}

// CommandEnd is how a command ended.
type CommandEnd struct {
	Exec     string `json:"exec"`
	Status   string `json:"status"`
	ExitCode int64  `json:"exit_code"`
	Signal   string `json:"signal"`
	Error    string `json:"error"`
	Edited   string `json:"edited"` // the command that ran, if a person has edited it
}

// End returns how the execution ended, without Edited. The status of one that has not ended is events.ExecutionRunning.
func (x Execution) End() CommandEnd {
	return CommandEnd{Exec: x.ID, Status: x.Status, ExitCode: x.ExitCode, Signal: x.Signal, Error: x.Error}
}

// ExecutionOutputs is the JSON object in Execution.Outputs.
type ExecutionOutputs struct {
	Stdout events.Output `json:"stdout"`
	Stderr events.Output `json:"stderr"`
}

// command adds uses to a command and returns its record id.
func (t executionTables) command(command string, uses int64) string {
	sum := sha256.Sum256([]byte(command))
	hash := hex.EncodeToString(sum[:])
	c, _ := t.Commands.Get(store.RecordID(hash))
	c.Hash, c.Command = hash, command
	c.Uses += uses
	t.Commands.Put(c)
	return c.ID
}

// ShownExecution is an execution with the text of its command. A person's shell has none.
type ShownExecution struct {
	Execution
	Text string `db:"text" json:"text"`
}

// SelectExecutions selects ShownExecutions from executions x. A condition on x follows it.
const SelectExecutions = "SELECT x.*, coalesce(c.command,'') AS text FROM executions x LEFT JOIN commands c ON c.id=x.command WHERE "

// Executions lists the executions of a chat in order.
func (m *Model) Executions(ctx context.Context, chat string) ([]ShownExecution, error) {
	return store.List[ShownExecution](ctx, m.Model, "executions of "+chat,
		SelectExecutions+"x.chat={:chat} ORDER BY x.position", dbx.Params{"chat": chat})
}

// Execution returns an execution, and whether there is one.
func (m *Model) Execution(ctx context.Context, id string) (ShownExecution, bool, error) {
	return store.First[ShownExecution](ctx, m.Model, "execution "+id, SelectExecutions+"x.id={:id}",
		dbx.Params{"id": id})
}

// RunningExecutions lists the executions without a known result, oldest first.
func (m *Model) RunningExecutions(ctx context.Context) ([]ShownExecution, error) {
	return store.List[ShownExecution](ctx, m.Model, "running executions",
		SelectExecutions+"x.status='executing' ORDER BY x.position", nil)
}
