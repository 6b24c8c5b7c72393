package ports

import (
	"fmt"
	"testing"
	"time"

	"github.com/matryer/is"
)

func TestNoAccountTakesTheGrantsOfTheOthers(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var all grants
	given := func(account string, within time.Duration) string {
		return all.add(portAccess{account: account, expires: time.Now().Add(within)})
	}
	isValid := func(secret string) bool { _, ok := all.get(secret); return ok }
	first, second := given("eve", time.Hour), given("eve", time.Hour+time.Minute)
	others := given("ann", time.Minute)
	for i := range 2 * maxGrants {
		last := given("eve", 2*time.Hour+time.Duration(i)*time.Second)
		is.True(isValid(last))
		is.Equal(isValid(first), i+3 <= maxGrants) // the one that expires first makes room, and only it
		is.Equal(isValid(second), i+2 <= maxGrants)
	}
	is.Equal(len(all.by), maxGrants+1)
	is.True(isValid(others))
	for i := range maxGrants {
		given(fmt.Sprint("user", i), -time.Second)
	}
	given("eve", time.Hour)
	is.Equal(len(all.by), maxGrants+1) // those that have expired are deleted
}
