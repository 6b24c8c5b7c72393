package program

import (
	"regexp"
	"strings"

	"pocketcoder/handlers/policy/display"
)

// jqWords are the words of a harmless jq filter, besides fields, variables and keys: keywords, and functions that only
// read their input.
var jqWords = set(`
	if then elif else end and or not as def reduce foreach try catch label break null true false empty error add any all flatten range floor sqrt pow log
	tostring tonumber type infinite nan isinfinite isnan isnormal sort sort_by group_by min max min_by max_by unique unique_by reverse contains inside
	startswith endswith combinations ltrimstr rtrimstr trimstr trim ltrim rtrim explode implode split join ascii_downcase ascii_upcase recurse recurse_down
	while until repeat inputs input input_filename input_line_number length utf8bytelength keys keys_unsorted values has in map map_values path paths
	del delpaths getpath setpath to_entries from_entries with_entries select arrays objects iterables booleans numbers normals finites strings nulls
	scalars limit first last nth skip tojson fromjson todate fromdate now dateadd datesub date mktime gmtime localtime strftime strptime strflocaltime
	test match capture scan splits sub gsub ascii index indices rindex transpose walk leaf_paths bsearch tostream fromstream truncate_stream isvalid abs
	toarray pick debug halt halt_error ceil round fabs significand`)

// jqWord is a field, a variable, a format or a name.
var jqWord = regexp.MustCompile(`^(\.|@|\$ *)?[A-Za-z_][A-Za-z0-9_]*(::[A-Za-z_][A-Za-z0-9_]*)*`)

// jqFilter checks the filter, which is the first argument. An unknown word may read the environment or other files.
func jqFilter(_ Call, args []Argument) string {
	n := positionals(args)
	if len(n) == 0 {
		return ""
	}
	if word := jqUnknown(n[0]); word != "" {
		return display.Quote(word) + " is not known to make “jq” look at its input alone"
	}
	return ""
}

// jqUnknown returns the first unknown part of a filter, "" if there is none.
func jqUnknown(filter string) string {
	var open []byte // open brackets; a quote is a text that may contain a filter
	inText, before := false, byte(0)
	for i := 0; i < len(filter); i++ {
		c := filter[i]
		switch {
		case inText && c == '\\' && strings.HasPrefix(filter[i+1:], "("):
			open, inText = append(open, '"'), false
			i++
		case inText && c == '\\':
			i++
		case inText:
			inText = c != '"'
		case c == '"':
			inText = true
		case strings.IndexByte("([{", c) >= 0:
			open = append(open, c)
		case strings.IndexByte(")]}", c) >= 0:
			if len(open) == 0 {
				return filter
			}
			inText = open[len(open)-1] == '"'
			open = open[:len(open)-1]
		case c == '#':
			return filter[i:]
		case c == ' ' || c == '\t' || c == '\n':
			continue
		default:
			word := jqWord.FindString(filter[i:])
			if word == "" {
				break
			}
			key := word[0] != '$' && len(open) > 0 && open[len(open)-1] == '{' && (before == '{' || before == ',')
			if !key && !plainJq(word) {
				return word
			}
			i += len(word) - 1
			c = filter[i]
		}
		before = c
	}
	if inText || len(open) > 0 {
		return filter
	}
	return ""
}

func plainJq(word string) bool {
	if name, variable := strings.CutPrefix(word, "$"); variable {
		name = strings.TrimLeft(name, " ")
		return name != "ENV" && !strings.HasPrefix(name, "__prog")
	}
	return word[0] == '.' || word[0] == '@' || jqWords[word]
}
