package projections

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/projections/store"
)

type ToolCall struct {
	Tool      string     `db:"tool"`
	Input     store.JSON `db:"input"`     // object; empty until OpenCode has said with what the tool is called
	Directory string     `db:"directory"` // where its session works
	Agent     string     `db:"agent"`     // name of the agent that makes it
	Chosen    string     `db:"chosen"`    // record of the agent that a person has chosen for the turn
	// the message has several calls with this id: which of them is meant is not known
	Several bool `db:"several"`
}

// ToolCall returns a call of a message of a session by OpenCode's ids, and whether the message exists.
func (m *Model) ToolCall(ctx context.Context, session, engineMessage, call string) (ToolCall, bool, error) {
	return store.First[ToolCall](ctx, m.Model, "call "+call, `SELECT m.agent AS agent, m.chosen_agent AS chosen, s.directory AS directory, coalesce((
			SELECT json_extract(data,'$.tool') FROM parts WHERE message=m.id AND NOT removed AND json_extract(data,'$.type')='tool'
			AND json_extract(data,'$.callID')={:call}), '') AS tool, coalesce((
			SELECT json_extract(data,'$.state.input') FROM parts WHERE message=m.id AND NOT removed AND json_extract(data,'$.type')='tool'
			AND json_extract(data,'$.callID')={:call} AND json_extract(data,'$.state.status')<>'pending'), '') AS input, (
			SELECT count(*)>1 OR coalesce(max(reused),0) FROM parts WHERE message=m.id AND json_extract(data,'$.type')='tool'
			AND json_extract(data,'$.callID')={:call}) AS several
		FROM messages m JOIN sessions s ON s.id=m.session WHERE m.id={:message} AND m.session={:session}`,
		dbx.Params{"message": store.RecordID(engineMessage), "session": session, "call": call})
}

// AwaitToolCall waits until OpenCode reports the arguments of the call, or ctx ends. OpenCode asks for permission
// earlier.
func (m *Model) AwaitToolCall(ctx context.Context, session, engineMessage, call string) (found ToolCall, err error) {
	for {
		seq := m.Seq()
		if found, _, err = m.ToolCall(ctx, session, engineMessage, call); err != nil || found.Input != "" {
			return found, err
		}
		if err := m.Wait(ctx, seq+1); err != nil {
			return found, err
		}
	}
}

// argumentsTime bounds how long ToolArguments waits.
const argumentsTime = 2 * time.Second

// ToolArguments returns the arguments of the tool call that a permission request is for, as a JSON object. Only
// requests for tools of PocketCoder and of MCP servers need them, because these requests name no more than the tool. It
// waits for a moment until OpenCode has reported the arguments. It returns "" for other requests, and if it is not
// certain with which arguments the tool is called.
func (m *Model) ToolArguments(ctx context.Context, p Permission) (string, error) {
	if !p.Content().NamesOnlyTool() || p.Source == SourceAPI {
		return "", nil
	}
	waiting, cancel := context.WithTimeout(ctx, argumentsTime)
	defer cancel()
	c, err := m.AwaitToolCall(waiting, p.Session, p.EngineMessage, p.Call)
	if waiting.Err() != nil {
		return "", ctx.Err()
	}
	var values map[string]json.RawMessage
	if err != nil || c.Several || json.Unmarshal([]byte(c.Input), &values) != nil {
		return "", err
	}
	delete(values, "caller") // PocketCoder added it
	body, err := events.Encode(values)
	var lines bytes.Buffer
	if err == nil {
		err = json.Indent(&lines, body, "", "  ")
	}
	return lines.String(), err
}

// maxRunningCalls is among how many of the newest messages of a session a running call is looked for.
const maxRunningCalls = 10

// RunningCall has OpenCode's ids of the message and the part with a call that runs.
type RunningCall struct {
	Message string `db:"message"`
	Part    string `db:"part"`
}

// AwaitRunningCall returns the place of a call that runs, once the read model has it.
func (m *Model) AwaitRunningCall(ctx context.Context, chat, session, call string) (found RunningCall, err error) {
	for {
		seq := m.Seq()
		found, ok, err := store.First[RunningCall](ctx, m.Model, "running call "+call, `
			SELECT m.ai_engine_message_id AS message, p.id AS part FROM (
				SELECT * FROM messages
				WHERE chat={:chat} AND session={:session} AND role='assistant' AND NOT removed
				ORDER BY position DESC LIMIT {:most}) m
			JOIN parts p ON p.message=m.id WHERE NOT p.removed AND json_extract(p.data,'$.type')='tool'
				AND json_extract(p.data,'$.callID')={:call} AND json_extract(p.data,'$.state.status')='running'
			ORDER BY m.position DESC LIMIT 1`,
			dbx.Params{"chat": chat, "session": session, "call": call, "most": maxRunningCalls})
		if err != nil || ok {
			return found, err
		}
		if err := m.Wait(ctx, seq+1); err != nil {
			return found, err
		}
	}
}
