package projections_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pocketcoder/projections"

	"github.com/matryer/is"
)

// transcript returns a short text for each row that clients see of the chat.
func transcript(t testing.TB, m *projections.Model) []string {
	t.Helper()
	is := is.New(t)
	ctx := t.Context()
	chat, found, err := m.Chat(ctx, chatID)
	is.NoErr(err)
	is.True(found)
	lines := []string{"turn " + chat.Turn}
	messages, err := m.Messages(ctx, chatID)
	is.NoErr(err)
	for _, x := range messages {
		lines = append(lines, describe(t, x))
	}
	permissions, err := m.Permissions(ctx, chatID, "")
	is.NoErr(err)
	for _, p := range permissions {
		lines = append(lines, fmt.Sprintf("ask %q %s by %s replied=%t", p.Message, p.Status, p.DecidedBy, p.Replied))
	}
	asked, err := m.Questions(ctx, chatID, "")
	is.NoErr(err)
	for _, q := range asked {
		lines = append(lines, fmt.Sprintf("question %q %s %s %s", q.Question, q.Choices, q.Status, q.Reply))
	}
	subagents, err := m.Subagents(ctx, chatID)
	is.NoErr(err)
	for _, a := range subagents {
		lines = append(lines, fmt.Sprintf("subagent %s %q %s", a.Agent, a.Title, a.Status))
	}
	return lines
}

func describe(t testing.TB, x projections.ShownMessage) string {
	t.Helper()
	line := x.Role + " " + x.UserStatus + x.EngineStatus
	if x.Subagent != "" {
		line = "(sub) " + line
	}
	var parts []struct {
		Type, Text, Tool string
		State            struct{ Status string }
	}
	if err := json.Unmarshal([]byte(x.Parts), &parts); err != nil {
		t.Fatalf("parts of %s: %v", x.ID, err)
	}
	for _, p := range parts {
		switch {
		case p.Type == "tool":
			line += " " + p.Tool + ":" + p.State.Status
		case p.Type == "text":
			text := strings.Join(strings.Fields(p.Text), " ")
			line += fmt.Sprintf(" %.24q", text)
		default:
			line += " " + p.Type
		}
	}
	if x.ErrorDomain != "" {
		var e struct{ Name string }
		_ = json.Unmarshal([]byte(x.ErrorPayload), &e)
		line += " !" + x.ErrorDomain + ":" + e.Name
	}
	return line
}
