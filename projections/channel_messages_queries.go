package projections

import (
	"context"

	"github.com/pocketbase/dbx"

	"pocketcoder/events/opencode"
	"pocketcoder/projections/store"
	"pocketcoder/projections/turnstate"
)

// PendingChannelMessage is an answer, an error, a notice about the delivery of a message, a permission request, a
// question or a file that no message of a conversation carries yet.
type PendingChannelMessage struct {
	Chat    string           `db:"chat"` // of the conversation
	Channel string           `db:"channel"`
	Place   string           `db:"place"`
	Type    string           `db:"type"`
	About   string           `db:"about"`
	Text    string           `db:"text"`   // of an answer; caption of a file
	Domain  string           `db:"domain"` // of an error: infrastructure, provider
	Ending  turnstate.Ending `db:"ending"` // of an answer, and of an error that ended a turn
	Error   string           `db:"error"`  // JSON of an error
	Seq     int64            `db:"seq"`
}

// joinChannelReader joins the account of a pairing p, if it may read the chat h: it is enabled, and is an
// administrator, or owns the chat and has access to the project.
var joinChannelReader = `JOIN users u ON u.id=p.fields->>'$.user' AND NOT u.removed AND NOT u.disabled
		AND (u.role='admin' OR u.role<>'agent' AND u.id=h.user AND h.project IN (` + ProjectsOf("u.id", false) + `))`

// withConversations begins a query of the conversations c with a paired sender whose account may read the chat. Each
// has the sequence after which its messages are sent.
var withConversations = `WITH c AS (
	SELECT v.fields->>'$.chat' AS chat, v.fields->>'$.channel' AS channel, v.fields->>'$.place' AS place, min(p.first_seq) AS since
	FROM config v JOIN config p ON p.collection='pairings' AND NOT p.removed AND p.fields->>'$.channel'=v.fields->>'$.channel'
		AND p.fields->>'$.place'=v.fields->>'$.place' AND p.fields->>'$.expires_at'>{:now}
	JOIN config k ON k.collection='channels' AND NOT k.removed AND k.record=v.fields->>'$.channel'
	JOIN chats h ON h.id=v.fields->>'$.chat' AND NOT h.removed
	` + joinChannelReader + `
	WHERE v.collection='conversations' AND NOT v.removed GROUP BY v.id) `

// selectEndedTurns selects the messages of the assistant that changed after a sequence and ended a turn. OpenCode can
// say after the message that the turn is over.
const selectEndedTurns = `SELECT e.id, e.chat, e.error_domain, e.error_payload, e.engine_message_status, e.position, e.ending
		FROM messages e JOIN sessions s ON s.id=e.session AND s.parent=''
		WHERE e.last_seq>{:after} AND e.role='assistant' AND NOT e.removed AND NOT e.copied AND e.agent<>'` + opencode.AgentCompaction + `'
	UNION ALL
	SELECT e.id, e.chat, e.error_domain, e.error_payload, e.engine_message_status, e.position, u.ending
		FROM turns u JOIN messages e ON e.chat=u.chat AND e.ai_engine_message_id=u.answer AND u.answer<>''
		WHERE u.last_seq>{:after} AND u.ending='lost' AND e.ending='' AND NOT e.removed AND NOT e.copied`

// PendingChannelMessages returns what is not queued for its conversation yet, in log order. It reads only rows that
// changed after a sequence. now is the present time in the form of records. An answer counts only once its last part is
// stored, because a busy OpenCode can report the end of a message before its text.
func (m *Model) PendingChannelMessages(ctx context.Context, after uint64, now string) ([]PendingChannelMessage, error) {
	return store.List[PendingChannelMessage](ctx, m.Model, "pending channel messages", withConversations+`
		SELECT * FROM (
			SELECT c.chat, c.channel, c.place, CASE WHEN m.ending IN ('complete', 'cut', 'empty') THEN 'answer' ELSE 'error' END AS type, m.id AS about,
				coalesce((SELECT data->>'$.text' FROM parts WHERE message=m.id AND data->>'$.type'='text' AND NOT removed ORDER BY id DESC LIMIT 1), '') AS text,
				m.error_domain AS domain, m.error_payload AS error, m.ending AS ending, m.position AS seq
			FROM c JOIN (`+selectEndedTurns+`) m ON m.chat=c.chat AND m.position>c.since
			WHERE m.engine_message_status='failed' OR m.ending IN ('complete', 'cut', 'empty', 'filtered', 'lost')
				AND EXISTS (SELECT 1 FROM parts WHERE message=m.id AND data->>'$.type'='step-finish' AND NOT removed)
			UNION ALL
			SELECT c.chat, c.channel, c.place, 'error', m.id, '', m.error_domain, m.error_payload, '', m.position
			FROM messages m JOIN c ON c.chat=m.chat
			WHERE m.last_seq>{:after} AND m.role='user' AND NOT m.removed AND m.position>c.since AND m.user_message_status='failed'
			UNION ALL
			SELECT c.chat, c.channel, c.place, 'notice', 'notice/'||m.id, m.notice, '', '', '', m.position
			FROM messages m JOIN c ON c.chat=m.chat
			WHERE m.last_seq>{:after} AND m.role='user' AND NOT m.removed AND m.position>c.since AND m.notice<>''
			UNION ALL
			SELECT c.chat, c.channel, c.place, 'permission', p.id, '', '', '', '', p.asked_seq
			FROM waiting_requests p JOIN chats w ON w.id=p.chat AND NOT w.removed JOIN c ON c.chat=coalesce(nullif(w.root, ''), w.id)
			WHERE p.last_seq>{:after} AND p.asked_seq>c.since
			UNION ALL
			SELECT c.chat, c.channel, c.place, 'question', q.id, '', '', '', '', q.position
			FROM waiting_questions q JOIN chats w ON w.id=q.chat AND NOT w.removed JOIN c ON c.chat=coalesce(nullif(w.root, ''), w.id)
			WHERE q.last_seq>{:after} AND q.position>c.since
			UNION ALL
			SELECT c.chat, c.channel, c.place, 'file', a.id, a.caption, '', '', '', a.first_seq
			FROM artifacts a JOIN c ON c.chat=a.chat
			WHERE a.last_seq>{:after} AND a.execution='' AND NOT a.removed AND a.first_seq>c.since
		) x WHERE NOT EXISTS (SELECT 1 FROM channel_messages o WHERE o.chat=x.chat AND o.about=x.about) ORDER BY seq, about`,
		dbx.Params{"after": after, "now": now})
}

