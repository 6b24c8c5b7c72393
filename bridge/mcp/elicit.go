package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pocketcoder/bridge/mcp/gateway"
	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/chat"
	"pocketcoder/projections"
)

// Elicit asks a person what an MCP server wants to know, one question for each field. If the person cannot be asked, or
// the answer does not fit, it declines, and returns a sentence for the model.
func (s *Server) Elicit(ctx context.Context, e gateway.Elicitation) (*mcp.ElicitResult, string, error) {
	declined := func(why string) (*mcp.ElicitResult, string, error) {
		return &mcp.ElicitResult{Action: "decline"},
			fmt.Sprintf("PocketCoder declined a question of the MCP server %s: %s.", e.Server,
				strings.TrimSuffix(why, ".")), nil
	}
	all, err := formOf(e.Params)
	if err != nil {
		return declined(err.Error())
	}
	a, err := s.askFor(ctx, e, all)
	refused := handlers.Refused{}
	switch {
	case errors.As(err, &refused):
		return declined(refused.Text)
	case err != nil:
		return nil, "", err
	case a.status == projections.QuestionRejected:
		return &mcp.ElicitResult{Action: "decline"}, "", nil
	case a.status == projections.QuestionExpired:
		return &mcp.ElicitResult{Action: "cancel"}, "", nil
	}
	content := map[string]any{}
	for i, f := range all {
		value, err := f.value(a.texts[i][0])
		if err != nil {
			return declined(err.Error())
		}
		if value != nil {
			content[f.name] = value
		}
	}
	return &mcp.ElicitResult{Action: "accept", Content: content}, "", nil
}

// askFor asks for all fields together, and waits. If ctx ends before, the questions expire.
func (s *Server) askFor(ctx context.Context, e gateway.Elicitation, all []field) (a answers, err error) {
	at, err := s.runningAt(ctx, call{caller: caller{Session: e.Session, Call: e.Call.Call}, chat: e.Chat})
	if err != nil {
		return a, err
	}
	id := events.ElicitationPrefix + events.NewID()
	requested := events.QuestionRequested{Question: id, Session: e.Session, MessageID: at.Message, Call: e.Call.Call}
	for _, f := range all {
		requested.Questions = append(requested.Questions, f.question(e))
	}
	// a question that the log stores, and whose answer is not awaited, would not expire
	asking, asked := context.WithTimeout(context.WithoutCancel(ctx), reportTime)
	defer asked()
	seq, err := s.Chats.RequestQuestion(asking, chat.RequestQuestion{Command: s.command(), Chat: e.Chat,
		QuestionRequested: requested})
	if err != nil {
		return a, err
	}
	if a, err = s.awaitAnswers(ctx, id, seq); err != nil && ctx.Err() != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportTime)
		defer cancel()
		_, expired := s.Chats.ExpireQuestion(ctx, chat.ExpireQuestion{Command: s.command(), Chat: e.Chat, Question: id,
			Reason: "the MCP server does not wait for it any more"})
		err = errors.Join(err, expired)
	}
	return a, err
}

// field is a field of a form that an MCP server wants to have filled in.
type field struct {
	name     string
	required bool

	Type, Title, Description, Format string
	Enum, EnumNames                  []string
	OneOf                            []struct{ Const, Title string }
	Default                          any
}

// confirmation is the name of the only field of a form without fields, which is not sent.
const confirmation = ""

// Limits of a form. A larger one is declined.
const (
	maxElicited = 10 // fields
	maxChoices  = 50 // of a field
	maxChoice   = 200
	maxText     = 4096 // bytes of the message, and of what names and describes a field
)

