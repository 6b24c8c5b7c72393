package query

import (
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ganigeorgiev/fexpr"
)

// parse reads an expression. It checks the limits before it calls the parser, because the parser recurses into
// parentheses.
func (s *scope) parse(text string) ([]fexpr.ExprGroup, error) {
	if !s.trusted && len(text) > maxText {
		return nil, tooLong(s.parameter, text)
	}
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return nil, s.invalid("invalid_text", "it has invalid UTF-8")
	}
	if nesting(text) > maxNesting {
		return nil, s.invalid("too_deep", "it has more than %d parentheses within each other", maxNesting)
	}
	groups, err := fexpr.Parse(text)
	if errors.Is(err, fexpr.ErrEmpty) {
		return nil, s.invalid("invalid_syntax", "it has no expression")
	}
	if err != nil {
		return nil, s.invalid("invalid_syntax", "%v", err)
	}
	return groups, nil
}

// nesting returns how deep parentheses are nested, outside quoted texts and comments.
func nesting(text string) (deepest int) {
	var quote byte
	for i, depth := 0, 0; i < len(text); i++ {
		switch c := text[i]; {
		case quote != 0 && c == '\\':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case strings.HasPrefix(text[i:], "//"):
			end := strings.IndexByte(text[i:], '\n')
			if end < 0 {
				return deepest
			}
			i += end
		case c == '(':
			depth++
			deepest = max(deepest, depth)
		case c == ')':
			depth--
		}
	}
	return deepest
}

// group compiles a group of comparisons, and reports whether it reads a relation that may lead to several records.
func (s *scope) group(g fexpr.ExprGroup, depth int) (sql string, many bool, err error) {
	if depth > maxNesting+1 {
		return "", false, s.invalid("too_deep", "it has more than %d parentheses within each other", maxNesting)
	}
	switch item := g.Item.(type) {
	case fexpr.Expr:
		if s.expressions++; s.expressions > maxExpressions {
			return "", false, s.invalid("too_many_expressions", "it has more than %d expressions", maxExpressions)
		}
		return s.expression(item)
	case []fexpr.ExprGroup:
		parts := make([]string, len(item))
		for i, g := range item {
			var m bool
			if parts[i], m, err = s.group(g, depth+1); err != nil {
				return "", false, err
			}
			many = many || m
		}
		return junction(item, parts), many, nil
	}
	return "", false, s.invalid("invalid_syntax", "unexpected %T", g.Item)
}

// junction joins the compiled parts of a group. It omits parts whose result is certain: SQLite then plans a rule like
// "… or an administrator" without that part.
func junction(groups []fexpr.ExprGroup, parts []string) string {
	uniform := true
	for i, g := range groups {
		uniform = uniform && (i == 0 || g.Join == groups[len(groups)-1].Join)
	}
	op, idle, decisive := " AND ", "1", "0"
	if groups[len(groups)-1].Join == fexpr.JoinOr {
		op, idle, decisive = " OR ", "0", "1"
	}
	switch {
	case len(parts) == 1:
		return parts[0]
	case !uniform:
		return mixed(groups, parts)
	case slices.Contains(parts, decisive):
		return decisive
	}
	left := slices.DeleteFunc(parts, func(part string) bool { return part == idle })
	if len(left) == 0 {
		return idle
	}
	return "(" + strings.Join(left, op) + ")"
}

// mixed joins parts with both && and ||. && binds closer.
func mixed(groups []fexpr.ExprGroup, parts []string) string {
	var b strings.Builder
	for i, part := range parts {
		switch {
		case i == 0:
		case groups[i].Join == fexpr.JoinOr:
			b.WriteString(" OR ")
		default:
			b.WriteString(" AND ")
		}
		b.WriteString(part)
	}
	return "(" + b.String() + ")"
}

// expression compiles a comparison. If an operand leads to several records and the operator has no ?, at least one must
// match and none may fail.
func (s *scope) expression(e fexpr.Expr) (sql string, many bool, err error) {
	left, err := s.operand(e.Left, s.joins)
	if err != nil {
		return "", false, err
	}
	right, err := s.operand(e.Right, s.joins)
	if err != nil {
		return "", false, err
	}
	sql, err = s.compare(left, e.Op, right)
	if err != nil {
		return "", false, err
	}
	many = left.many || right.many
	if e.Op[0] == '?' || !left.all && !right.all {
		return sql, many, nil
	}
	leftJoins, rightJoins := newJoins(), newJoins()
	if left.all {
		if left, err = s.operand(e.Left, leftJoins); err != nil {
			return "", false, err
		}
	}
	if right.all {
		if right, err = s.operand(e.Right, rightJoins); err != nil {
			return "", false, err
		}
	}
	each, err := s.compare(left, e.Op, right)
	if err != nil {
		return "", false, err
	}
	return "(" + sql + " AND NOT EXISTS (SELECT 1 FROM (SELECT 1)" + leftJoins.sql() + rightJoins.sql() + " WHERE NOT (" +
		each + ")))", many, nil
}
