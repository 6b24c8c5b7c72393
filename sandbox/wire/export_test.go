package wire

import (
	"testing"
	"time"
)

// SetSilence sets Silence. Only TestMain may call it.
func SetSilence(d time.Duration) { silence = d }

// SetLoadStep sets loadStep for a test that runs alone.
func SetLoadStep(t testing.TB, d time.Duration) {
	before := loadStep
	loadStep = d
	t.Cleanup(func() { loadStep = before })
}
