package install

import (
	"fmt"
	"strings"
	"testing"

	"github.com/matryer/is"
)

func TestTheEndOfAnOutputIsItsLastTenLines(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var out OutputTail
	is.Equal(out.String(), "")
	for i := range 12 {
		fmt.Fprintf(&out, "line %d\n", i)
	}
	is.Equal(strings.Split(out.String(), "\n")[0], "line 2")
	is.True(strings.HasSuffix(out.String(), "line 11"))
}
