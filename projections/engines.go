package projections

import (
	"context"

	"pocketcoder/projections/store"
)

// Demand is what an engine has to do.
type Demand struct {
	Engine string
	Since  int64 // position of the oldest event on which it must act, or of what runs in it; 0 for none
	Waits  bool  // something else waits that goes on in it, such as a message that a budget holds back
}

// SelectDemands lists the Demands of engines. Each part of it reads the few rows of an index.
const SelectDemands = `
		SELECT engine, coalesce(min(nullif(since, 0)), 0) AS since, max(since = 0) AS waits FROM (
			SELECT c.engine, CASE WHEN x.held='' THEN x.position ELSE 0 END AS since
				FROM messages x JOIN chats c ON c.id=x.chat AND NOT c.removed WHERE x.user_message_status IN ('pending','sending')
			UNION ALL SELECT c.engine, x.position FROM effects x JOIN chats c ON c.id=x.chat WHERE x.state='open'
			UNION ALL SELECT s.engine, CASE WHEN x.interrupted THEN 0 ELSE x.decided_seq END
				FROM permissions x JOIN sessions s ON s.id=x.session_id WHERE x.status IN ('authorized','denied') AND NOT x.replied
				AND NOT (x.interrupted AND (x.status='denied' OR x.grant_used))
			UNION ALL SELECT c.engine, x.decided_seq FROM permissions x JOIN chats c ON c.id=x.chat
				WHERE x.permission='keep' AND x.decided_seq > 0 AND NOT x.applied AND x.failure=''
			UNION ALL SELECT s.engine, x.position FROM questions x JOIN sessions s ON s.id=x.session_id
				WHERE NOT x.engine_replied AND x.status <> 'expired' AND x.status <> 'asked'
			UNION ALL SELECT s.engine, s.first_seq FROM sessions s WHERE s.runs
			UNION ALL SELECT c.engine, x.position FROM executions x JOIN chats c ON c.id=x.chat WHERE x.status='executing')
		WHERE engine NOT IN (SELECT record FROM config WHERE collection='projects' AND removed)
		GROUP BY engine`

// Demands returns what each engine has to do, by engine. An engine without work is not in it, nor one of a project that
// was removed.
func (m *Model) Demands(ctx context.Context) (map[string]Demand, error) {
	rows, err := store.List[Demand](ctx, m.Model, "demands of engines", SelectDemands, nil)
	all := map[string]Demand{}
	for _, d := range rows {
		all[d.Engine] = d
	}
	return all, err
}
