package expect

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

var randomSeed = flag.Uint64("random.seed", 1, "`seed` of what tests try at random; 0 is a new one")

// Rand returns the random numbers of a test.
func Rand(t testing.TB) *rand.Rand {
	chosen := *randomSeed
	if chosen == 0 {
		chosen = rand.Uint64()
	}
	t.Logf("repeat with -random.seed=%d", chosen)
	return rand.New(rand.NewPCG(chosen, 0))
}

// Property is rapid.Check with the seed of this package, unless the flag -rapid.seed gives another.
func Property(t *testing.T, holds func(*rapid.T)) {
	t.Helper()
	setSeed()
	rapid.Check(t, holds)
}

var setSeed = sync.OnceFunc(func() {
	if f := flag.Lookup("rapid.seed"); f.Value.String() == f.DefValue {
		_ = flag.Set(f.Name, fmt.Sprint(*randomSeed)) // it is a number
	}
})
