package render

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"pocketcoder/handlers/policy/display"
)

// prose breaks text that comes in pieces into lines of a width, and styles its markdown: headings, lists, bold, code. A
// word is returned once its end is known. The text given to it is safe already.
type prose struct {
	styled  bool
	markup  bool // the text is markdown
	base    Style
	width   int // of a line; 0 is any
	column  int
	word    string // begun, as it was given
	spaces  int    // before word
	begun   bool   // a word of the line was returned
	hanging int    // columns before the further lines of a list's item
	verbatim,
	fence, heading, quote, bold, code bool
}

// write returns what can be shown with more text.
func (p *prose) write(text string) string {
	if p.width == 0 && !p.styled {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch r {
		case '\n':
			p.endWord(&b, true)
			b.WriteByte('\n')
			p.endLine()
		case ' ':
			p.endWord(&b, false)
			p.spaces++
		default:
			p.word += string(r)
		}
	}
	return b.String()
}

// flush returns the word that was begun.
func (p *prose) flush() string {
	var b strings.Builder
	p.endWord(&b, true)
	return b.String()
}

// interrupt notes that something else was printed: what follows begins a line.
func (p *prose) interrupt() { p.column = 0 }

func (p *prose) endLine() {
	p.column, p.spaces, p.begun, p.hanging = 0, 0, false, 0
	p.verbatim, p.heading, p.quote, p.bold, p.code = false, false, false, false, false
}

// endWord adds the word that has ended: at the end of its line, or before a space.
func (p *prose) endWord(b *strings.Builder, last bool) {
	word := p.word
	if p.word = ""; word == "" {
		return
	}
	if !p.begun {
		p.begun = true
		if word = p.beginLine(word, last); word == "" {
			p.spaces = -1 // the one that follows is not shown either
			return
		}
	}
	shown, wide := p.inline(word)
	if p.width > 0 && !p.verbatim && p.column > p.hanging && p.column+p.spaces+wide > p.width {
		b.WriteString("\n" + strings.Repeat(" ", p.hanging))
		p.column, p.spaces = p.hanging, 0
	}
	b.WriteString(strings.Repeat(" ", p.spaces) + shown)
	p.column += p.spaces + wide
	p.spaces = 0
}

// itemNumber is the mark of an item in a numbered list.
var itemNumber = regexp.MustCompile(`^\d{1,3}[.)]$`)

// beginLine takes a line's first word, which may say what the line is, and returns what is shown of it.
func (p *prose) beginLine(word string, last bool) string {
	fence := strings.HasPrefix(word, "```") || strings.HasPrefix(word, "~~~")
	switch {
	case !p.markup:
	case fence:
		p.fence, p.verbatim, p.quote = !p.fence, true, true
	case p.fence:
		p.verbatim = true
	case strings.HasPrefix(word, "|"):
		p.verbatim = true
	case last:
	case strings.Trim(word, "#") == "" && len(word) <= 6:
		if p.heading = true; p.styled {
			return ""
		}
	case word == "-", word == "*", word == "+":
		p.hanging = p.spaces + 2
		if p.styled {
			return "•"
		}
	case itemNumber.MatchString(word):
		p.hanging = p.spaces + len(word) + 1
	case strings.Trim(word, ">") == "":
		p.quote, p.hanging = true, len(word)+1
	}
	return word
}

// inline returns a word with its styles, and its width.
func (p *prose) inline(word string) (shown string, wide int) {
	if !p.styled {
		return word, display.TextWidth(word)
	}
	if !p.markup || p.verbatim {
		return p.paint(word), display.TextWidth(word)
	}
	var b strings.Builder
	begin := 0
	add := func(to int) {
		b.WriteString(p.paint(word[begin:to]))
		wide += display.TextWidth(word[begin:to])
	}
	for i := 0; i < len(word); i++ {
		switch {
		case word[i] == '`' && !p.code:
			add(i)
			begin, p.code = i, true
		case word[i] == '`':
			add(i + 1)
			begin, p.code = i+1, false
		case !p.code && strings.HasPrefix(word[i:], "**") && p.turnsBold(word, i):
			add(i)
			begin, p.bold = i+2, !p.bold
			i++
		}
	}
	add(len(word))
	return b.String(), wide
}

// turnsBold reports whether the two stars at word[i] begin or end bold text.
func (p *prose) turnsBold(word string, i int) bool {
	before, _ := utf8.DecodeLastRuneInString(word[:i])
	after, _ := utf8.DecodeRuneInString(word[i+2:])
	if p.bold {
		return i > 0 || after == utf8.RuneError || unicode.IsPunct(after)
	}
	return i+2 < len(word) && (i == 0 || unicode.IsPunct(before))
}

func (p *prose) paint(text string) string {
	st := p.base
	switch {
	case text == "":
		return ""
	case p.code, p.fence && !p.quote:
		st = Cyan
	case p.quote:
		st = Dim
	case p.heading, p.bold:
		st = Bold
	}
	if st == Plain {
		return text
	}
	return string(st) + text + "\x1b[0m"
}

// wrapped breaks a text at spaces into lines of a width; 0 is any.
func wrapped(text string, width int) string {
	p := prose{width: width}
	return p.write(text) + p.flush()
}
