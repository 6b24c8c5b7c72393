package mcp

import (
	"context"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pocketcoder/handlers"
	"pocketcoder/handlers/record"
)

// recordTool is the function of a tool that makes a record. set are the arguments of the call.
type recordTool func(ctx context.Context, c call, set record.Values) (string, error)

// addRecordTool adds a tool that makes records of a collection, if there is such a type. Its arguments are the fields
// that the type describes to assistants. Those with a default are set if the model leaves them out.
func addRecordTool(s *Server, to *start, name, description, collection string, defaults map[string]any,
	run recordTool) {
	t, err := s.Records.TypeOf(collection)
	if err != nil {
		return
	}
	to.server.AddTool(&mcp.Tool{Name: name, Description: description, InputSchema: argumentsOf(t, defaults)},
		func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			var set record.Values
			_ = json.Unmarshal(r.Params.Arguments, &set) // verify refuses arguments without a signature
			text, err := s.carryOut(ctx, to, name, set.Text("caller"), r, func(ctx context.Context, c call) (string, error) {
				delete(set, "caller")
				if err := checkArguments(t, set); err != nil {
					return "", err
				}
				return run(ctx, c, record.Values(record.Fields(defaults)).With(set))
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
func argumentsOf(t record.Type, defaults map[string]any) map[string]any {
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
		if _, hasDefault := defaults[f.Name]; f.Required && !hasDefault {
			required = append(required, f.Name)
		}
	}
	properties["caller"] = callerArgument
	return map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
}

// callerArgument describes the argument that the plugin adds.
var callerArgument = map[string]string{"type": "string", "description": "Filled in by PocketCoder. Leave it out."}
