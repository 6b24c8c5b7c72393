package mcp

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/matryer/is"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pocketcoder/bridge/mcp/gateway"
)

func TestAFieldOfAFormIsAQuestion(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]struct {
		text, options string
		free          bool
		answers       map[string]any // nil for an answer that does not fit
	}{
		`{"type":"string","title":"Name","format":"email"}`: {"M\n\nName (email)", "Leave it out", true,
			map[string]any{"a@example.org": "a@example.org", "Leave it out": ""}},
		`{"type":"string","default":"x"}`:                          {"M\n\nf (string)", "x|Leave it out", true, map[string]any{"y": "y"}},
		`{"type":"number","default":3.5}`:                          {"M\n\nf (number)", "3.5|Leave it out", true, map[string]any{"3.5": 3.5, "many": nil}},
		`{"type":"integer"}`:                                       {"M\n\nf (integer)", "Leave it out", true, map[string]any{"4": 4.0, "4.5": nil, "NaN": nil}},
		`{"type":"boolean"}`:                                       {"M\n\nf", "Yes|No|Leave it out", false, map[string]any{"Yes": true, "No": false}},
		`{"type":"string","enum":["a"]}`:                           {"M\n\nf", "a|Leave it out", false, map[string]any{"a": "a"}},
		`{"type":"string","enum":["a","b"],"enumNames":["A","B"]}`: {"M\n\nf", "A|B|Leave it out", false, map[string]any{"B": "b"}},
		`{"type":"string","oneOf":[{"const":"a","title":"The A"}],"description":"d"}`: {"M\n\nf: d", "The A|Leave it out", false, map[string]any{"The A": "a"}},
	} {
		is := is.New(t)
		p := &mcp.ElicitParams{Message: "M", RequestedSchema: json.RawMessage(`{"properties":{"f":` + schema + `}}`)}
		all, err := formOf(p)
		is.NoErr(err)
		q := all[0].question(gateway.Elicitation{Server: "lab", Params: p})
		var labels []string
		for _, o := range q.Options {
			labels = append(labels, o.Label)
		}
		is.Equal([]any{q.Header, q.Question, strings.Join(labels, "|"), q.Free()},
			[]any{"MCP server lab", want.text, want.options, want.free})
		for answer, value := range want.answers {
			got, err := all[0].value(answer)
			is.Equal(err != nil, value == nil)
			if answer == leaveOut {
				value = nil
			}
			is.Equal(got, value)
		}
	}
}

func TestFormsThatAreNotSimpleAreDeclined(t *testing.T) {
	t.Parallel()
	many := `{"a":{"type":"string"}`
	for i := range 11 {
		many += `,"f` + string(rune('a'+i)) + `":{"type":"string"}`
	}
	for says, p := range map[string]*mcp.ElicitParams{
		"only forms":    {Mode: "url", URL: "https://example.org"},
		`field "f" is`:  {RequestedSchema: json.RawMessage(`{"properties":{"f":{"type":"array"}}}`)},
		"at most 10":    {RequestedSchema: json.RawMessage(`{"properties":` + many + `}}`)},
		"its schema":    {RequestedSchema: json.RawMessage(`{"properties":[]}`)},
		"its message":   {Message: strings.Repeat("x", 5000)},
		"more than 50":  {RequestedSchema: json.RawMessage(`{"properties":{"f":{"type":"string","enum":["a"` + strings.Repeat(`,"b"`, 50) + `]}}}`)},
		"a choice of":   {RequestedSchema: json.RawMessage(`{"properties":{"f":{"type":"string","enum":["` + strings.Repeat("x", 201) + `"]}}}`)},
		"is described":  {RequestedSchema: json.RawMessage(`{"properties":{"f":{"type":"string","title":"` + strings.Repeat("x", 5000) + `"}}}`)},
		`field "g" is `: {RequestedSchema: json.RawMessage(`{"properties":{"g":{"type":"object"}}}`)},
	} {
		_, err := formOf(p)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
	all, err := formOf(&mcp.ElicitParams{Message: "Go on?"})
	is := is.New(t)
	is.NoErr(err)
	is.Equal(all[0].question(gateway.Elicitation{Params: &mcp.ElicitParams{Message: "Go on?"}}).Options[0].Label, confirm)
}
