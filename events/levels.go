package events

import "encoding/json"

// MaxLevels is how many levels of arrays and objects a JSON value from a client may nest. SQLite's JSON functions
// refuse more than 1,000 levels, and recursive parsers of clients fail at about as many.
const MaxLevels = 100

// Levels returns how many levels of arrays and objects a JSON value nests: 0 for a number, 1 for []. The value must be
// valid JSON.
func Levels(value []byte) (levels int) {
	depth, inString, escaped := 0, false, false
	for _, c := range value {
		switch {
		case escaped:
			escaped = false
		case inString:
			escaped, inString = c == '\\', c != '"'
		case c == '"':
			inString = true
		case c == '{', c == '[':
			depth++
			levels = max(levels, depth)
		case c == '}', c == ']':
			depth--
		}
	}
	return levels
}

// LimitLevels replaces the values of an object that nest too many levels by an object with the field error.
func LimitLevels(object []byte, most int, problem string) []byte {
	if Levels(object) <= most {
		return object
	}
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(object, &fields) // another value has no fields
	for name, value := range fields {
		if 1+Levels(value) > most {
			fields[name] = MustEncode(map[string]string{"error": problem})
		}
	}
	return MustEncode(fields)
}
