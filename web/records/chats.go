package records

import (
	"context"
	"encoding/json"

	"pocketcoder/events"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/permission"
	"pocketcoder/projections"
	"pocketcoder/web/api"
)

// checkAgent refuses the choice of an agent by an account with the role agent: it could choose its own rules.
func checkAgent(w change) error {
	agent, given := w.text("agent")
	if given && agent != w.oldText("agent") && w.caller.Is("agent") {
		return api.BadField("agent", "validation_invalid_value", "Only a person may choose the agent of a chat.")
	}
	return nil
}

func createChat(s *Records, ctx context.Context, w change) (string, uint64, error) {
	if err := checkAgent(w); err != nil {
		return "", 0, err
	}
	if string(w.set["shared"]) == "true" {
		return "", 0, api.BadField("shared", "validation_invalid_value", "A new chat is private. Share it by an update.")
	}
	title, _ := w.text("title")
	agent, _ := w.text("agent")
	user, _ := w.text("user")
	description, _ := w.text("description")
	tags, _ := w.text("tags")
	project, _ := w.text("project")
	id, seq, err := s.Chats.Create(ctx, chat.Create{
		Project: project, Command: w.Command, Chat: w.id, Title: title, User: user, Agent: agent, Description: description, Archived: string(w.set["archived"]) == "true", Tags: tags,
	})
	if err == nil && seq == 0 { // in a batch, which may change the chat before any read model holds it
		project, err = s.Chats.ProjectOf(ctx, id)
		w.set["project"] = api.MustJSON(project)
	}
	return id, seq, err
}

func updateChat(s *Records, ctx context.Context, w change) (string, uint64, error) {
	if user, given := w.text("user"); given && user != w.oldText("user") && !w.caller.Is("admin") {
		return "", 0, api.BadField("user", "validation_invalid_value",
			"Only an administrator may give a chat to another account.")
	}
	if project, given := w.text("project"); given && project != w.oldText("project") {
		return "", 0, api.BadField("project", "validation_invalid_value", "The project of a chat cannot change.")
	}
	if err := checkAgent(w); err != nil {
		return "", 0, err
	}
	c := chat.Update{Command: w.Command, Chat: w.id}
	texts := map[string]**string{"title": &c.Title, "description": &c.Description, "tags": &c.Tags, "agent": &c.Agent,
		"user": &c.User}
	for name, into := range texts {
		if v, given := w.text(name); given {
			*into = &v
		}
	}
	for name, into := range map[string]**bool{"archived": &c.Archived, "shared": &c.Shared} {
		if raw, given := w.changed()[name]; given {
			v := string(raw) == "true"
			*into = &v
		}
	}
	seq, err := s.Chats.Update(ctx, c)
	return w.id, seq, err
}

func deleteChat(s *Records, ctx context.Context, w change) (string, uint64, error) {
	seq, err := s.Chats.Delete(ctx, chat.Delete{Command: w.Command, Chat: w.id})
	return w.id, seq, err
}

func createMessage(s *Records, ctx context.Context, w change) (string, uint64, error) {
	if role, _ := w.text("role"); role != "user" {
		return "", 0, api.BadField("role", "validation_invalid_value", "Must be user: the assistant writes its own messages.")
	}
	chatID, _ := w.text("chat")
	parts, err := partsOf(w.set["parts"])
	if err == nil {
		err = s.checkID(ctx, w, chatID)
	}
	if err != nil {
		return "", 0, err
	}
	if before, _ := w.text("before"); before != "" {
		return "", 0, api.BadField("before", "validation_invalid_value",
			"A new message goes to the end of the queue. Move it later.")
	}
	delivery, _ := w.text("delivery")
	return s.Chats.SubmitMessage(ctx, chat.SubmitMessage{Command: w.Command, Chat: chatID, Message: w.id, Parts: parts,
		Delivery: delivery})
}

// checkID refuses an id that a record of another chat has.
func (s *Records) checkID(ctx context.Context, w change, chat string) error {
	if w.id == "" {
		return nil
	}
	other, taken, err := s.API.Model.ChatOf(ctx, w.c.Table, w.id)
	if err == nil && taken && other != chat {
		return api.BadField("id", "validation_not_unique", "The id is taken.")
	}
	return err
}

