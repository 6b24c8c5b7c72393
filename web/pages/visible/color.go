package visible

import (
	"strconv"
	"strings"
)

// Colored splits what a command printed into tokens whose classes are its colours, and leaves out the sequences that
// set them (SGR, ECMA-48). All other control sequences stay in the text. Where a carriage return began a line anew, as
// a progress bar does, only the carriage return and the last text of the line stay.
//
// No colour hides a text: the classes of colours are legible on every background, backgrounds differ little from the
// page, and concealed text is shown.
func Colored(text string) []Token {
	var c coloredText
	for len(text) > 0 {
		if params, n := selectGraphicRendition(text); n > 0 {
			c.flush()
			c.look.apply(params)
			text = text[n:]
			continue
		}
		switch text[0] {
		case '\r':
			c.returned = true
		case '\n':
			c.endLine()
		default:
			c.write(text[0])
		}
		text = text[1:]
	}
	c.flush()
	return c.all
}

// coloredText is a text that is split into tokens.
type coloredText struct {
	all      []Token
	text     strings.Builder // that is in no token yet
	look     textStyle
	line     int  // number of tokens before the line
	returned bool // a carriage return was the last character of the line
}

func (c *coloredText) flush() {
	if c.text.Len() > 0 {
		c.all = append(c.all, Token{c.look.class(), c.text.String()})
		c.text.Reset()
	}
}

func (c *coloredText) write(b byte) {
	if c.returned {
		c.returned = false
		if c.text.Len() > 0 || len(c.all) > c.line {
			c.all = c.all[:c.line]
			c.text.Reset()
			c.text.WriteByte('\r')
		}
	}
	c.text.WriteByte(b)
}

func (c *coloredText) endLine() {
	c.returned = false
	c.text.WriteByte('\n')
	c.flush()
	c.line = len(c.all)
}

// selectGraphicRendition returns the parameters and the length of the sequence that a text begins with, 0 for another
// text.
func selectGraphicRendition(text string) (params string, n int) {
	rest, found := strings.CutPrefix(text, "\x1b[")
	if !found {
		return "", 0
	}
	end := strings.IndexFunc(rest, func(r rune) bool { return !(r >= '0' && r <= ';') }) // digits, ":" and ";"
	if end < 0 || rest[end] != 'm' {
		return "", 0
	}
	return rest[:end], len("\x1b[") + end + len("m")
}

// textStyle is the style in which a terminal shows the next characters.
type textStyle struct {
	bold, dim, italic, underline, struck, inverse, marked bool
	color                                                 int // 1 + one of the 16 of a terminal; 0 for that of the page
}

// colors are the classes of the first 8 colours of a terminal. The bright ones have the same.
var colors = [8]string{"black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"}

func (l textStyle) class() string {
	var all []string
	for _, one := range []struct {
		set  bool
		name string
	}{{l.bold, "bold"}, {l.dim, "dim"}, {l.italic, "italic"}, {l.underline, "underline"}, {l.struck, "struck"},
		{l.inverse != l.marked, "marked"}} {
		if one.set {
			all = append(all, one.name)
		}
	}
	if l.color > 0 {
		all = append(all, colors[(l.color-1)%8])
	}
	return strings.Join(all, " ")
}

// apply changes the look as the parameters of a sequence say. It ignores those that it does not know.
func (l *textStyle) apply(params string) {
	all := strings.FieldsFunc(params+";", func(r rune) bool { return r == ';' || r == ':' })
	if len(all) == 0 {
		*l = textStyle{}
	}
	for i := 0; i < len(all); i++ {
		n, _ := strconv.Atoi(all[i]) // digits
		switch {
		case n == 38 || n == 48:
			color, used := extendedColor(all[i+1:])
			if i += used; n == 38 {
				l.color = color
			} else {
				l.marked = true
			}
		case n >= 30 && n <= 37:
			l.color = 1 + n - 30
		case n >= 90 && n <= 97:
			l.color = 1 + 8 + n - 90
		case n >= 40 && n <= 47 || n >= 100 && n <= 107:
			l.marked = true
		default:
			l.set(n)
		}
	}
}

// set applies a parameter that is no colour.
func (l *textStyle) set(n int) {
	switch n {
	case 0:
		*l = textStyle{}
	case 1:
		l.bold = true
	case 2:
		l.dim = true
	case 3:
		l.italic = true
	case 4, 21:
		l.underline = true
	case 7:
		l.inverse = true
	case 9:
		l.struck = true
	case 22:
		l.bold, l.dim = false, false
	case 23:
		l.italic = false
	case 24:
		l.underline = false
	case 27:
		l.inverse = false
	case 29:
		l.struck = false
	case 39:
		l.color = 0
	case 49:
		l.marked = false
	}
}

// extendedColor returns 1 + the colour nearest to one of 256, or of 24 bits, and how many parameters name it.
func extendedColor(params []string) (color, used int) {
	number := func(i int) int {
		n, _ := strconv.Atoi(params[i])
		return min(n, 255)
	}
	switch {
	case len(params) >= 2 && params[0] == "5":
		n := number(1)
		switch {
		case n < 16:
			return 1 + n, 2
		case n >= 232: // greys
			return nearest((n-232)*255/23, (n-232)*255/23, (n-232)*255/23), 2
		}
		n -= 16
		return nearest(n/36*51, n/6%6*51, n%6*51), 2
	case len(params) >= 4 && params[0] == "2":
		return nearest(number(1), number(2), number(3)), 4
	}
	return 0, len(params)
}

// nearest returns 1 + the colour of a terminal that has the same components.
func nearest(red, green, blue int) int {
	most := max(red, green, blue)
	has := func(component, bit int) int {
		if most >= 64 && component*3 > most*2 {
			return bit
		}
		return 0
	}
	return 1 + (has(red, 1) | has(green, 2) | has(blue, 4))
}
