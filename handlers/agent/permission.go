package agent

import (
	"cmp"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	"pocketcoder/events"
	"pocketcoder/handlers/policy"
	"pocketcoder/handlers/record"
)

// coversWorkspace reports whether a file that allows a permission without a pattern allows it in the whole workspace,
// and not outside.
func coversWorkspace(permission string) bool {
	about := events.RequestKinds[permission].About
	return about == events.AboutPath || about == events.AboutSearch
}

// permissions reads the key permission: one action for everything, or an action or patterns for each permission.
func (f *File) permissions(value *yaml.Node) (notes []string, err error) {
	if value.Kind == yaml.ScalarNode {
		return f.add("*", []pattern{{"", value.Value}})
	}
	if value.Kind != yaml.MappingNode {
		return nil, record.Invalid("text", "permission: the value in line %d must be an action or an object.", value.Line)
	}
	for permission, v := range pairs(value) {
		var all []pattern
		switch v.Kind {
		case yaml.ScalarNode:
			all = []pattern{{"", v.Value}}
		case yaml.MappingNode:
			for p, action := range pairs(v) {
				all = append(all, pattern{p, action.Value})
			}
		default:
			return nil, record.Invalid("text", "permission: %s: the value in line %d must be an action or an object.",
				permission, v.Line)
		}
		more, err := f.add(permission, all)
		if err != nil {
			return nil, err
		}
		notes = append(notes, more...)
	}
	return notes, nil
}

// mergeKey merges another mapping in YAML.
const mergeKey = "<<"

// pattern is an action for a pattern, which is empty for an action for the whole permission.
type pattern struct{ text, action string }

func (p pattern) String() string {
	if p.text == "" {
		return p.action
	}
	return fmt.Sprintf("%q: %s", p.text, p.action)
}

// add adds the rules of a permission. In OpenCode the last pattern that matches decides. Here deny beats ask, and ask
// beats allow, and what no rule allows is asked about.
func (f *File) add(permission string, all []pattern) (notes []string, err error) {
	if permission == mergeKey {
		return nil, record.Invalid("text", "permission: write the values of %s out.", mergeKey)
	}
	allows := slices.ContainsFunc(all, func(p pattern) bool { return p.action == "allow" })
	for i, p := range all {
		r := policy.Rule{Permission: permission, Pattern: p.text, Action: policy.Action(p.action)}
		switch {
		case r.Action != policy.Allow && r.Action != policy.AskPerson && r.Action != policy.Deny:
			return nil, record.Invalid("text", "permission: %s: %q is not allow, ask or deny.", permission, p.action)
		case p.text != "":
		case r.Action == policy.Allow && coversWorkspace(permission):
			r.Pattern = policy.Inside
		default:
			r.Pattern = "*"
		}
		if i == 0 && r.Pattern == "*" && r.Action == policy.AskPerson && allows {
			continue // what no rule allows is asked about
		}
		r = r.OfTool()
		if err := r.Check(); err != nil {
			if r.Action != policy.Allow {
				return nil, record.Invalid("text", "permission: %s: %s cannot be stored: %v.", permission, p, err)
			}
			notes = append(notes, fmt.Sprintf("permission: %s: %s is left out: %v.", permission, p, err))
			continue
		}
		if !slices.Contains(f.Rules, r) {
			f.Rules = append(f.Rules, r)
		}
		notes = append(notes, noteOn(permission, all[:i], p)...)
		for _, limit := range r.Limits() {
			notes = append(notes, fmt.Sprintf("permission: %s: %s: %s", permission, p, limit))
		}
	}
	return notes, nil
}

// noteOn returns notes on a pattern that applies to less than in OpenCode.
func noteOn(permission string, earlier []pattern, p pattern) (notes []string) {
	strictness := map[string]int{"allow": 0, "ask": 1, "deny": 2}
	for i, e := range earlier {
		if strictness[e.action] > strictness[p.action] && !(i == 0 && e == pattern{"*", "ask"}) {
			notes = append(notes, fmt.Sprintf(
				"permission: %s: %s does not apply where %s does: deny beats ask, and ask beats allow.", permission, p, e))
			break
		}
	}
	return notes
}

// tools reads the key tools, with which files for older versions of OpenCode turn tools off.
func (f *File) tools(value *yaml.Node) (notes []string, err error) {
	var all map[string]bool
	if err := value.Decode(&all); err != nil {
		return nil, record.Invalid("text", "tools: the value in line %d must be an object of true and false.", value.Line)
	}
	for tool := range pairs(value) {
		if all[tool] {
			notes = append(notes, fmt.Sprintf("tools: %s: true allows nothing. To allow the tool, add %[1]s: allow below permission.", tool))
			continue
		}
		permission := tool
		if slices.Contains([]string{"write", "patch", "multiedit"}, tool) {
			permission = events.KindEdit
		}
		if _, err := f.add(permission, []pattern{{"", "deny"}}); err != nil {
			return nil, err
		}
	}
	return notes, nil
}

// permissionNode returns the rules as OpenCode's permissions. In OpenCode the last matching pattern decides, so rules
// that allow come first.
func permissionNode(rules []policy.Rule) *yaml.Node {
	order := map[policy.Action]int{policy.Allow: 0, policy.AskPerson: 1, policy.Deny: 2}
	rules = slices.Clone(rules)
	slices.SortFunc(rules, func(a, b policy.Rule) int {
		return cmp.Or(cmp.Compare(a.Permission, b.Permission), cmp.Compare(order[a.Action], order[b.Action]),
			cmp.Compare(a.Pattern, b.Pattern))
	})
	n := &yaml.Node{Kind: yaml.MappingNode}
	for len(rules) > 0 {
		permission := rules[0].Permission
		end := slices.IndexFunc(rules, func(r policy.Rule) bool { return r.Permission != permission })
		if end < 0 {
			end = len(rules)
		}
		if permission == events.KindMCP { // OpenCode names a permission after the tool
			for _, r := range rules[:end] {
				n.Content = append(n.Content, scalar(r.Pattern), scalar(string(r.Action)))
			}
		} else {
			n.Content = append(n.Content, scalar(permission), patternsNode(permission, rules[:end]))
		}
		rules = rules[end:]
	}
	return n
}

// patternsNode returns the rules of a permission: one action if it is for the whole permission, or its patterns.
func patternsNode(permission string, rules []policy.Rule) *yaml.Node {
	whole := "*"
	if rules[0].Action == policy.Allow && coversWorkspace(permission) {
		whole = policy.Inside
	}
	if len(rules) == 1 && rules[0].Pattern == whole {
		return scalar(string(rules[0].Action))
	}
	n := &yaml.Node{Kind: yaml.MappingNode}
	hasWhole := slices.ContainsFunc(rules, func(r policy.Rule) bool { return r.Pattern == "*" })
	if rules[0].Action == policy.Allow && !hasWhole {
		n.Content = append(n.Content, scalar("*"), scalar(string(policy.AskPerson)))
	}
	for _, r := range rules {
		n.Content = append(n.Content, scalar(r.Pattern), scalar(string(r.Action)))
	}
	return n
}
