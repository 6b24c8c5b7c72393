package records

import (
	"context"
	"encoding/json"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/permission"
	"pocketcoder/web/api"
)

// decidePermission decides a pending permission request. The first decision counts. A repetition of the same decision
// is accepted. Other fields are ignored, because a client that was offline sends the whole record.
func decidePermission(s *Records, ctx context.Context, w change) (string, uint64, error) {
	status, given := w.text("status")
	now, edited := w.oldText("status"), w.editedCommand()
	_, isSet := w.set["edited"]
	edits := isSet && edited != w.oldText("edited")
	switch {
	case given && status != now && now != events.Draft:
		return "", 0, api.BadField("status", "validation_conflict", "The permission is %s already.", now)
	case now == events.Authorized && (edits || given && edited != w.oldText("edited")):
		return "", 0, api.BadField("edited", "validation_conflict",
			"The permission is authorized already, and for another command.")
	case status != events.Authorized && edits:
		return "", 0, api.BadField("edited", "validation_invalid_value",
			"An edited command comes with the status authorized.")
	case !given || status == now:
		return w.id, 0, nil
	}
	duration, err := approvalDuration(w.set["expires_in"], status)
	if err != nil {
		return "", 0, err
	}
	reason, _ := w.text("reason")
	seq, err := s.Gate.Decide(ctx, permission.Decide{
		Command: w.Command, Chat: w.oldText("chat"), Permission: w.oldText("ai_engine_permission_id"), Decision: status, Reason: reason,
		Edited: edited, For: duration, Client: w.caller.Client, Admin: w.caller.Is(account.Admin), ShownRequest: permission.ShownRequest{Command: textValue(w.set["shown_command"]), Request: textValue(w.set["shown_request"]),
			Files: textValue(w.set["shown_files"])},
	})
	return w.id, seq, err
}

// editedCommand is the command to run instead of the requested one, empty if they are equal.
func (w change) editedCommand() string {
	var about struct{ Command string }
	if raw, ok := w.oldValue("metadata").(json.RawMessage); ok {
		_ = json.Unmarshal(raw, &about) // without this field the request is not about a command
	}
	if edited := textValue(w.set["edited"]); edited != about.Command {
		return edited
	}
	return ""
}

// maxApprovalSeconds is the longest time for which an approval can be limited, in seconds.
const maxApprovalSeconds = 366 * 24 * 60 * 60

// approvalDuration returns how long an approval is valid, "" for no limit.
func approvalDuration(raw json.RawMessage, status string) (string, error) {
	var seconds float64
	_ = json.Unmarshal(raw, &seconds) // it was checked to be a number
	switch {
	case seconds == 0:
		return "", nil
	case status != events.Authorized:
		return "", api.BadField("expires_in", "validation_invalid_value", "Only an approval can expire.")
	case seconds < 1 || seconds > maxApprovalSeconds:
		return "", api.BadField("expires_in", "validation_invalid_value", "Must be 1 to %d seconds.", maxApprovalSeconds)
	}
	return (time.Duration(seconds) * time.Second).String(), nil
}
