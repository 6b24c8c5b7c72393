package query

import (
	"html"
	"strconv"
	"strings"
	"unicode"

	"pocketcoder/web/query/schema"
)

// excerpt removes the HTML from a text and cuts the text to a number of runes.
type excerpt struct {
	runes    int
	ellipsis bool
}

func parseExcerpt(modifier string) (*excerpt, error) {
	name, args, ok := strings.Cut(strings.TrimSuffix(strings.TrimSpace(modifier), ")"), "(")
	if name != "excerpt" || !ok {
		return nil, schema.NewInvalid("fields", "unknown_modifier", "unknown modifier %q", modifier)
	}
	length, ellipsis, _ := strings.Cut(args, ",")
	runes, err := strconv.Atoi(strings.TrimSpace(length))
	if err != nil || runes <= 0 {
		return nil, schema.NewInvalid("fields", "invalid_arguments", "excerpt takes a length above 0, got %q", length)
	}
	e := &excerpt{runes: runes}
	if ellipsis = strings.TrimSpace(ellipsis); ellipsis != "" {
		if e.ellipsis, err = strconv.ParseBool(ellipsis); err != nil {
			return nil, schema.NewInvalid("fields", "invalid_arguments", "excerpt's second argument is true or false, got %q",
				ellipsis)
		}
	}
	return e, nil
}

func (e *excerpt) of(s string) string {
	runes := []rune(strings.Join(strings.FieldsFunc(withoutTags(s), unicode.IsSpace), " "))
	if len(runes) <= e.runes {
		return string(runes)
	}
	s = strings.TrimSpace(string(runes[:e.runes]))
	if e.ellipsis {
		s += "..."
	}
	return s
}

// hidden are elements whose content is not shown. inline are elements that do not separate words.
var (
	hidden = words("head style script iframe embed applet object svg img picture dialog template button form textarea input select option")
	inline = words("a abbr acronym b bdo big br button cite code em i label q small span strong strike sub sup time")
)

func words(list string) map[string]bool {
	set := map[string]bool{}
	for word := range strings.FieldsSeq(list) {
		set[word] = true
	}
	return set
}

// withoutTags returns the text of HTML.
func withoutTags(s string) string {
	var b strings.Builder
	for s != "" {
		text, rest, found := strings.Cut(s, "<")
		b.WriteString(html.UnescapeString(text))
		if !found {
			break
		}
		s = afterTag(&b, rest)
	}
	return b.String()
}

// afterTag skips the tag at the start of rest. It also skips the content of an element that is not shown.
func afterTag(b *strings.Builder, rest string) string {
	name := strings.TrimPrefix(rest, "/")
	if comment, ok := strings.CutPrefix(rest, "!--"); ok {
		_, rest, _ = strings.Cut(comment, "-->")
		return rest
	}
	if name == "" || name[0] != '!' && !unicode.IsLetter(rune(name[0])) { // not a tag: a < b
		b.WriteByte('<')
		return rest
	}
	_, after, _ := strings.Cut(rest, ">")
	name = strings.ToLower(name[:strings.IndexFunc(name+">",
		func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })])
	if !inline[name] {
		b.WriteByte(' ')
	}
	if void := name == "img" || name == "input" || name == "embed"; hidden[name] && !void && rest[0] != '/' {
		end := strings.Index(strings.ToLower(after), "</"+name)
		if end < 0 {
			return ""
		}
		_, after, _ = strings.Cut(after[end:], ">")
	}
	return after
}
