package projections

import (
	"context"

	"github.com/pocketbase/dbx"

	"pocketcoder/projections/store"
)

// ShownMessage is a message with its parts.
type ShownMessage struct {
	Message
	Parts    store.JSON `db:"shown" json:"parts"`       // list, in the order of their ids
	Subagent string     `db:"subagent" json:"subagent"` // the subagent's session whose message it is; empty in the chat's own conversation
}

// Messages lists a chat's messages in order, subagents' among them. Of a person's message OpenCode does not have yet,
// the parts are as they were submitted.
func (m *Model) Messages(ctx context.Context, chat string) ([]ShownMessage, error) {
	return store.List[ShownMessage](ctx, m.Model, "messages of "+chat, SelectShown+"m.chat={:chat} AND NOT m.removed AND m.role<>'' ORDER BY m.position", dbx.Params{"chat": chat})
}

func (m *Model) Message(ctx context.Context, id string) (ShownMessage, bool, error) {
	return store.First[ShownMessage](ctx, m.Model, "message "+id, SelectShown+"m.id={:id} AND NOT m.removed AND m.role<>''", dbx.Params{"id": id})
}

// ChatOf gives the chat of the row of messages or permissions with an id, of a removed one too, and whether there is one: if
// not, a new one may have the id.
func (m *Model) ChatOf(ctx context.Context, table, id string) (chat string, ok bool, err error) {
	row, ok, err := store.First[struct{ Chat string }](ctx, m.Model, "chat of "+table+" "+id, "SELECT chat FROM "+table+" WHERE id={:id}", dbx.Params{"id": id})
	return row.Chat, ok, err
}

// SelectShown selects ShownMessages from messages m. A condition on m follows it.
const SelectShown = `SELECT m.*, coalesce(
		(SELECT '['||group_concat(data, ',')||']' FROM (SELECT data FROM parts WHERE message=m.id AND NOT removed ORDER BY id)), m.submitted) AS shown,
		coalesce((SELECT id FROM sessions WHERE id=m.session AND parent<>''), '') AS subagent
	FROM messages m WHERE `

// ToolCall is a call of a tool.
type ToolCall struct {
	Tool      string     `db:"tool"`
	Input     store.JSON `db:"input"`     // object; empty until OpenCode has said with what the tool is called
	Directory string     `db:"directory"` // where its session works
	Agent     string     `db:"agent"`     // that makes it
	Several   bool       `db:"several"`   // the message has several calls with this id: which of them is meant is not known
}

// ToolCall returns a call of a message of a session by OpenCode's ids, and whether the message exists.
func (m *Model) ToolCall(ctx context.Context, session, engineMessage, call string) (ToolCall, bool, error) {
	return store.First[ToolCall](ctx, m.Model, "call "+call, `SELECT m.agent AS agent, s.directory AS directory, coalesce((
			SELECT json_extract(data,'$.tool') FROM parts WHERE message=m.id AND NOT removed AND json_extract(data,'$.type')='tool'
			AND json_extract(data,'$.callID')={:call}), '') AS tool, coalesce((
			SELECT json_extract(data,'$.state.input') FROM parts WHERE message=m.id AND NOT removed AND json_extract(data,'$.type')='tool'
			AND json_extract(data,'$.callID')={:call} AND json_extract(data,'$.state.status')<>'pending'), '') AS input, (
			SELECT count(*)>1 OR coalesce(max(reused),0) FROM parts WHERE message=m.id AND json_extract(data,'$.type')='tool'
			AND json_extract(data,'$.callID')={:call}) AS several
		FROM messages m JOIN sessions s ON s.id=m.session WHERE m.id={:message} AND m.session={:session}`,
		dbx.Params{"message": RecordID(engineMessage), "session": session, "call": call})
}

// AwaitToolCall waits until OpenCode reports the arguments of the call, or ctx ends. OpenCode asks for permission earlier.
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
