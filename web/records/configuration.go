package records

import (
	"context"
	"errors"
	"maps"

	"pocketcoder/handlers"
	"pocketcoder/handlers/model"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/schedule"
	"pocketcoder/web/api"
)

// configuration is the writer of most configuration records. Package handlers/record validates the records.
var configuration = writer{saveRecord, saveRecord, deleteRecord}

func saveRecord(s *Records, ctx context.Context, w change) (string, uint64, error) {
	id, seq, err := s.Records.Save(ctx, w.save())
	if r := (handlers.Refused{}); w.c.taken != nil && errors.Is(err, w.c.taken) && errors.As(err, &r) {
		return "", 0, api.BadField(r.Field, "validation_not_unique", "%s", r.Text)
	}
	return id, seq, fieldProblem(err)
}

func (w change) save() record.Save {
	return record.Save{Command: w.Command, Role: w.caller.Role, Collection: w.c.ID, Record: w.id, Set: w.set, New: w.isNew,
		Trusted: true, Made: w.token}
}

func deleteRecord(s *Records, ctx context.Context, w change) (string, uint64, error) {
	seq, err := s.Records.Delete(ctx, w.delete())
	return w.id, seq, err
}

func (w change) delete() record.Delete {
	return record.Delete{Command: w.Command, Collection: w.c.ID, Record: w.id, Role: w.caller.Role, Trusted: true}
}

// fieldProblem returns the answer of PocketBase to a refusal of a field.
func fieldProblem(err error) error {
	if r := (handlers.Refused{}); errors.As(err, &r) && r.Code != handlers.Conflict {
		if fault, ok := api.ProblemOf(r).Data[r.Field].(api.Fault); ok {
			return api.BadField(r.Field, fault.Code, "%s", fault.Message)
		}
	}
	return err
}

// saveProviderKey saves a key: its record, and the values of its variables among the secrets.
func saveProviderKey(s *Records, ctx context.Context, w change) (string, uint64, error) {
	id, seq, err := s.ProviderKeys.Save(ctx, w.save())
	return id, seq, fieldProblem(err)
}

func deleteProviderKey(s *Records, ctx context.Context, w change) (string, uint64, error) {
	seq, err := s.ProviderKeys.Delete(ctx, w.delete())
	return w.id, seq, err
}

// saveModelSelection selects a model. The chat and the user of a selection cannot change.
func saveModelSelection(s *Records, ctx context.Context, w change) (string, uint64, error) {
	c := model.Select{Command: w.Command, Chat: w.newText("chat"), User: w.newText("user"),
		Model: w.newText("model")}
	switch {
	case w.isNew:
		c.Record = w.id
	case c.User != w.oldText("user"):
		return "", 0, api.BadField("user", "validation_invalid_value", "The owner of a record cannot change.")
	case c.Chat != w.oldText("chat"):
		return "", 0, api.BadField("chat", "validation_invalid_value",
			"The chat of a selection cannot change. Create another selection.")
	}
	return model.Choose(ctx, s.Records, c)
}

// saveSchedule chooses the project of new chats when the schedule is saved. The runs do not depend on the chats that
// the account creates meanwhile.
func saveSchedule(s *Records, ctx context.Context, w change) (string, uint64, error) {
	_, given := w.set["project"]
	_, isMode := w.set["session_mode"]
	if w.newText("session_mode") == schedule.New && (given || isMode || w.isNew) {
		of, err := s.Chats.ChooseProject(ctx, w.newText("user"), w.newText("project"))
		if err != nil {
			return "", 0, fieldProblem(err)
		}
		w.set = maps.Clone(w.set)
		w.set["project"] = api.MustJSON(of.ID)
	}
	return saveRecord(s, ctx, w)
}
