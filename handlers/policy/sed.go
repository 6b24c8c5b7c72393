package policy

import (
	"regexp"
	"strings"
)

var (
	sedAddress = regexp.MustCompile(`^(\d+(~\d+)?|\$|/([^/\\\n]|\\[^\n])*/I?)`)
	sedSecond  = regexp.MustCompile(`^,[+~]?(\d+|\$|/([^/\\\n]|\\[^\n])*/I?)`)
	sedFlags   = regexp.MustCompile(`^[gpiIm0-9]*`)
)

// plainSed says whether a sed script only prints, deletes, joins or substitutes lines: no w, r, e, no flag e or w, and
// nothing that cannot be read with certainty.
func plainSed(s string) bool {
	for {
		s = strings.TrimLeft(s, " \t\n;")
		if s == "" {
			return true
		}
		if at := sedAddress.FindString(s); at != "" {
			s = s[len(at):]
			second := sedSecond.FindString(s)
			s = s[len(second):]
			if !brackets(at) || !brackets(second) {
				return false
			}
		}
		s = strings.TrimLeft(s, " !")
		if s == "" {
			return false
		}
		command := s[0]
		s = s[1:]
		switch {
		case strings.IndexByte("pdqQ=nNDPhHgGx", command) >= 0:
		case command == 's':
			rest, ok := substitution(s)
			if !ok {
				return false
			}
			s = rest[len(sedFlags.FindString(rest)):]
		default:
			return false
		}
		s = strings.TrimLeft(s, " \t")
		if s != "" && s[0] != ';' && s[0] != '\n' {
			return false
		}
	}
}

// brackets says whether a regular expression ends where it seems to: a bracket expression may hold the delimiter.
func brackets(re string) bool {
	return strings.Count(re, "[") == strings.Count(re, "]") && !strings.Contains(re, "[]") && !strings.Contains(re, "[^]")
}

// substitution reads the two parts of s/…/…/ and gives what is behind them.
func substitution(s string) (rest string, ok bool) {
	if s == "" || strings.IndexByte(" \t\n\\;", s[0]) >= 0 || s[0] >= 0x80 {
		return "", false
	}
	delimiter, s := s[0], s[1:]
	for part := range 2 {
		i := 0
		for i < len(s) && s[i] != delimiter {
			switch {
			case s[i] == '\\':
				i++
			case s[i] == '\n':
				return "", false
			}
			i++
		}
		if i >= len(s) || part == 0 && !brackets(s[:i]) {
			return "", false
		}
		s = s[i+1:]
	}
	return s, true
}
