package push

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of what a notification shows, in characters.
const (
	maxTitle = 100
	maxShown = 200 // of what is asked, and of why
)

// shown gives a text as one line without secrets, in which every character that would do something else than appear appears as
// a sign for itself, and whether that is all of it: at most so many characters are.
func (p *Push) shown(text string, most int) (line string, whole bool) {
	clean := string(p.Log.Redactor().Bytes([]byte(text))) // before anything is cut off: half a secret would pass
	var b strings.Builder
	n := 0
	for _, r := range strings.ToValidUTF8(clean, "\uFFFD") {
		if n++; n > most {
			return b.String() + "…", false
		}
		b.WriteString(visible(r))
	}
	return b.String(), clean == text && utf8.ValidString(text)
}

// visible gives C0 controls as Unicode's pictures of them, and whatever else has no picture of its own by its number.
func visible(r rune) string {
	switch {
	case r < ' ':
		return string('␀' + r)
	case r == 0x7f:
		return "␡"
	case r != ' ' && (!unicode.IsGraphic(r) || unicode.In(r, unseen...)):
		return fmt.Sprintf("<U+%04X>", r)
	}
	return string(r)
}

// unseen are characters that Go calls graphic and that nobody sees, or takes for a blank.
var unseen = []*unicode.RangeTable{
	unicode.Zs, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point,
	{R16: []unicode.Range16{{Lo: 0x2800, Hi: 0x2800, Stride: 1}}}, // the blank of Braille
}