// OpenChannelMessages returns the messages that wait to be sent or are being sent, the oldest first.
func (m *Model) OpenChannelMessages(ctx context.Context) ([]ChannelMessage, error) {
	return store.List[ChannelMessage](ctx, m.Model, "open channel messages",
		"SELECT * FROM channel_messages WHERE state IN ('queued', 'sending') ORDER BY position, id", nil)
}

// ChannelPlace is a conversation of a channel.
type ChannelPlace struct {
	Channel string `db:"channel"`
	Place   string `db:"place"`
}

// MaySendChannelMessage reports whether a message may still be sent: a sender in its conversation is paired and may
// read its chat.
func (m *Model) MaySendChannelMessage(ctx context.Context, msg ChannelMessage, now string) (bool, error) {
	row, _, err := store.First[struct {
		N int `db:"n"`
	}](ctx, m.Model, "readers of channel message "+msg.ID, `SELECT count(*) AS n FROM config p
		JOIN chats h ON h.id={:chat} AND NOT h.removed `+joinChannelReader+` WHERE p.collection='pairings' AND NOT p.removed
		AND p.fields->>'$.channel'={:channel} AND p.fields->>'$.place'={:place} AND p.fields->>'$.expires_at'>{:now}`,
		dbx.Params{"chat": msg.Chat, "channel": msg.Channel, "place": msg.Place, "now": now})
	return row.N > 0, err
}

// ChannelThread is where a message belongs in a messenger with threads. Elsewhere Root is empty.
type ChannelThread struct {
	Conversation string `db:"conversation"` // id of the record
	Root         string `db:"root"`         // the platform's id of the first message of the thread
	Parent       string `db:"parent"`       // the platform's id of the newest message of a person
	Subject      string `db:"subject"`
}

func (m *Model) ChannelThreadOf(ctx context.Context, msg ChannelMessage) (ChannelThread, error) {
	row, _, err := store.First[ChannelThread](ctx, m.Model, "thread of channel message "+msg.ID, `SELECT v.record AS conversation,
			coalesce(v.fields->>'$.thread', '') AS root, coalesce(v.fields->>'$.subject', '') AS subject,
			coalesce((SELECT s.origin->>'$.message' FROM messages s WHERE s.chat={:chat} AND s.origin<>'' AND s.origin->>'$.message'<>''
				ORDER BY s.position DESC LIMIT 1), v.fields->>'$.thread', '') AS parent
		FROM config v WHERE v.collection='conversations' AND NOT v.removed AND v.fields->>'$.chat'={:chat}
			AND v.fields->>'$.channel'={:channel} AND v.fields->>'$.place'={:place}`,
		dbx.Params{"chat": msg.Chat, "channel": msg.Channel, "place": msg.Place})
	return row, err
}

// BusyConversations returns the conversations whose chat has a running turn.
func (m *Model) BusyConversations(ctx context.Context, now string) ([]ChannelPlace, error) {
	return store.List[ChannelPlace](ctx, m.Model, "busy conversations", withConversations+`
		SELECT c.channel, c.place FROM c JOIN chats h ON h.id=c.chat JOIN turns u ON u.id=h.current WHERE u.state='running'`,
		dbx.Params{"now": now})
}

// CountWaiting counts the messages that wait in a chat, and in the other chats of the sender who has it as a
// conversation. held counts those that a stop of the turn holds; waiting does not include them.
func (m *Model) CountWaiting(ctx context.Context, chat string) (waiting, held int, err error) {
	row, _, err := store.First[struct {
		All  int `db:"n"`
		Held int `db:"held"`
	}](ctx, m.Model, "waiting messages of chat "+chat, `SELECT count(*) AS n, count(*) FILTER (WHERE held<>'' AND held_by='') AS held
		FROM messages WHERE user_message_status IN ('pending', 'sending') AND role='user' AND NOT removed AND chat IN (SELECT {:chat} UNION ALL
			SELECT other.fields->>'$.chat' FROM config v JOIN config other ON other.collection='conversations' AND NOT other.removed
				AND other.fields->>'$.channel'=v.fields->>'$.channel' AND other.fields->>'$.place'=v.fields->>'$.place'
			WHERE v.collection='conversations' AND NOT v.removed AND v.fields->>'$.chat'={:chat})`, dbx.Params{"chat": chat})
	return row.All - row.Held, row.Held, err
}

// IsSubmitted reports whether the message is in a chat.
func (m *Model) IsSubmitted(ctx context.Context, message string) (bool, error) {
	row, _, err := store.First[struct {
		N int `db:"n"`
	}](ctx, m.Model, "message "+message, "SELECT count(*) AS n FROM messages WHERE id={:id}", dbx.Params{"id": message})
	return row.N > 0, err
}
