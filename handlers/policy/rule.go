package policy

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"pocketcoder/handlers/policy/display"
)

// Inside, as the pattern of a rule about files, matches everything in the workspace.
const Inside = "<workspace>"

// Permission types by what their patterns are. Every other type is a tool of an MCP server: "mcp" with the tool's name
// as the pattern allows it.
var (
	pathTypes   = []string{"read", "list", "edit", "write", "external_directory"}
	searchTypes = []string{"glob", "grep"}
	// OpenCode's own tools that open what they are about
	fileTypes  = []string{"read", "list", "edit", "write", "glob", "grep", "lsp"}
	nameTypes  = []string{"mcp", "task", "skill"}
	noteTypes  = []string{"todowrite", "todoread", "websearch", "codesearch", "lsp"}
	neverTypes = []string{"doom_loop", "budget", "question"} // are there to be seen by a person
)

// OfTool gives the rule that is meant by one whose permission is the name of a tool of an MCP server and whose pattern
// is *: any use of that tool.
func (r Rule) OfTool() Rule {
	known := slices.Concat([]string{"", "*", "bash", "webfetch", "network"}, pathTypes, searchTypes, nameTypes, noteTypes,
		neverTypes)
	if r.Pattern == "*" && !slices.Contains(known, r.Permission) {
		r.Permission, r.Pattern = "mcp", r.Permission
	}
	return r
}

// SyntaxError says where a rule is wrong.
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

// ParseRule reads a rule as a person writes it: "bash: git status*", "deny bash: rm*", "ask edit: docs/**". Its errors
// wrap a *SyntaxError.
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

// Check says what is wrong with a rule, with a *SyntaxError; a rule that is wrong matches nothing. What only an allow
// rule may not say is fine where a rule denies or asks: there "*" means everything, and a permission may be any name.
func (r Rule) Check() error {
	if wrong := compile(r).wrong; wrong != nil {
		return wrong
	}
	return nil
}

// compiledRule is a rule whose pattern was read.
type compiledRule struct {
	Rule
	wrong     *SyntaxError
	words     []string    // bash
	url       webURL      // webfetch
	host      hostPattern // network
	path      pathPattern // of files
	lowercase pathPattern // the same in lower case: what keeps files from use does so in any case
}

func compile(r Rule) *compiledRule {
	c := &compiledRule{Rule: r, wrong: r.checkText()}
	if c.wrong != nil || c.everything() {
		return c
	}
	allow := r.action() == Allow
	switch t := r.Permission; {
	case t == "*":
		c.wrong = &SyntaxError{0, "only a rule that denies or asks is for every permission, and its pattern is *"}
	case allow && slices.Contains(neverTypes, t):
		c.wrong = &SyntaxError{0, t + " is always for a person to decide"}
	case t == "bash":
		c.words, c.wrong = bashPattern(r.Pattern)
	case slices.Contains(pathTypes, t):
		c.wrong, c.path = checkPath(r.Pattern), parsePathPattern(r.Pattern)
		c.lowercase = c.path
		if lower := strings.ToLower(r.Pattern); lower != r.Pattern {
			c.lowercase = parsePathPattern(lower)
		}
	case slices.Contains(searchTypes, t):
		if r.Pattern != Inside {
			c.wrong = &SyntaxError{1, "want " + Inside + ": what is looked for says nothing of a place"}
		}
	case t == "webfetch":
		c.url, c.wrong = parseURLPattern(r.Pattern)
	case t == "network":
		c.host, c.wrong = parseHostPattern(r.Pattern, allow)
	case allow && slices.Contains(nameTypes, t) && strings.Contains(r.Pattern, "*"):
		c.wrong = &SyntaxError{utf8.RuneCountInString(r.Pattern[:strings.Index(r.Pattern, "*")]) + 1,
			"name it exactly, without *"}
	case allow && !slices.Contains(nameTypes, t) && !slices.Contains(noteTypes, t):
		c.wrong = &SyntaxError{0, fmt.Sprintf("%q is not a permission a rule can allow; for a tool of an MCP server write mcp: %s", t, t)}
	}
	return c
}

// checkText says what is wrong with a rule whatever its permission is.
func (r Rule) checkText() *SyntaxError {
	switch {
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

// everything says whether the rule is about all asks of its permission.
func (c *compiledRule) everything() bool { return c.Pattern == "*" && c.action() != Allow }

// allows says whether the rule is one that allows asks of a permission type.
func (c *compiledRule) allows(permission string) bool {
	return c.wrong == nil && c.Permission == permission && c.action() == Allow
}

// keeps says whether a rule that denies or asks is about a place, by either of its names.
func (c *compiledRule) keeps(at lowercaseLocation) bool {
	return c.lowercase.matches(at.Real, at.root) || at.Lexical != at.Real && c.lowercase.matches(at.Lexical, at.root)
}
