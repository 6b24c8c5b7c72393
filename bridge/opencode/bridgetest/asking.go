package bridgetest

import (
	"fmt"
	"strings"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/permission"
	"pocketcoder/projections"
)

// The properties of session.status for the session ses_1.
const (
	Busy = `{"sessionID":"ses_1","status":{"type":"busy"}}`
	Idle = `{"sessionID":"ses_1","status":{"type":"idle"}}`
)

// PermissionRequest holds the properties of permission.asked for a command.
func PermissionRequest(id, session string) string {
	return fmt.Sprintf(`{"id":%q,"sessionID":%q,"permission":"bash","patterns":["date"],"metadata":{"command":"date"},"always":[],"tool":{"messageID":"msg_%s","callID":"call_%s"}}`, id, session, session, id)
}

// Question holds the properties of question.asked for two questions.
func Question(id, session string) string {
	return fmt.Sprintf(`{"id":%q,"sessionID":%q,"questions":[{"question":"A?","header":"A","options":[]},{"question":"B?","header":"B","options":[]}],"tool":{"messageID":"msg_%s","callID":"c"}}`, id, session, session)
}

// Tool holds the properties of message.part.updated for the tool call that asked.
func Tool(session, request, state string) string {
	return fmt.Sprintf(`{"sessionID":%q,"part":{"id":"prt_%s","messageID":"msg_%s","sessionID":%q,"type":"tool","tool":"bash","callID":"call_%s","state":%s}}`, session, request, session, session, request, state)
}

// AssistantMessage holds the properties of message.updated for an assistant message.
func AssistantMessage(session, time string) string {
	return fmt.Sprintf(`{"sessionID":%q,"info":{"id":"msg_%s","sessionID":%q,"role":"assistant","time":%s}}`, session,
		session, session, time)
}

// Asking makes a session whose turn waits for permission requests.
func (s *System) Asking(session string, requests ...string) {
	s.Session(session, "")
	s.Happen(s.Durably(session, "message.updated", AssistantMessage(session, `{"created":1}`))...)
	s.Happen(Plain("session.status", strings.ReplaceAll(Busy, "ses_1", session)))
	for _, id := range requests {
		s.Happen(s.Durably(session, "message.part.updated", Tool(session, id, `{"status":"pending","input":{}}`))...)
		s.Happen(Plain("permission.asked", PermissionRequest(id, session)))
		s.Happen(s.Durably(session, "message.part.updated", Tool(session, id,
			`{"status":"running","input":{"command":"date"}}`))...)
	}
	s.Drained()
}

// Permission returns the row of a request.
func (s *System) Permission(id string) projections.Permission {
	s.T.Helper()
	p, known, err := s.Model.Permission(s.T.Context(), id)
	s.Must(err)
	if !known {
		s.T.Fatalf("request %s is not known", id)
	}
	return p
}

// Decide decides about a request, and waits until the read model shows the decision.
func (s *System) Decide(id string, d events.Decision, reason string) {
	s.T.Helper()
	seq, err := s.Permissions.Decide(s.T.Context(), permission.Decide{
		Command: handlers.Command{Actor: events.UserActor("u1")}, Chat: s.Permission(id).Chat, Permission: id, Decision: d, Reason: reason,
	})
	s.Must(err)
	s.Must(s.Model.Wait(s.T.Context(), seq))
}
