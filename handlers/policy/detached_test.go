package policy_test

import (
	"testing"

	"github.com/matryer/is"

	policybash "pocketcoder/handlers/policy/bash"
)

func TestDetachedIsOnlyWhatBeginsWithTheWord(t *testing.T) {
	t.Parallel()
	for command, want := range map[string]string{
		"detach npm run dev":      "npm run dev",
		"detach  a\nb":            " a\nb",
		"detach a && b > log":     "a && b > log",
		"detach detach a":         "detach a",
		"detach":                  "",
		"detach ":                 "",
		"detach \n\t":             "",
		"detach\ta":               "",
		" detach a":               "",
		"detached a":              "",
		"cd x && detach a":        "",
		`"detach" a`:              "",
		"true; detach a":          "",
		"detach\\\n a":            "",
		"echo detach npm run dev": "",
	} {
		is := is.New(t)
		rest, ok := policybash.Detached(command)
		is.Equal(ok, want != "") // of the command
		if ok {
			is.Equal(rest, want)
		}
	}
}
