package filter

import (
	"strings"

	"github.com/ganigeorgiev/fexpr"
)

// maxArguments of strftime, as in PocketBase.
const maxArguments = 10

func (s *Scope) function(t fexpr.Token, j *joins) (operand, error) {
	args, _ := t.Meta.([]fexpr.Token)
	if t.Literal == "strftime" {
		return s.strftime(args, j)
	}
	return operand{}, s.invalid("unknown_function", "unknown function %q", t.Literal)
}

// strftime compiles SQLite's function of that name. Its arguments are a format, a time (by default now) and modifiers.
func (s *Scope) strftime(args []fexpr.Token, j *joins) (operand, error) {
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
