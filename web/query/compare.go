package query

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ganigeorgiev/fexpr"
)

// operand is one side of a comparison.
type operand struct {
	sql     string
	literal bool // value is set
	value   any  // string, float64, int, bool or nil
	nulls   nullMode
	guest   bool // a property of the caller, who is not logged in
	many    bool // the operand reads a relation that may lead to several records
	all     bool // all of these records must match
	list    bool // sql is a subquery with a list of values; only ?= compares it
}

// nullMode is how an operand that may be NULL compares with the empty text.
type nullMode int

const (
	nullEqualsEmpty      nullMode = iota // NULL and '' are equal
	nullDiffersFromEmpty                 // they differ: JSON
)

func (o operand) empty() bool { return o.literal && (o.value == nil || o.value == "") }

// nonEmpty reports whether the operand is certainly not empty.
func (o operand) nonEmpty() bool { return o.literal && !o.empty() }

// bothConstant reports whether both operands are constant texts, so that the comparison can be made now.
func bothConstant(left, right operand) bool {
	_, l := left.value.(string)
	_, r := right.value.(string)
	return l && r
}

func (s *statement) literal(v any) operand {
	if v == nil {
		return operand{sql: "NULL", literal: true}
	}
	return operand{sql: s.Bind(v), literal: true, value: v}
}

func (s *scope) compare(left operand, op fexpr.SignOp, right operand) (string, error) {
	switch {
	case left.list && right.list, right.list, left.list && op != fexpr.SignAnyEq:
		return "", s.invalid("invalid_syntax", "a list is compared with ?=, as the left operand")
	case left.list && left.guest:
		return "0", nil
	case left.list:
		return right.sql + " IN (" + left.sql + ")", nil
	}
	switch op {
	case fexpr.SignEq, fexpr.SignAnyEq:
		return equal(left, right), nil
	case fexpr.SignNeq, fexpr.SignAnyNeq:
		return notEqual(left, right), nil
	case fexpr.SignLike, fexpr.SignAnyLike:
		return s.like(left, "LIKE", right)
	case fexpr.SignNlike, fexpr.SignAnyNlike:
		return s.like(left, "NOT LIKE", right)
	}
	return left.sql + " " + strings.TrimPrefix(string(op), "?") + " " + right.sql, nil
}

// equal compares like PocketBase: NULL equals the empty text, except in JSON. Unlike in PocketBase, a record without an
// owner does not belong to a caller who is not logged in.
func equal(left, right operand) string {
	switch {
	case left.guest && !right.literal || right.guest && !left.literal:
		return "0"
	case left.nulls == nullDiffersFromEmpty || right.nulls == nullDiffersFromEmpty:
		return left.sql + " IS " + right.sql
	case left.empty() && right.empty() || bothConstant(left, right) && left.value == right.value:
		return "1"
	case bothConstant(left, right):
		return "0"
	case left.nonEmpty() || right.nonEmpty():
		return left.text() + " = " + right.text()
	case left.empty():
		return fmt.Sprintf("(%s = '' OR %[1]s IS NULL)", right.sql)
	case right.empty():
		return fmt.Sprintf("(%s = '' OR %[1]s IS NULL)", left.sql)
	}
	return fmt.Sprintf("coalesce(%s, '') = coalesce(%s, '')", left.sql, right.sql)
}

func notEqual(left, right operand) string {
	switch {
	case left.nulls == nullDiffersFromEmpty || right.nulls == nullDiffersFromEmpty:
		return left.sql + " IS NOT " + right.sql
	case left.empty() && right.empty() || bothConstant(left, right) && left.value == right.value:
		return "0"
	case bothConstant(left, right):
		return "1"
	case left.nonEmpty() || right.nonEmpty():
		return left.text() + " IS NOT " + right.text()
	case left.empty():
		return fmt.Sprintf("(%s IS NOT '' AND %[1]s IS NOT NULL)", right.sql)
	case right.empty():
		return fmt.Sprintf("(%s IS NOT '' AND %[1]s IS NOT NULL)", left.sql)
	}
	return fmt.Sprintf("coalesce(%s, '') IS NOT coalesce(%s, '')", left.sql, right.sql)
}

// text returns the operand as SQL. A literal NULL becomes the empty text.
func (o operand) text() string {
	if o.empty() {
		return "''"
	}
	return o.sql
}

// like searches for the text of the right operand in that of the left one. If the right text has a wildcard, like
// matches it against the whole left text.
func (s *scope) like(left operand, op string, right operand) (string, error) {
	pattern := fmt.Sprintf("('%%' || substr(%s, 1, %d) || '%%')", right.sql, maxPattern)
	if right.literal && right.value != nil {
		text := literalText(right.value)
		if len(text) > maxPattern {
			return "", s.invalid("too_long", "the text after ~ is %d bytes long, at most %d", len(text), maxPattern)
		}
		if !hasWildcard(text) {
			text = "%" + escapeLike(text) + "%"
		}
		pattern = s.Bind(text)
	}
	return left.sql + " " + op + " " + pattern + ` ESCAPE '\'`, nil
}

func literalText(v any) string {
	if f, ok := v.(float64); ok {
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	return fmt.Sprint(v)
}

// hasWildcard reports whether a text has a % without a backslash before it.
func hasWildcard(s string) bool {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '%':
			return true
		}
	}
	return false
}

// escapeLike escapes the wildcards of LIKE that are not escaped yet. It reads from the end, because a backslash belongs
// to the character after it.
func escapeLike(s string) string {
	b := make([]byte, 0, len(s)+8)
	for i := len(s) - 1; i >= 0; i-- {
		b = append(b, s[i])
		if s[i] == '\\' || s[i] == '%' || s[i] == '_' {
			b = append(b, '\\')
			if i > 0 && s[i-1] == '\\' {
				i--
			}
		}
	}
	slices.Reverse(b)
	return string(b)
}
