package opencode_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode/tail"
)

func TestTheEndOfAnOutputIsItsLastTenLines(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var out tail.Buffer
	is.Equal(out.String(), "")
	for i := range 12 {
		fmt.Fprintf(&out, "line %d\n", i)
	}
	is.Equal(strings.Split(out.String(), "\n")[0], "line 2")
	is.True(strings.HasSuffix(out.String(), "line 11"))
}
