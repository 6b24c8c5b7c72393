package visible

import (
	"cmp"
	"path"
	"slices"
	"strings"
)

// Token is a run of source code. Its class is "k" for a keyword, "s" for a string, "n" for a number, "c" for a comment
// and empty for all else.
type Token struct{ Class, Text string }

// language is what a reader distinguishes in source code. The scanner knows no grammar: it takes time in proportion to
// the text, whatever the text is. (Measured on 13 KB: a library with the grammars of Pygments takes 60 to 190 ms,
// which a chat of 200 messages cannot afford.)
type language struct {
	comments []string // that end with the line
	block    [2]string
	quotes   string // a string ends with its line
	raw      string // quotes of strings that go over lines
	keywords []string
}

var (
	cLike = language{
		comments: []string{"//"}, block: [2]string{"/*", "*/"}, quotes: `"'`, raw: "`",
		keywords: strings.Fields(`
			abstract as async await bool boolean break case catch chan char class const continue crate default defer delete
			do double else enum export extends extern false final finally float fn for foreach from fun func function go
			goto if impl implements import in instanceof int interface let long loop map match mod module mut namespace new
			nil null of override package private protected pub public range readonly ref return select self short sizeof
			static string struct super switch template this throw throws trait true try type typedef typeof undefined union
			unsafe unsigned use using val var virtual void volatile when where while yield
		`),
	}
	script = language{
		comments: []string{"#"}, quotes: `"'`,
		keywords: strings.Fields(`
			and as assert async await begin break case class continue def del do done elif else elsif end ensure esac except
			exec exit export False false fi finally for from function global if import in is lambda local module next nil
			None nonlocal not null or pass raise require rescue return self set shift source then True true try unless until
			unset while with yield
		`),
	}
	sql = language{
		comments: []string{"--"}, block: [2]string{"/*", "*/"}, quotes: `"'`,
		keywords: strings.Fields(`
			add all alter and as asc begin between by case check column commit constraint create default delete desc
			distinct drop else end exists foreign from group having if in index inner insert into is join key left like
			limit not null offset on or order outer primary references right rollback select set table then trigger union
			unique update using values view when where with
		`),
	}
	markup = language{block: [2]string{"<!--", "-->"}, quotes: `"`}
	data   = language{quotes: `"`, keywords: []string{"true", "false", "null"}}
)

// languages are the names of languages and the endings of files.
var languages = func() map[string]*language {
	all := map[string]*language{}
	for names, l := range map[string]*language{
		"go js jsx mjs cjs javascript ts tsx typescript java c h cc cpp c++ hpp cs csharp rs rust kt kotlin swift scala php dart zig css scss less proto templ": &cLike,
		"py python sh bash zsh shell rb ruby yaml yml toml ini conf make makefile mk dockerfile pl perl r ex exs tf hcl":                                        &script,
		"sql": &sql, "html htm xml svg vue svelte": &markup, "json jsonc": &data,
	} {
		for _, name := range strings.Fields(names) {
			all[name] = l
		}
	}
	return all
}()

// LanguageOf returns the name of a file's language, "" for one that Code does not know.
func LanguageOf(file string) string {
	name := strings.ToLower(path.Base(file))
	if ending := strings.TrimPrefix(path.Ext(name), "."); languages[ending] != nil {
		return ending
	}
	if languages[name] != nil { // Makefile, Dockerfile
		return name
	}
	return ""
}

// Code splits source code into tokens. Code of an unknown language is one token.
func Code(name, text string) (all []Token) {
	l := cmp.Or(languages[strings.ToLower(name)], &language{})
	plain := 0 // where the text begins that is in no token yet
	for at := 0; at < len(text); {
		before := byte('\n')
		if at > 0 {
			before = text[at-1]
		}
		class, n := l.token(text[at:], before)
		if class == "" {
			at += n
			continue
		}
		if at > plain {
			all = append(all, Token{"", text[plain:at]})
		}
		all = append(all, Token{class, text[at : at+n]})
		at += n
		plain = at
	}
	if plain < len(text) {
		all = append(all, Token{"", text[plain:]})
	}
	return all
}

// token returns the class and the length of what a text begins with. before is the byte before the text.
func (l *language) token(text string, before byte) (class string, n int) {
	c := text[0]
	begins := func(prefix string) bool {
		return strings.HasPrefix(text, prefix) && (c != '#' || strings.IndexByte(" \t\n;", before) >= 0) // not $#
	}
	switch {
	case l.block[0] != "" && strings.HasPrefix(text, l.block[0]):
		return "c", through(text, len(l.block[0]), l.block[1])
	case slices.ContainsFunc(l.comments, begins):
		return "c", upToLineEnd(text)
	case strings.IndexByte(l.raw, c) >= 0:
		return "s", through(text, 1, string(c))
	case strings.IndexByte(l.quotes, c) >= 0 && !(c == '\'' && isWord(before)): // don't
		return "s", quoted(text)
	case !isWord(c):
		return "", 1
	}
	for n = 1; n < len(text) && isWord(text[n]); n++ {
	}
	switch word := text[:n]; {
	case c >= '0' && c <= '9':
		return "n", n
	case slices.Contains(l.keywords, word) || l == &sql && slices.Contains(l.keywords, strings.ToLower(word)):
		return "k", n
	}
	return "", n
}

// quoted returns the length of a string that ends on its line, up to the line's end if it does not end.
func quoted(text string) int {
	for i := 1; i < len(text) && text[i] != '\n'; i++ {
		switch text[i] {
		case '\\':
			i++
		case text[0]:
			return i + 1
		}
	}
	return upToLineEnd(text)
}

// through returns the length of a text up to the end of a mark behind a position, or that of the text.
func through(text string, from int, mark string) int {
	if i := strings.Index(text[from:], mark); i >= 0 {
		return from + i + len(mark)
	}
	return len(text)
}

func upToLineEnd(text string) int {
	if i := strings.IndexByte(text, '\n'); i >= 0 {
		return i
	}
	return len(text)
}

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}
