package wire

import (
	"testing"
	"time"
)

var OneLine = oneLine

// SetSilence is for a test binary's TestMain: nothing else runs then.
func SetSilence(d time.Duration) { silence = d }

// SetLoadStep is for a test that runs beside no other: what is served then keeps it.
func SetLoadStep(t testing.TB, d time.Duration) {
	before := loadStep
	loadStep = d
	t.Cleanup(func() { loadStep = before })
}
