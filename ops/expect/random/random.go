// Package random decides what tests try at random. Each run tries the same, so that it does not depend on luck whether
// a change passes; -random.seed=0 tries something new, which "task fuzz" does.
package random

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

var seed = flag.Uint64("random.seed", 1, "`seed` of what tests try at random; 0 is a new one")

// Source returns the random numbers of a test.
func Source(t testing.TB) *rand.Rand {
	chosen := *seed
	if chosen == 0 {
		chosen = rand.Uint64()
	}
	t.Logf("repeat with -random.seed=%d", chosen)
	return rand.New(rand.NewPCG(chosen, 0))
}

// Check is rapid.Check with the seed of this package, unless the flag -rapid.seed gives another.
func Check(t *testing.T, holds func(*rapid.T)) {
	t.Helper()
	setSeed()
	rapid.Check(t, holds)
}

var setSeed = sync.OnceFunc(func() {
	if f := flag.Lookup("rapid.seed"); f.Value.String() == f.DefValue {
		_ = flag.Set(f.Name, fmt.Sprint(*seed)) // it is a number
	}
})
