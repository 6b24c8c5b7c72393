package realtime

import (
	"fmt"
	"testing"
	"time"

	"github.com/matryer/is"
)

func TestOldestPointsAreForgotten(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var p resumePoints
	begun := time.Now()
	for i := range maxResumePoints + 1 {
		p.Add("ses", fmt.Sprint(i), uint64(i), begun.Add(time.Duration(i)))
	}
	is.True(len(p.points) <= maxResumePoints)
	seq, known := p.Take("ses", fmt.Sprint(maxResumePoints))
	is.True(known)
	is.Equal(seq, uint64(maxResumePoints))
	_, known = p.Take("ses", fmt.Sprint(maxResumePoints))
	is.True(!known) // it was taken
	_, known = p.Take("ses", "0")
	is.True(!known)
}

func TestPointsAreForgottenAfterADay(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var p resumePoints
	p.Add("ses", "topic", 7, time.Now().Add(-resumePointLife))
	_, known := p.Take("ses", "topic")
	is.True(!known)
}
