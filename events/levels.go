package events

// MaxLevels is how many levels of arrays and objects a JSON value from a client may nest. SQLite's JSON functions refuse more than
// 1,000 levels, and recursive parsers of clients fail at about as many.
const MaxLevels = 100

// Levels returns how many levels of arrays and objects a JSON value nests: 0 for a number, 1 for []. The value must be valid JSON.
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
