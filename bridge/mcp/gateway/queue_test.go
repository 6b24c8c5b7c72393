package gateway

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/matryer/is"
)

func TestAServerCannotFillMemoryDuringAQuestion(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var q queue
	read := func(size int) error {
		n, err := io.Copy(io.Discard, queuedReader{io.NopCloser(strings.NewReader(strings.Repeat("x", size))), &q})
		is.True(err != nil || n == int64(size))
		return err
	}
	is.NoErr(read(3 * maxAnswer)) // without a question, messages are handled as they come
	for range 2 {
		q.begin()
		is.NoErr(read(maxAnswer / 2))
		q.begin() // a second question has no room of its own
		is.NoErr(read(maxAnswer / 2))
		is.True(errors.Is(read(1), errTooLarge))
		q.end()
		is.True(errors.Is(read(1), errTooLarge))
		q.end()
		is.NoErr(read(3 * maxAnswer))
	}
}
