package query

import "fmt"

// Invalid is an error in a client's query or value.
type Invalid struct {
	Field   string // the parameter at fault: filter, sort, expand, fields
	Code    string // for programs
	Message string // for people
}

func (i Invalid) Error() string { return i.Field + ": " + i.Message }

func newInvalid(field, code, format string, args ...any) Invalid {
	return Invalid{Field: field, Code: code, Message: fmt.Sprintf(format, args...)}
}
