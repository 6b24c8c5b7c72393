package timeline

import (
	"context"

	"github.com/pocketbase/dbx"
)

// News is what happened in chats after an event.
type News struct {
	Answers        int64      `db:"answers" json:"answers"` // messages of the assistant, without those of subagents
	Ended          int64      `db:"ended" json:"ended"`     // turns with a whole answer, or that a denial ended
	Failed         int64      `db:"failed" json:"failed"`   // turns, also those whose answer is not complete
	Stopped        int64      `db:"stopped" json:"stopped"`
	Commands       int64      `db:"commands" json:"commands"`               // that ended, or were refused
	CommandsFailed int64      `db:"commands_failed" json:"commands_failed"` // of them
	Files          int64      `db:"files" json:"files"`                     // that turns changed
	Decisions      []Decision `db:"-" json:"decisions"`
}

// Decision is how often an account, the rules together, or someone without an account decided requests in one way.
type Decision struct {
	Status  string `db:"status" json:"status"`         // authorized, denied
	By      string `db:"decided_by" json:"decided_by"` // actor: policy for rules
	Decider string `db:"decider" json:"decider"`       // email of the account, empty if it is none
	N       int64  `db:"n" json:"n"`
}

const (
	newIn      = ".chat IN (SELECT value FROM json_each({:chats}))"
	newAnswers = `FROM messages m WHERE m.written_seq>{:after} AND m` + newIn + ` AND m.role='assistant' AND NOT m.removed
		AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.id=m.session AND s.parent<>'')`
	newRuns = `FROM executions x WHERE x.last_seq>{:after} AND x` + newIn +
		` AND x.finished<>'' AND NOT x.terminal AND NOT x.removed`
	selectDecisions = `SELECT p.status AS status, p.decided_by AS decided_by, coalesce((SELECT email FROM users WHERE 'user:'||id=p.decided_by), '') AS decider, count(*) AS n
		FROM permissions p WHERE p.last_seq>{:after} AND p.decided_seq>{:after} AND p` + newIn + ` AND p.status IN ('authorized', 'denied') AND NOT p.removed
		GROUP BY 1, 2, 3 ORDER BY decider='', decider, decided_by, status`
)

var selectNews = `SELECT (SELECT count(*) ` + newAnswers + ` AND m.position>{:after}) AS answers,
		` + countEnded("IN ('complete', 'denied')") + ` AS ended,
		` + countEnded("NOT IN ('', 'complete', 'denied', 'stopped')") + ` +
			(SELECT count(*) FROM messages m WHERE m.last_seq>{:after} AND m` + newIn + ` AND m.user_message_status='failed' AND NOT m.removed) AS failed,
		` + countEnded("='stopped'") + ` AS stopped,
		(SELECT count(*) ` + newRuns + `) AS commands,
		(SELECT count(*) ` + newRuns + ` AND x.status<>'completed') AS commands_failed,
		(SELECT count(DISTINCT f.value) FROM parts p, json_each(p.data, '$.files') f WHERE NOT p.removed AND p.last_seq>{:after}
			AND p.data->>'$.type'='patch' AND p.message IN (SELECT m.id ` + newAnswers + `)) AS files`

// countEnded returns the SQL expression for the number of turns whose ending meets a condition.
func countEnded(condition string) string {
	return "(SELECT count(*) FROM turns u WHERE u.ended>{:after} AND u" + newIn + " AND u.answer<>'' AND u.ending " + condition + ")"
}

// NewsOf returns what happened in the chats with these ids after an event.
func NewsOf(ctx context.Context, db dbx.Builder, chats []string, after int64) (n News, err error) {
	params := dbx.Params{"chats": jsonList(chats), "after": after}
	if n, err = first[News](ctx, db, "news", selectNews, params); err != nil {
		return n, err
	}
	n.Decisions = []Decision{}
	err = list(ctx, db, &n.Decisions, "decisions", selectDecisions, params)
	return n, err
}

// LastSeen is when an account last saw something of a chat.
type LastSeen struct {
	Seq int64  `db:"seq"` // sequence of the event that says so, 0 for never
	At  string `db:"at"`
}

// LastSeenBy returns when an account last saw something of any chat.
func LastSeenBy(ctx context.Context, db dbx.Builder, user string) (LastSeen, error) {
	return first[LastSeen](ctx, db, "what "+user+" saw last", `SELECT last_seq AS seq, updated AS at FROM seen_positions
		WHERE user={:user} ORDER BY last_seq DESC LIMIT 1`, dbx.Params{"user": user})
}