// updateMessage changes a message that waits to be sent. Clients may send back an unchanged message, which changes
// nothing.
func updateMessage(s *Records, ctx context.Context, w change) (string, uint64, error) {
	c, changed := chat.ChangeMessage{Command: w.Command, Chat: w.oldText("chat"), Message: w.id}, w.changed()
	for name := range changed {
		if name != "parts" && name != "delivery" && name != "before" ||
			w.oldText("role") != "user" && w.oldText("held") == "" { // one of PocketCoder may be held after a loss
			return "", 0, api.BadField(name, "validation_conflict", "A message that was sent does not change.")
		}
	}
	if raw, given := changed["parts"]; given {
		var err error
		if c.Parts, err = partsOf(raw); err != nil {
			return "", 0, err
		}
	}
	if _, given := changed["delivery"]; given {
		c.Delivery, _ = w.text("delivery")
	}
	if before, given := w.text("before"); given {
		c.Before = &before
	}
	if c.Parts == nil && c.Delivery == "" && c.Before == nil {
		return w.id, 0, nil
	}
	seq, err := s.Chats.ChangeMessage(ctx, c)
	return w.id, seq, err
}

// deleteQueuedMessage deletes a message that waits to be sent.
func deleteQueuedMessage(s *Records, ctx context.Context, w change) (string, uint64, error) {
	seq, err := s.Chats.WithdrawMessage(ctx, chat.WithdrawMessage{Command: w.Command, Chat: w.oldText("chat"),
		Message: w.id})
	return w.id, seq, err
}

// partsOf decodes the parts of a user's message. It drops the ids and times that OpenCode adds.
func partsOf(raw json.RawMessage) ([]events.Part, error) {
	var parts []events.Part
	if err := json.Unmarshal(raw, &parts); err != nil || len(parts) == 0 {
		return nil, api.BadField("parts", "validation_required",
			`want a list of parts, such as [{"type":"text","text":"hello"}]`)
	}
	return parts, nil
}

// createPermission creates the permission request of an agent. It ignores fields of a decision.
func createPermission(s *Records, ctx context.Context, w change) (string, uint64, error) {
	c := permission.Submit{Command: w.Command, Permission: w.id, Metadata: w.set["metadata"]}
	for name, into := range map[string]*string{
		"chat": &c.Chat, "permission": &c.Type, "message": &c.Message, "session_id": &c.Session, "message_id": &c.MessageID, "call_id": &c.Call,
	} {
		*into, _ = w.text(name)
	}
	if raw, given := w.set["patterns"]; given && json.Unmarshal(raw, &c.Patterns) != nil {
		return "", 0, api.BadField("patterns", "validation_invalid_type", "want a list of texts")
	}
	if err := s.checkID(ctx, w, c.Chat); err != nil {
		return "", 0, err
	}
	id, _, seq, err := s.Gate.Submit(ctx, c)
	return id, seq, err
}

// answerQuestion answers one of several questions, or rejects all of them. The first answer counts.
func answerQuestion(s *Records, ctx context.Context, w change) (string, uint64, error) {
	status, _ := w.text("status")
	reply, replied := w.text("reply")
	now := w.oldText("status")
	if status == "" && replied && reply != "" {
		status = projections.QuestionReplied
	}
	switch {
	case status == "",
		status == now && (!replied || reply == w.oldText("reply") || status == projections.QuestionRejected):
		return w.id, 0, nil
	case now != projections.QuestionAsked:
		return "", 0, api.BadField("status", "validation_conflict", "The question is %s already.", now)
	case status != projections.QuestionReplied && status != projections.QuestionRejected:
		return "", 0, api.BadField("status", "validation_invalid_value", "Must be replied or rejected.")
	}
	c := chat.AnswerQuestion{Command: w.Command, Chat: w.oldText("chat"), Question: w.oldText("ai_engine_question_id")}
	if index, ok := w.oldValue("index").(int64); ok {
		c.Index = int(index)
	}
	if c.Rejected = status == projections.QuestionRejected; !c.Rejected {
		c.Answers = []string{reply}
		var several []string // a question with several answers may get them as a JSON list
		if json.Unmarshal([]byte(reply), &several) == nil && several != nil {
			c.Answers = several
		}
	}
	seq, err := s.Chats.AnswerQuestion(ctx, c)
	return w.id, seq, err
}

// stopSubagent stops a subagent. Its record stays and shows how it ended.
func stopSubagent(s *Records, ctx context.Context, w change) (string, uint64, error) {
	if w.oldText("status") != projections.SubagentRunning {
		return w.id, 0, nil
	}
	seq, err := s.Chats.AbortTurn(ctx, chat.AbortTurn{Command: w.Command, Chat: w.oldText("chat"),
		Session: w.oldText("subagent_id")})
	return w.id, seq, err
}
