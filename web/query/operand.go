package query

import (
	"strconv"
	"strings"
	"time"

	"github.com/ganigeorgiev/fexpr"

	"pocketcoder/events"
)

// operand compiles one side of a comparison. It adds the records that it reads to j.
func (s *scope) operand(t fexpr.Token, j *joins) (operand, error) {
	switch t.Type {
	case fexpr.TokenText:
		return s.literal(t.Literal), nil
	case fexpr.TokenNumber:
		f, err := strconv.ParseFloat(t.Literal, 64)
		if err != nil {
			return operand{}, s.invalid("invalid_number", "%q is not a number", t.Literal)
		}
		return s.literal(f), nil
	case fexpr.TokenFunction:
		return s.function(t, j)
	case fexpr.TokenIdentifier:
		return s.identifier(t.Literal, j)
	}
	return operand{}, s.invalid("invalid_syntax", "unexpected %q", t.Literal)
}

func (s *scope) identifier(name string, j *joins) (operand, error) {
	if macro, ok := macros[name]; ok {
		return s.literal(macro(s.Now)), nil
	}
	o, err := s.path(name, j)
	if err == nil {
		return o, nil
	}
	switch strings.ToLower(name) { // a field of the same name has precedence
	case "null":
		return s.literal(nil), nil
	case "true":
		return s.literal(1), nil
	case "false":
		return s.literal(0), nil
	}
	return operand{}, err
}

// path compiles a field, at the end of any path.
func (s *scope) path(name string, j *joins) (operand, error) {
	segments := strings.Split(name, ".")
	root := segments[0]
	for i, segment := range segments {
		if !isWord(strings.ReplaceAll(strings.TrimPrefix(segment, "@"), ":", "_")) || i > 0 && segment[0] == '@' {
			return operand{}, s.invalid("unknown_field", "%q is not a field", name)
		}
	}
	switch {
	case root == "@request" && len(segments) > 1:
		return s.auth(segments[1:])
	case root == "@collection" && len(segments) > 2:
		return s.otherRecord(segments[1], segments[2:], j)
	case root[0] == '@':
		return operand{}, s.invalid("unknown_field", "unknown field %q", name)
	}
	w := walk{scope: s, joins: j, name: name}
	return w.from(joinedRow{collection: s.base, alias: s.alias}, "", segments)
}

// otherRecord compiles a field of any record of a collection, related or not. Each alias stands for another record of
// it.
func (s *scope) otherRecord(named string, segments []string, j *joins) (operand, error) {
	name, _, _ := strings.Cut(named, ":")
	c, ok := s.Cat.Get(name)
	if !ok {
		return operand{}, s.invalid("unknown_field", "unknown collection %q", name)
	}
	start := "@collection." + named
	p, err := s.join(j, start, joinedRow{}, c, true, true, nil)
	if err != nil {
		return operand{}, err
	}
	w := walk{scope: s, joins: j, name: start}
	return w.from(p, start, segments)
}

func (s *scope) splitModifier(segment string) (name, modifier string, err error) {
	name, modifier, found := strings.Cut(segment, ":")
	switch modifier {
	case "length", "each", "lower":
		return name, modifier, nil
	}
	if found {
		return "", "", s.invalid("unknown_modifier", "unknown modifier in %q", segment)
	}
	return name, "", nil
}

// auth compiles a property of the account that makes the request, such as @request.auth.id. It is empty for a guest.
func (s *scope) auth(segments []string) (operand, error) {
	a := s.Req.Auth
	if len(segments) != 2 || segments[0] != "auth" {
		return operand{}, s.invalid("unknown_field", "unknown field %q", "@request."+strings.Join(segments, "."))
	}
	if a == nil {
		a = &Auth{}
	}
	c, _ := s.Cat.Get(a.Collection)
	known := map[string]string{
		"id": a.ID, "email": a.Email, "name": a.Name, "role": a.Role, "collectionName": a.Collection, "collectionId": c.ID,
	}
	value, ok := known[segments[1]]
	switch {
	case !ok:
		return operand{}, s.invalid("unknown_field", "unknown field %q", "@request."+strings.Join(segments, "."))
	case s.Req.Auth == nil:
		o := s.literal(nil)
		o.guest = true
		return o, nil
	}
	return s.literal(value), nil
}

// maxArguments of strftime, as in PocketBase.
const maxArguments = 10

func (s *scope) function(t fexpr.Token, j *joins) (operand, error) {
	args, _ := t.Meta.([]fexpr.Token)
	if t.Literal == "strftime" {
		return s.strftime(args, j)
	}
	return operand{}, s.invalid("unknown_function", "unknown function %q", t.Literal)
}

// strftime compiles SQLite's function of that name. Its arguments are a format, a time (by default now) and modifiers.
func (s *scope) strftime(args []fexpr.Token, j *joins) (operand, error) {
	if len(args) < 1 || len(args) > maxArguments {
		return operand{}, s.invalid("invalid_arguments", "strftime takes 1 to %d arguments, got %d", maxArguments, len(args))
	}
	var result operand
	list := make([]string, 0, len(args)+1)
	for i, arg := range args {
		isTime := i == 1 && (arg.Type == fexpr.TokenIdentifier || arg.Type == fexpr.TokenNumber)
		if arg.Type != fexpr.TokenText && !isTime {
			return operand{}, s.invalid("invalid_arguments", "argument %d of strftime is %q, which is not accepted there", i+1,
				arg.Literal)
		}
		o, err := s.operand(arg, j)
		if err != nil {
			return operand{}, err
		}
		list = append(list, o.sql)
		result.many, result.all = result.many || o.many, result.all || o.all
	}
	if len(list) == 1 {
		list = append(list, s.Bind(macros["@now"](s.Now)))
	}
	result.sql = "strftime(" + strings.Join(list, ",") + ")"
	return result, nil
}

// macros are names for points in time, in UTC.
var macros = map[string]func(now time.Time) any{
	"@now":        func(t time.Time) any { return events.FormatTime(t) },
	"@yesterday":  func(t time.Time) any { return events.FormatTime(t.AddDate(0, 0, -1)) },
	"@tomorrow":   func(t time.Time) any { return events.FormatTime(t.AddDate(0, 0, 1)) },
	"@second":     func(t time.Time) any { return t.Second() },
	"@minute":     func(t time.Time) any { return t.Minute() },
	"@hour":       func(t time.Time) any { return t.Hour() },
	"@day":        func(t time.Time) any { return t.Day() },
	"@weekday":    func(t time.Time) any { return int(t.Weekday()) },
	"@month":      func(t time.Time) any { return int(t.Month()) },
	"@year":       func(t time.Time) any { return t.Year() },
	"@todayStart": func(t time.Time) any { return day(t.Year(), t.Month(), t.Day()) },
	"@todayEnd":   func(t time.Time) any { return endOf(t.Year(), t.Month(), t.Day()) },
	"@monthStart": func(t time.Time) any { return day(t.Year(), t.Month(), 1) },
	"@monthEnd":   func(t time.Time) any { return endOf(t.Year(), t.Month()+1, 0) },
	"@yearStart":  func(t time.Time) any { return day(t.Year(), time.January, 1) },
	"@yearEnd":    func(t time.Time) any { return endOf(t.Year(), time.December, 31) },
}

func day(year int, month time.Month, day int) string {
	return events.FormatTime(time.Date(year, month, day, 0, 0, 0, 0, time.UTC))
}

// endOf returns the last millisecond of a day.
func endOf(year int, month time.Month, day int) string {
	return events.FormatTime(time.Date(year, month, day, 23, 59, 59, 999e6, time.UTC))
}
