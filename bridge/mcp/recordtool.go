package mcp

import (
	"context"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/record"
)

// recordTool is the function of a tool that makes a record. set are the arguments of the call.
type recordTool func(ctx context.Context, c call, set record.Values) (string, error)

// createRecord returns the function of the tool of a type that needs no more than its record. The record belongs to the
// person of the chat.
func (s *Server) createRecord(t record.Type) recordTool {
	return func(ctx context.Context, c call, set record.Values) (string, error) {
		if f, has := t.Field("user"); has && f.Settable() && !t.AllUsers {
			chat, _, err := s.Model.Chat(ctx, c.chat)
			if err != nil {
				return "", err
			}
			set = set.With(record.Fields(map[string]any{"user": chat.User}))
		}
		id, _, err := s.Records.Save(ctx, record.Save{Command: handlers.Command{Actor: events.ChatActor(c.chat)},
			Collection: t.Name, Set: set, New: true, Role: account.Agent})
		if err != nil {
			return "", err
		}
		return encode(map[string]any{"id": id})
	}
}

// addRecordTool adds the tool that makes records of a type. Its arguments are the fields that the type describes to
// assistants. Those with a default are set if the model leaves them out.
func addRecordTool(s *Server, to *start, t record.Type, run recordTool) {
	name, description := t.ToolName()
	to.server.AddTool(&mcp.Tool{Name: name, Description: description, InputSchema: argumentsOf(t)},
		func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			var set record.Values
			_ = json.Unmarshal(r.Params.Arguments, &set) // verify refuses arguments without a signature
			text, err := s.carryOut(ctx, to, name, set.Text("caller"), r, func(ctx context.Context, c call) (string, error) {
				delete(set, "caller")
				if err := checkArguments(t, set); err != nil {
					return "", err
				}
				return run(ctx, c, record.Values(record.Fields(t.Defaults)).With(set))
			})
			result := &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
			if err != nil {
				result.Content, result.IsError = []mcp.Content{&mcp.TextContent{Text: err.Error()}}, true
			}
			return result, nil
		})
}

// checkArguments refuses arguments that are no fields for assistants, or whose values are of another kind.
func checkArguments(t record.Type, set record.Values) error {
	for name, value := range set {
		f, known := t.Field(name)
		if !known || f.Assistant == "" {
			return handlers.RefuseField(handlers.Invalid, name, "%s: this tool has no such argument.", name)
		}
		if f.Kind == record.Date {
			f.Kind = record.Text // in the words of a person
		}
		if _, err := f.Normalize(value); err != nil {
			return handlers.RefuseField(handlers.Invalid, name, "%s: %v", name, err)
		}
	}
	return nil
}

// argumentsOf returns the input schema of a tool that makes records of a type.
func argumentsOf(t record.Type) map[string]any {
	properties := map[string]any{}
	required := []string{}
	for _, f := range t.Fields {
		if f.Assistant == "" {
			continue
		}
		p := map[string]any{"type": "string", "description": f.Assistant}
		switch {
		case f.Kind == record.Number:
			p["type"] = "number"
		case f.Kind == record.Bool:
			p["type"] = "boolean"
		case f.Texts:
			p["type"], p["items"] = "array", map[string]any{"type": "string"}
		}
		properties[f.Name] = p
		if _, hasDefault := t.Defaults[f.Name]; f.Required && !hasDefault {
			required = append(required, f.Name)
		}
	}
	properties["caller"] = callerArgument
	return map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
}

// callerArgument describes the argument that the plugin adds.
var callerArgument = map[string]string{"type": "string", "description": "Filled in by PocketCoder. Leave it out."}
