package mcp

import (
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/recordtype"
)

// The arguments of a tool are the fields that a type describes to assistants, and no others.
func TestTheArgumentsOfAToolAreFieldsOfItsType(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	things := record.Type{Name: "things", Defaults: map[string]any{"kind": "small"}, Fields: []record.Field{
		{Name: "name", Kind: record.Text, Required: true, Assistant: "a name"}, {Name: "size", Kind: record.Number, Assistant: "a size"},
		{Name: "kind", Kind: record.Text, Required: true, Assistant: "a kind"}, {Name: "owner", Kind: record.Text}}}
	schema := argumentsOf(things)
	is.Equal(schema["required"], []string{"name"})
	properties := schema["properties"].(map[string]any)
	is.Equal(len(properties), 4) // with caller
	is.Equal(properties["size"], map[string]any{"type": "number", "description": "a size"})
	is.NoErr(checkArguments(things, handlerstest.Fields(`{"name":"n","size":1}`)))
	for _, wrong := range []string{`{"owner":"bob"}`, `{"size":"large"}`, `{"colour":"red"}`} {
		is.True(checkArguments(things, handlerstest.Fields(wrong)) != nil) // wrong
	}
}

// An assistant may set no field that only PocketCoder or a person sets.
func TestAssistantsSetOnlyFieldsThatTheyMaySet(t *testing.T) {
	t.Parallel()
	described := 0
	for _, typ := range recordtype.All(recordtype.Machine{}) {
		for _, f := range typ.Fields {
			if f.Assistant == "" {
				continue
			}
			described++
			if !typ.Assistants.Create || f.ReadOnly || f.Kind == record.Secret || f.Name == "user" {
				t.Errorf("%s.%s is described to assistants, which may not set it", typ.Name, f.Name)
			}
		}
	}
	is.New(t).True(described > 10)
}
