package projections

import (
	"database/sql/driver"
	"strings"

	"modernc.org/sqlite"

	"pocketcoder/projections/turnstate"
)

// The SQL functions return what package turnstate says about an ending, so that pages, the API and messengers agree. An
// ending follows from the rows at the time of the query, in whatever order their events came.
func init() {
	sqlite.MustRegisterDeterministicScalarFunction("turn_ending", 11, turnEnding)
	sqlite.MustRegisterDeterministicScalarFunction("ending_state", 1, onEnding(turnstate.Ending.State))
	sqlite.MustRegisterDeterministicScalarFunction("ending_sentence", 1, onEnding(turnstate.Ending.Sentence))
}

// onEnding is the SQL function that applies f to an ending.
func onEnding(f func(turnstate.Ending) string) func(*sqlite.FunctionContext, []driver.Value) (driver.Value, error) {
	return func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
		return f(turnstate.Ending(sqlText(args[0]))), nil
	}
}

// turnEnding takes the state of a turn, NULL for its last step alone, and the columns of stepOf.
func turnEnding(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
	last := turnstate.Step{Outcome: sqlText(args[1]), Infrastructure: sqlText(args[2]) == "infrastructure",
		Error: sqlText(args[3]), Finish: sqlText(args[4]), Agent: sqlText(args[5]), HasText: sqlFlag(args[6]),
		HasCall: sqlFlag(args[7]), IsWhole: sqlFlag(args[8]), IsDenied: sqlFlag(args[9]), IsStopped: sqlFlag(args[10])}
	if last.Outcome == "processing" {
		last.Outcome = ""
	}
	if args[0] == nil {
		return string(last.Ending()), nil
	}
	return string(turnstate.EndingOf(sqlText(args[0]), last)), nil
}

// sqlText is "" for NULL.
func sqlText(v driver.Value) string {
	s, _ := v.(string)
	return s
}

// sqlFlag is false for NULL.
func sqlFlag(v driver.Value) bool {
	n, _ := v.(int64)
	return n != 0
}

// EndingOfMessage returns the SQL expression for how a turn ends with the message of an alias: empty for a message that
// is not the last step.
func EndingOfMessage(message string) string {
	return "CASE WHEN " + message + ".role='assistant' THEN turn_ending(NULL, " + stepOf(message) + ", 0) ELSE '' END"
}

// EndingOfTurn returns the SQL expression for how a turn ended whose state is an SQL expression, and whose last message
// has an alias.
func EndingOfTurn(state, last string) string {
	return "turn_ending(" + state + ", " + stepOf(last) + ", " + strings.ReplaceAll(
		`EXISTS (SELECT 1 FROM effects WHERE chat=m.chat AND kind='abort' AND session='' AND position>m.position)`, "m.", last+".") + ")"
}

// StatusOfSubagent returns the SQL expression for the status of the subagent of an alias. A subagent whose answer is
// not complete has failed.
func StatusOfSubagent(subagent string) string {
	return strings.ReplaceAll(`CASE WHEN a.status='completed' THEN coalesce((
			SELECT replace(ending_state(`+EndingOfTurn("'completed'", "last")+`), 'lost', 'failed') FROM messages last
			WHERE last.chat=a.chat AND last.session=a.subagent_id AND last.role='assistant' AND NOT last.removed
			ORDER BY last.position DESC LIMIT 1), a.status) ELSE a.status END`, "a.", subagent+".")
}

// EndingOfAnswer returns the SQL expression for how a turn of a chat's own session ended with the message of an alias.
// The newest message of an ended turn is its last step, also if it broke off.
func EndingOfAnswer(message string) string {
	return strings.ReplaceAll(`coalesce(nullif(`+EndingOfMessage("m")+`, ''), (SELECT `+EndingOfTurn("own.turn_state", "m")+` FROM sessions own
		WHERE own.id=m.session AND NOT EXISTS (SELECT 1 FROM messages later
			WHERE later.chat=m.chat AND later.session=m.session AND later.role='assistant' AND later.position>m.position AND NOT later.removed)), '')`,
		"m.", message+".")
}

// stepOf returns the SQL expressions of the fields of a step. OpenCode stops a turn after a denial without a reason,
// and after a question that a person dismissed.
func stepOf(message string) string {
	return strings.ReplaceAll(`m.engine_message_status, m.error_domain,
		CASE WHEN json_valid(m.error_payload) THEN m.error_payload->>'$.name' END, m.finish, m.agent,
		EXISTS (SELECT 1 FROM parts WHERE message=m.id AND NOT removed AND data->>'$.type'='text' AND trim(data->>'$.text', ' '||char(9, 10, 13))<>''),
		EXISTS (SELECT 1 FROM parts WHERE message=m.id AND NOT removed AND data->>'$.type'='tool'),
		EXISTS (SELECT 1 FROM parts WHERE message=m.id AND NOT removed AND data->>'$.type'='step-finish'),
		EXISTS (SELECT 1 FROM permissions WHERE chat=m.chat AND message_id=m.ai_engine_message_id AND status='denied' AND reason='')
			OR EXISTS (SELECT 1 FROM questions dismissed JOIN parts asking ON asking.message=m.id AND asking.data->>'$.callID'=dismissed.call_id
				WHERE dismissed.chat=m.chat AND dismissed.session_id=m.session AND dismissed.status='rejected')`, "m.", message+".")
}
