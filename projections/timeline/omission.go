package timeline

import (
	"context"
	"strings"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/events/opencode"
	"pocketcoder/projections/store"
)

// Offer has the files that a chat can leave out because the provider refused its last message. It is empty if there is
// nothing to leave out.
type Offer struct {
	Step  string // message of the assistant that carries the error
	Files []events.OmittedFile
	// why OpenCode refused to leave files out the last time; empty if it did not
	Reason string
}

func (o Offer) Names() (names []string) {
	for _, f := range o.Files {
		names = append(names, f.Name)
	}
	return names
}

const (
	selectRefusal = `SELECT l.id, l.error_payload AS error, (SELECT coalesce(max(a.ai_engine_message_id), '') FROM messages a
			WHERE a.chat={:chat} AND a.session={:session} AND a.role='assistant' AND NOT a.removed
				AND a.engine_message_status='completed' AND a.agent<>'` + opencode.AgentCompaction + `') AS answered,
			coalesce((SELECT reason FROM effects WHERE chat={:chat} AND kind='omit' ORDER BY position DESC LIMIT 1), '') AS reason
		FROM messages l JOIN chats c ON c.id=l.chat AND c.turn='user'
		WHERE l.id=(SELECT id FROM messages WHERE chat={:chat} AND session={:session} AND role='assistant' AND NOT removed
				ORDER BY position DESC LIMIT 1)
			AND l.engine_message_status='failed'
			AND NOT EXISTS (SELECT 1 FROM effects WHERE chat={:chat} AND kind='omit' AND state<>'failed' AND position>l.position)`
	selectFiles = `SELECT p.data, m.ai_engine_message_id AS message FROM messages m JOIN parts p ON p.message=m.id AND NOT p.removed
		WHERE m.chat={:chat} AND m.session={:session} AND NOT m.removed AND json_valid(p.data) AND p.data->>'$.messageID'<>''
			AND (p.data->>'$.type'='file' OR json_array_length(p.data, '$.state.attachments')>0)
		ORDER BY m.position, p.id`
)

func ReadOffer(ctx context.Context, db dbx.Builder, chat, session string) (o Offer, err error) {
	params := dbx.Params{"chat": chat, "session": session}
	refusal, err := first[struct {
		ID       string     `db:"id"`
		Error    store.JSON `db:"error"`
		Answered string     `db:"answered"`
		Reason   string     `db:"reason"`
	}](ctx, db, "refusal in "+chat, selectRefusal, params)
	if err != nil || !(opencode.Error{RawMessage: []byte(refusal.Error)}).Refused() {
		return o, err
	}
	var rows []struct {
		Data    store.JSON `db:"data"`
		Message string     `db:"message"`
	}
	if err := list(ctx, db, &rows, "files of "+chat, selectFiles, params); err != nil {
		return o, err
	}
	var files []events.OmittedFile
	for _, row := range rows {
		var p opencode.Part
		if p.UnmarshalJSON([]byte(row.Data)) != nil {
			continue
		}
		if names := p.Files(); len(names) > 0 {
			files = append(files, events.OmittedFile{Message: row.Message, Part: p.ID, Name: strings.Join(names, ", ")})
		}
	}
	return Offer{refusal.ID, events.OfferedFiles(files, refusal.Answered), refusal.Reason}, nil
}
