package policy

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

func TestPlainSedReadsScriptsAsSedDoes(t *testing.T) {
	for script, plain := range map[string]bool{
		"p": true, "1,5p": true, "$p": true, "/a/,/b/d": true, "1!d": true, "s/a/b/": true, "s|a/b|c|gI": true, `s/a\/b/c/2p`: true, "s/[a-z]/x/": true, "1d;$d\n/x/p": true, "5q": true, "0~3p": true, "": true,
		"w x": false, "s/a/b/w x": false, "s/a/b/e": false, "s/a/b/;w x": false, "e id": false, "r x": false, "R x": false, "W x": false, "{p}": false, "a x": false, "i x": false, "c x": false, "y/a/b/": false,
		"s/a/b": false, "s/[/]w x/b/": false, "/[/s,;]/w x,x,": false, "/[/s,a,]/w x,;p": false, "1,/[/s,a,]/w x,;p": false, "/[]/]p": false, "s\na\nb\n": false, "1": false, "b": false, ":a": false, "q5": false, `\,a,w x`: false, "#n": false, "s/a/b/ w x": false,
	} {
		t.Run(script, func(t *testing.T) { is.New(t).Equal(plainSed(script), plain) })
	}
}
