package policy

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"pocketcoder/events"
	"pocketcoder/handlers/policy/display"
)

// Inside is the pattern of a file rule that matches everything in the workspace.
const Inside = "<workspace>"

// about returns what the requests and the rules of a permission are about.
func about(permission string) events.RequestSubject { return events.RequestKinds[permission].About }

// OfTool converts a rule whose permission is the name of an MCP tool and whose pattern is * into the mcp rule for that
// tool.
func (r Rule) OfTool() Rule {
	if r.Pattern == "*" && r.Permission != "" && r.Permission != "*" && about(r.Permission) == events.AboutTool {
		r.Permission, r.Pattern = events.KindMCP, r.Permission
	}
	return r
}

// DeniedTool returns the name that OpenCode gives to the tool that the rule denies wholly, "" if there is none. A * in
// the name stands for any characters.
func (r Rule) DeniedTool() string {
	switch {
	case r.Action != Deny || r.Check() != nil:
		return ""
	case r.Permission == events.KindMCP && r.Pattern == "*":
		return events.OwnTools + "*"
	case r.Permission == events.KindMCP && strings.HasPrefix(r.Pattern, events.OwnTools):
		return r.Pattern
	case r.Pattern != "*" || events.RequestKinds[r.Permission].PersonOnly ||
		slices.Contains([]string{events.KindMCP, events.KindExternalDirectory, events.KindNetwork}, r.Permission):
		return ""
	case writes(r.Permission):
		return events.KindEdit
	}
	return r.Permission
}

type SyntaxError struct {
	// of the pattern, in runes, from 1; of the whole text in an error of ParseRule; 0 when the pattern is not at fault
	Column int
	Text   string
}

func (e *SyntaxError) Error() string {
	if e.Column == 0 {
		return e.Text
	}
	return fmt.Sprintf("column %d: %s", e.Column, e.Text)
}

// ParseRule parses a rule such as "bash: git status*", "deny bash: rm*" or "ask edit: docs/**". Its errors wrap a
// *SyntaxError.
func ParseRule(s string) (Rule, error) {
	head, pattern, found := strings.Cut(s, ":")
	r := Rule{Permission: strings.TrimSpace(head), Pattern: strings.TrimSpace(pattern), Action: Allow}
	if action, permission, two := strings.Cut(r.Permission, " "); two {
		r.Action, r.Permission = Action(action), strings.TrimSpace(permission)
	}
	if !found || r.Permission == "" {
		return Rule{}, fmt.Errorf("parse rule %q: %w", s, &SyntaxError{1,
			`want "permission: pattern", such as "bash: git status*"`})
	}
	err := r.Check()
	if wrong, ok := err.(*SyntaxError); ok {
		if wrong.Column > 0 {
			blanks := len(pattern) - len(strings.TrimLeft(pattern, " \t"))
			wrong.Column += utf8.RuneCountInString(head) + 1 + blanks
		}
		return Rule{}, fmt.Errorf("parse rule %q: %w", s, wrong)
	}
	return r, nil
}

func (r Rule) String() string {
	text := r.Permission + ": " + r.Pattern
	if r.action() != Allow {
		text = string(r.Action) + " " + text
	}
	return text
}

func (r Rule) action() Action {
	if r.Action == "" {
		return Allow
	}
	return r.Action
}

// Check returns a *SyntaxError if a rule is invalid. An invalid rule matches nothing. Some restrictions apply only to
// rules that allow: other rules may have the pattern "*" and any permission name.
func (r Rule) Check() error {
	if wrong := compile(r).wrong; wrong != nil {
		return wrong
	}
	return nil
}

// compiledRule is a rule with its parsed pattern.
type compiledRule struct {
	Rule
	wrong     *SyntaxError
	words     []string    // bash
	url       webURL      // webfetch
	host      hostPattern // network
	path      pathPattern // for file rules
	lowercase pathPattern // in lower case: rules that deny or ask ignore case
}

func compile(r Rule) *compiledRule {
	c := &compiledRule{Rule: r, wrong: r.checkText()}
	if c.wrong != nil || c.coversAll() {
		return c
	}
	allow := r.action() == Allow
	switch t, kind := r.Permission, events.RequestKinds[r.Permission]; {
	case t == "*":
		c.wrong = &SyntaxError{0, "only a rule that denies or asks is for every permission, and its pattern is *"}
	case allow && kind.PersonOnly:
		c.wrong = &SyntaxError{0, t + " is always for a person to decide"}
	case kind.About == events.AboutCommand:
		c.words, c.wrong = bashPattern(r.Pattern)
	case kind.About == events.AboutPath:
		c.wrong, c.path = checkPath(r.Pattern), parsePathPattern(r.Pattern)
		c.lowercase = c.path
		if lower := strings.ToLower(r.Pattern); lower != r.Pattern {
			c.lowercase = parsePathPattern(lower)
		}
	case kind.About == events.AboutSearch:
		if r.Pattern != Inside {
			c.wrong = &SyntaxError{1, "want " + Inside + ": what is looked for says nothing of a place"}
		}
	case kind.About == events.AboutURL:
		c.url, c.wrong = parseURLPattern(r.Pattern)
	case kind.About == events.AboutHost:
		c.host, c.wrong = parseHostPattern(r.Pattern, allow)
	case allow && kind.About == events.AboutName && strings.Contains(r.Pattern, "*"):
		c.wrong = &SyntaxError{utf8.RuneCountInString(r.Pattern[:strings.Index(r.Pattern, "*")]) + 1,
			"name it exactly, without *"}
	case allow && kind.About == events.AboutTool:
		c.wrong = &SyntaxError{0, fmt.Sprintf("%q is not a permission a rule can allow; for a tool of an MCP server write mcp: %s", t, t)}
	}
	return c
}

// checkText checks what does not depend on the permission type.
func (r Rule) checkText() *SyntaxError {
	switch {
	case r.Permission == events.KindKeep:
		return &SyntaxError{0, "only a person decides requests of type " + events.KindKeep + "; no rule can"}
	case r.action() != Allow && r.action() != AskPerson && r.action() != Deny:
		return &SyntaxError{0, fmt.Sprintf("want allow, ask or deny, got %q", r.Action)}
	case r.Permission == "":
		return &SyntaxError{0, "a rule is for one permission, such as bash; it has none"}
	case strings.TrimSpace(r.Pattern) == "":
		return &SyntaxError{1, "the pattern is empty"}
	}
	column := 0
	for _, c := range r.Pattern {
		if column++; !display.Visible(c) || c == utf8.RuneError {
			return &SyntaxError{column, fmt.Sprintf("%U cannot be seen", c)}
		}
	}
	return nil
}

// coversAll reports whether the rule denies or asks about all requests of its permission.
func (c *compiledRule) coversAll() bool { return c.Pattern == "*" && c.action() != Allow }

// allows reports whether the rule allows requests of a permission type.
func (c *compiledRule) allows(permission string) bool {
	return c.wrong == nil && c.Permission == permission && c.action() == Allow
}

// covers reports whether a rule that denies or asks covers a location, by its lexical or its real path.
func (c *compiledRule) covers(at lowercaseLocation) bool {
	return c.lowercase.matchesWide(at.Real, at.root) ||
		at.Lexical != at.Real && c.lowercase.matchesWide(at.Lexical, at.root)
}
