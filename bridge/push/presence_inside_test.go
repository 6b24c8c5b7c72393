package push

import (
	"testing"
	"time"

	"github.com/matryer/is"
)

func TestAnEarlyReconnectIsNoDeparture(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	v, now, away := viewer{"ann", "c1"}, time.Now(), 15*time.Second
	var w withheldNotifications
	w.add(v, time.Time{})
	for _, step := range []struct {
		after   time.Duration
		present bool
		left    int
	}{
		{0, true, 0}, {5 * time.Second, false, 0}, {19 * time.Second, false, 0}, {19 * time.Second, true, 0},
		{21 * time.Second, false, 0}, {35 * time.Second, false, 0}, {36 * time.Second, false, 1}, {60 * time.Second, false, 0},
	} {
		is.Equal(len(w.left(now.Add(step.after), away, func(string, string) bool { return step.present })), step.left)
	}
}
