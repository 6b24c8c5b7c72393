package agent

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"pocketcoder/handlers/policy"
	"pocketcoder/handlers/record"
)

// File is an agent as a file holds it.
type File struct {
	Name, Description string
	Mode              string // as OpenCode names it: primary, subagent; empty for none
	Model             string // "provider/model"; empty for none
	Temperature, TopP *float64
	Rules             []policy.Rule
	Prompt            string

	Comments []string // what the agent has and the file does not hold
}

// modes maps OpenCode's names of modes to the names in records.
var modes = map[string]string{"primary": "primary", "subagent": "sandbox_agent"}

// knownKeys are the keys of front matter that an agent can hold.
var knownKeys = []string{"name", "description", "mode", "model", "temperature", "top_p", "permission", "tools"}

// unusedKeys are keys of OpenCode that have no meaning here.
var unusedKeys = []string{"color", "disable", "hidden", "maxSteps", "options", "prompt", "steps", "variant"}

const fence = "---\n"

// Parse parses a file. Each note is a sentence about a part of the file that has no effect, or another effect than in
// OpenCode. name is the name of the agent if the file has no key name.
func Parse(text, name string) (f File, notes []string, err error) {
	text = strings.ReplaceAll(strings.TrimPrefix(text, "\ufeff"), "\r\n", "\n")
	rest, found := strings.CutPrefix(text, fence)
	front, body, closed := strings.Cut("\n"+rest, "\n"+fence)
	if !closed {
		front, closed = strings.CutSuffix("\n"+rest, "\n---")
	}
	if !found || !closed {
		return f, nil, record.Invalid("text", "The file must begin with front matter: a line ---, keys such as description, "+
			"and a line ---.")
	}
	f = File{Name: name, Prompt: strings.Trim(body, "\n")}
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(front), &document); err != nil {
		return f, nil, record.Invalid("text", "The front matter is not YAML: %s.", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if len(document.Content) == 0 {
		return f, nil, f.check()
	}
	keys := document.Content[0]
	if keys.Kind != yaml.MappingNode {
		return f, nil, record.Invalid("text",
			"The front matter must be keys with values, such as description: Reviews changes.")
	}
	if err := refuseUnknown(keys); err != nil {
		return f, nil, err
	}
	for key, value := range pairs(keys) {
		more, err := f.set(key, value)
		if err != nil {
			return f, nil, err
		}
		notes = append(notes, more...)
	}
	return f, notes, f.check()
}

func refuseUnknown(keys *yaml.Node) error {
	var unknown []string
	for key := range pairs(keys) {
		if !slices.Contains(knownKeys, key) && !slices.Contains(unusedKeys, key) {
			unknown = append(unknown, fmt.Sprintf("%q", key))
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	return record.Invalid("text", "The front matter has unknown keys: %s. Known keys are %s.",
		strings.Join(unknown, ", "), strings.Join(knownKeys, ", "))
}

// pairs iterates over the keys and values of a mapping, in their order. An alias is the value that it stands for.
func pairs(n *yaml.Node) func(yield func(string, *yaml.Node) bool) {
	return func(yield func(string, *yaml.Node) bool) {
		for i := 0; i+1 < len(n.Content); i += 2 {
			value := n.Content[i+1]
			if value.Kind == yaml.AliasNode {
				value = value.Alias
			}
			if !yield(n.Content[i].Value, value) {
				return
			}
		}
	}
}

// set sets the field that belongs to a key of the front matter.
func (f *File) set(key string, value *yaml.Node) (notes []string, err error) {
	switch key {
	case "name":
		err = value.Decode(&f.Name)
	case "description":
		err = value.Decode(&f.Description)
	case "model":
		err = value.Decode(&f.Model)
	case "mode":
		if err = value.Decode(&f.Mode); f.Mode == "all" {
			f.Mode = "primary"
			notes = []string{"mode: all is stored as primary. Agents can delegate work to every agent, whatever its mode."}
		}
	case "temperature":
		err = value.Decode(&f.Temperature)
	case "top_p":
		err = value.Decode(&f.TopP)
	case "permission":
		return f.permissions(value)
	case "tools":
		return f.tools(value)
	default:
		notes = []string{key + " is left out: it has no meaning in PocketCoder."}
	}
	if err != nil {
		return nil, record.Invalid("text", "%s: the value in line %d has the wrong type.", key, value.Line)
	}
	return notes, nil
}

// Limits of the texts of an agent, in bytes.
const (
	maxName   = 100
	maxPrompt = 256 << 10
)

func (f *File) check() error {
	f.Name, f.Description = strings.TrimSpace(f.Name), strings.TrimSpace(f.Description)
	provider, model, found := strings.Cut(f.Model, "/")
	switch {
	case f.Name == "":
		return record.Invalid("name", "The agent has no name. Add name: to the front matter.")
	case len(f.Name) > maxName || strings.ContainsAny(f.Name, "/\n\x00"):
		return record.Invalid("name", "The name must be at most %d bytes on one line, without /.", maxName)
	case len(f.Prompt) > maxPrompt:
		return record.Invalid("text", "The prompt has %d KiB. It may have at most %d KiB.", len(f.Prompt)>>10, maxPrompt>>10)
	case f.Model != "" && (!found || provider == "" || model == ""):
		return record.Invalid("model", "model: %q is not PROVIDER/MODEL.", f.Model)
	case f.Mode != "" && modes[f.Mode] == "":
		return record.Invalid("mode", "mode: %q is not primary, subagent or all.", f.Mode)
	}
	return nil
}

func (f File) markdown() string {
	keys := &yaml.Node{Kind: yaml.MappingNode}
	add := func(key string, value any) {
		var n yaml.Node
		_ = n.Encode(value) // a text or a number
		keys.Content = append(keys.Content, scalar(key), &n)
	}
	add("name", f.Name)
	for _, text := range [][2]string{{"description", f.Description}, {"mode", f.Mode}, {"model", f.Model}} {
		if text[1] != "" {
			add(text[0], text[1])
		}
	}
	if f.Temperature != nil {
		add("temperature", *f.Temperature)
	}
	if f.TopP != nil {
		add("top_p", *f.TopP)
	}
	if len(f.Rules) > 0 {
		keys.Content = append(keys.Content, scalar("permission"), permissionNode(f.Rules))
	}
	var b bytes.Buffer
	b.WriteString(fence)
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	_ = e.Encode(keys) // nodes made here
	for _, c := range f.Comments {
		b.WriteString("# " + c + "\n")
	}
	b.WriteString(fence)
	if f.Prompt != "" {
		b.WriteString("\n" + strings.Trim(f.Prompt, "\n") + "\n")
	}
	return b.String()
}

func scalar(text string) *yaml.Node {
	var n yaml.Node
	_ = n.Encode(text) // a text
	return &n
}

// recordMode returns OpenCode's name of a record's mode.
func recordMode(mode string) string {
	for _, name := range slices.Sorted(maps.Keys(modes)) {
		if modes[name] == mode {
			return name
		}
	}
	return ""
}
