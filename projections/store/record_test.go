package store

import (
	"testing"

	"github.com/matryer/is"
)

func TestUpdatedAlwaysMovesForward(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	r := Record{}
	for _, step := range []struct{ at, want string }{
		{"2026-01-02 03:04:05.000Z", "2026-01-02 03:04:05.000Z"},
		{"2026-01-02 03:04:05.000Z", "2026-01-02 03:04:05.001Z"}, // the same millisecond
		{"2026-01-02 03:04:04.000Z", "2026-01-02 03:04:05.002Z"}, // a clock that went back
		{"2026-01-02 03:04:06.500Z", "2026-01-02 03:04:06.500Z"},
	} {
		r.stamp(step.at, 1)
		is.Equal(r.Updated, step.want)
		is.Equal(r.Created, "2026-01-02 03:04:05.000Z")
	}
}
