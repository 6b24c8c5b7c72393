package records

import (
	"context"

	"pocketcoder/handlers/record"
	"pocketcoder/web/api"
)

const modelSelection = "model_selection"

// saveModelSelection selects a model. The chat of a selection cannot change.
func saveModelSelection(s *Records, ctx context.Context, w change) (string, uint64, error) {
	if chat, given := w.text("chat"); given && !w.isNew && chat != w.oldText("chat") {
		return "", 0, api.BadField("chat", "validation_invalid_value", "The chat of a selection cannot change. Create another selection.")
	}
	return s.Records.SelectModel(ctx, record.SelectModel{
		Command: w.Command, Chat: w.will("chat"), User: w.will("user"), Model: w.will("model"), Record: recordOfNew(w),
	})
}

// recordOfNew is the id that the client chose for a new record.
func recordOfNew(w change) string {
	if w.isNew {
		return w.id
	}
	return ""
}
