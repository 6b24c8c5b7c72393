package events

import (
	"strings"
	"testing"

	"github.com/matryer/is"
)

func TestLevelsCountsArraysAndObjectsOutsideTexts(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	for value, want := range map[string]int{
		`1`: 0, `"[[["`: 0, `[]`: 1, ` { } `: 1, `[[],[[]]]`: 3, `{"a":[{"b":1}],"c":2}`: 3,
		`{"[\"{[":"\\","x":["\\\"]]["]}`:                      2,
		strings.Repeat("[", 9000) + strings.Repeat("]", 9000): 9000,
	} {
		is.Equal(Levels([]byte(value)), want) // value
	}
}
