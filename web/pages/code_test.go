package pages_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/matryer/is"
	"pgregory.net/rapid"

	"pocketcoder/ops/expect"
	"pocketcoder/web/pages/visible"
)

func TestCodeIsSplitIntoTokens(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ language, text, want string }{
		{"go", "func f() { x := \"a\\\"b\" + 'c' // 1\n\treturn 12 }", "k:func  f() { x :=  s:\"a\\\"b\"  +  s:'c'   c:// 1 \n\t k:return   n:12  }"},
		{"go", "a `x\n\"y` /* \n */ b", "a  s:`x\n\"y`   c:/* \n */  b"},
		{"python", "if x: # don't\n  y", "k:if  x:  c:# don't \n  y"},
		{"sh", "echo don't $#x", "echo don't $#x"},
		{"sql", "SELECT a -- b", "k:SELECT  a  c:-- b"},
		{"html", "<!-- a --><b c=\"d\">", "c:<!-- a --> <b c= s:\"d\" >"},
		{"unknown", "if x", "if x"},
		{"go", "\"open\nfunc", "s:\"open \n k:func"},
	} {
		var got []string
		for _, token := range visible.Code(c.language, c.text) {
			if token.Class != "" {
				token.Text = token.Class + ":" + token.Text
			}
			got = append(got, token.Text)
		}
		is.New(t).Equal(strings.Join(got, " "), c.want)
	}
}

func TestCodeKeepsEveryCharacter(t *testing.T) {
	t.Parallel()
	expect.Property(t, func(t *rapid.T) {
		name := rapid.SampledFrom([]string{"go", "py", "sql", "html", "json", ""}).Draw(t, "language")
		text := rapid.StringOf(rapid.SampledFrom([]rune("ab1_ \n\t\"'`\\/*#-<>!é{}"))).Draw(t, "text")
		var whole strings.Builder
		for _, token := range visible.Code(name, text) {
			if token.Text == "" || !utf8.ValidString(token.Text) {
				t.Fatalf("token %q of %q", token, text)
			}
			whole.WriteString(token.Text)
		}
		if whole.String() != text && text != "" {
			t.Fatalf("%q became %q", text, whole.String())
		}
	})
}

func TestTheLanguageOfAFileIsThatOfItsName(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{"a/b.go": "go", "Makefile": "makefile", "x/Dockerfile": "dockerfile",
		"a.TS": "ts", "a": "", "a.unknown": "", "": ""} {
		is.New(t).Equal(visible.LanguageOf(file), want)
	}
}
