package resume

import (
	"fmt"
	"testing"
	"time"

	"github.com/matryer/is"
)

func TestOldestPointsAreForgotten(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var p Points
	begun := time.Now()
	for i := range maxPoints + 1 {
		p.Add("ses", fmt.Sprint(i), uint64(i), begun.Add(time.Duration(i)))
	}
	is.True(len(p.points) <= maxPoints)
	seq, known := p.Take("ses", fmt.Sprint(maxPoints))
	is.True(known)
	is.Equal(seq, uint64(maxPoints))
	_, known = p.Take("ses", fmt.Sprint(maxPoints))
	is.True(!known) // it was taken
	_, known = p.Take("ses", "0")
	is.True(!known)
}

func TestPointsAreForgottenAfterADay(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var p Points
	p.Add("ses", "topic", 7, time.Now().Add(-life))
	_, known := p.Take("ses", "topic")
	is.True(!known)
}
