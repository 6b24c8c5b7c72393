package limit

import (
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/sandbox/wire"
)

func TestNoLimitIsExceededAfterTheEnd(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	l := Limits{CPUTime: time.Second}
	is.Equal(l.Exceeded(Usage{CPUTime: time.Minute, Processes: 1}), wire.CPUTime)
	is.Equal(l.Exceeded(Usage{CPUTime: time.Minute}), wire.Exited)
}