// formOf returns the fields of a form, those that are required first.
func formOf(p *mcp.ElicitParams) (all []field, err error) {
	if p.Mode != "" && p.Mode != "form" {
		return nil, fmt.Errorf("it has the mode %q, and only forms are supported", p.Mode)
	}
	var schema struct {
		Properties map[string]json.RawMessage
		Required   []string
	}
	raw, err := json.Marshal(p.RequestedSchema)
	if err == nil {
		err = json.Unmarshal(raw, &schema)
	}
	if err != nil {
		return nil, fmt.Errorf("its schema cannot be read: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		f := field{name: name, required: slices.Contains(schema.Required, name)}
		if err := json.Unmarshal(schema.Properties[name], &f); err != nil ||
			!slices.Contains([]string{"string", "number", "integer", "boolean"}, f.Type) {
			return nil, fmt.Errorf("the field %.40q is no text, number, boolean or choice of one text", name)
		}
		if err := f.check(); err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	slices.SortStableFunc(all, func(a, b field) int { return cmp.Compare(toInt(b.required), toInt(a.required)) })
	switch {
	case len(p.Message) > maxText:
		return nil, fmt.Errorf("its message has more than %d bytes", maxText)
	case len(all) > maxElicited:
		return nil, fmt.Errorf("it has %d fields, and at most %d are supported", len(all), maxElicited)
	case len(all) == 0:
		all = []field{{name: confirmation, required: true}}
	}
	return all, nil
}

// check refuses a field that a person would not read.
func (f field) check() error {
	labels, values := f.choices()
	long := func(text string) bool { return len(text) > maxChoice }
	switch {
	case len(f.name)+len(f.Title)+len(f.Description)+len(f.Format) > maxText:
		return fmt.Errorf("a field is described with more than %d bytes", maxText)
	case len(labels) > maxChoices || len(values) > maxChoices:
		return fmt.Errorf("the field %.40q has more than %d choices", f.name, maxChoices)
	case slices.ContainsFunc(labels, long), slices.ContainsFunc(values, long), f.Default != nil && long(fmt.Sprint(f.Default)):
		return fmt.Errorf("the field %.40q has a choice of more than %d bytes", f.name, maxChoice)
	}
	return nil
}

func toInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// The answers that a card offers.
const (
	confirm  = "Confirm"
	yes      = "Yes"
	no       = "No"
	leaveOut = "Leave it out"
)

// choices returns the labels and the values of a field with a choice.
func (f field) choices() (labels, values []string) {
	switch {
	case len(f.OneOf) > 0:
		for _, one := range f.OneOf {
			labels, values = append(labels, cmp.Or(one.Title, one.Const)), append(values, one.Const)
		}
	case len(f.EnumNames) == len(f.Enum):
		return f.EnumNames, f.Enum
	default:
		return f.Enum, f.Enum
	}
	return labels, values
}

func (f field) question(e gateway.Elicitation) events.Question {
	q := events.Question{Header: "MCP server " + e.Server, Question: e.Params.Message, Options: []events.Option{}}
	if f.name != confirmation {
		q.Question += "\n\n" + cmp.Or(f.Title, f.name)
		if f.Description != "" {
			q.Question += ": " + f.Description
		}
	}
	labels, _ := f.choices()
	free := false
	switch {
	case f.name == confirmation:
		labels = []string{confirm}
	case f.Type == "boolean":
		labels = []string{yes, no}
	case len(labels) == 0:
		free = true
		q.Question += fmt.Sprintf(" (%s)", cmp.Or(f.Format, f.Type))
		if f.Default != nil {
			labels = []string{fmt.Sprint(f.Default)}
		}
	}
	if !f.required {
		labels = append(slices.Clip(labels), leaveOut)
	}
	for _, label := range labels {
		q.Options = append(q.Options, events.Option{Label: label})
	}
	q.Custom = &free
	return q
}

// value returns what a person's answer means, nil for no value.
func (f field) value(answer string) (any, error) {
	labels, values := f.choices()
	if f.name == confirmation || !f.required && answer == leaveOut {
		return nil, nil
	}
	if i := slices.Index(labels, answer); i >= 0 {
		return values[i], nil
	}
	switch f.Type {
	case "boolean":
		return answer == yes, nil
	case "string":
		return answer, nil
	}
	n, err := strconv.ParseFloat(answer, 64)
	if err != nil || math.IsNaN(n) || math.IsInf(n, 0) || f.Type == "integer" && n != math.Trunc(n) {
		return nil, fmt.Errorf("the person's answer to %q is no %s", f.name, f.Type)
	}
	return n, nil
}
