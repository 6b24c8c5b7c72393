package program

import (
	"testing"

	"github.com/matryer/is"
)

// What is always asked has no options a rule could reach: a program in both tables would be described for nothing.
func TestAProgramIsDescribedOnce(t *testing.T) {
	is := is.New(t)
	for name, why := range mustAsk {
		_, program := programs[name]
		_, tool := tools[name]
		is.True(!program && !tool)                                          // name
		is.True(why != "" && plainName.MatchString(name) || len(name) <= 2) // name
	}
	for name := range tools {
		is.True(plainName.MatchString(name))
	}
}

func TestPlainSedKnowsASmallSetOfScripts(t *testing.T) {
	for _, script := range []string{
		"p", "1,5p", "$p", "/a/,/b/d", "1!d", "2,$ ! d", "s/a/b/", "s|a/b|c|gI", `s/a\/b/c/2p`, "1d;$d", "5q", "0~3p", "",
		"1,+3p", "/^func main/,/^}/p", "s/(a|b)+$/<&>/;$!d ; p", "/x/s/a//",
		"s,a,b,;s#a#b#;s:a:b:;s@a@b@;s!a!b!;s%a%b%;s_a_b_",
	} {
		is.New(t).True(plainSed().MatchString(script)) // script
	}
	for _, script := range []string{
		"w x", "s/a/b/w x", "s/a/b/e", "s/a/b/;w x", "e id", "r x", "R x", "W x", "{p}", "a x", "i x", "c x", "y/a/b/",
		"s/a/b", "s/[/]w x/b/", "/[/s,;]/w x,x,", "/[/s,a,]/w x,;p",
		"1,/[/s,a,]/w x,;p", "/[]/]p", "s\na\nb\n", "1", "b", ":a", "q5", `\,a,w x`, "#n", "s/a/b/ w x", "s/]a[/]/;/e#x/p",
		"s/[a-z]/x/", "s/a/[b]/", "/[a]/p", "s/a\nb/c/", "s/a/b\nw x/",
		"p\np", "s/a/b/m", "s;a;b;", "s a b ", "n", "x", "=", "l", "z", "F", "D", "1,2,3p", "p}", "p#", `s/a/b\`, `/a\/p`,
		"s/a/b/g w", "s/a/\\\n/", "1i\\", "$!N;w x", "v", "0,/x/e",
	} {
		if plainSed().MatchString(script) {
			t.Errorf("%q is no plain script", script)
		}
	}
}
