package render

import (
	"bytes"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/cmd/cmdtest"
	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/ops/expect"
)

// shown returns the output of prose for a text in pieces of at most n bytes. Styles are shown as <b>, <c>, <d>.
func shown(p prose, text string, n int) string {
	p.markup = true
	var b strings.Builder
	for len(text) > 0 {
		piece := text[:min(n, len(text))]
		for !strings.HasPrefix(strings.ToValidUTF8(piece, "\xff"), piece) ||
			strings.ContainsRune(strings.ToValidUTF8(piece, "\x00"), 0) {
			piece = text[:len(piece)+1]
		}
		b.WriteString(p.write(piece))
		text = text[len(piece):]
	}
	b.WriteString(p.flush())
	return strings.NewReplacer(string(Bold), "<b>", string(Dim), "<d>", string(Cyan), "<c>", "\x1b[0m",
		"</>").Replace(b.String())
}

func TestProseIsWrappedAtSpaces(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"one two three four five", "one two\nthree four\nfive"},
		{"one two three\nfour", "one two\nthree\nfour"},
		{"a-word-that-is-too-long for it", "a-word-that-is-too-long\nfor it"},
		{"- one two three four", "- one two\n  three\n  four"},
		{"12. one two three", "12. one\n    two\n    three"},
		{"  - one two three", "  - one\n    two\n    three"},
		{"```\none two three four five\n```", "```\none two three four five\n```"},
		{"| one | two | three | four |", "| one | two | three | four |"},
		{"日本 日本 日本", "日本 日本\n日本"},
		{"ends with a space ", "ends with\na space"},
		{"\n\nblank\n\nlines", "\n\nblank\n\nlines"},
	} {
		for n := range 6 {
			is.New(t).Equal(shown(prose{width: 10}, c.text, n+1), c.want) // whatever the pieces
		}
	}
}

func TestMarkdownIsStyledLightly(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"# A heading\nbody", "<b>A</> <b>heading</>\nbody"},
		{"#hashtag", "#hashtag"},
		{"**bold words** and plain", "<b>bold</> <b>words</> and plain"},
		{"a **bold**, too", "a <b>bold</>, too"},
		{"2**3 and **", "2**3 and **"},
		{"call `go test ./...` now", "call <c>`go</> <c>test</> <c>./...`</> now"},
		{"`**` is not bold", "<c>`**`</> is not bold"},
		{"* item\n- item", "• item\n• item"},
		{"> quoted words", "<d>></> <d>quoted</> <d>words</>"},
		{"```go\nx := **p\n```\nafter", "<d>```go</>\n<c>x</> <c>:=</> <c>**p</>\n<d>```</>\nafter"},
		{"an unclosed ` is over\nwith the line", "an unclosed <c>`</> <c>is</> <c>over</>\nwith the line"},
	} {
		for n := range 6 {
			is.New(t).Equal(shown(prose{styled: true}, c.text, n+1), c.want) // whatever the pieces
		}
	}
}

func TestProseWithoutATerminalIsUnchanged(t *testing.T) {
	is := is.New(t)
	const text = "# A **heading** that is long, `code`\n* item  \n"
	is.Equal(shown(prose{}, text, 3), text)
}

func TestLongOutputIsFolded(t *testing.T) {
	const limit = 20 // lines
	is := is.New(t)
	var all strings.Builder
	for i := range 400 {
		all.WriteString(strings.Repeat("x", i%7) + "\n")
	}
	story := func(lines int, live bool) string {
		text := strings.Join(strings.SplitAfter(all.String(), "\n")[:lines], "")
		var out bytes.Buffer
		r := New(&Screen{Out: &out})
		r.Fold = limit
		r.Event(cmdtest.Own(t, 1, "engine:local", events.ExecRequested{Exec: "x1", Command: "c"}))
		for from := 0; live && from < len(text); from += 9 {
			to := min(from+9, len(text))
			r.Fragment(log.Delta{Subject: "delta.exec.chat1.x1", Type: log.ExecOutput, Stream: "stdout", Offset: int64(from),
				Data: []byte(text[from:to])})
		}
		r.Event(cmdtest.Own(t, 2, "sandbox", events.ExecFinished{Exec: "x1",
			Stdout: events.Output{Bytes: int64(len(text)), Text: text}}))
		return out.String()
	}
	for _, live := range []bool{false, true} {
		got := story(400, live)
		expect.Contains(t, got, "\n  … 372 lines (pocketcoder sandbox logs x1)\n")
		is.Equal(strings.Count(got, "  │ "), limit+foldedTail)
		is.True(strings.HasSuffix(got, "  │ xxx\n  │ xxxx\n  │ xxxxx\n  │ xxxxxx\n  │ \n  └ exit 0, 0s\n") ||
			strings.Contains(got, "  └ exit 0, 0s\n"))
		is.Equal(strings.Count(story(limit+foldedTail, live), "…"), 0) // it fits
	}
}
