package wire

import "time"

// SetLoadStep and SetSilence are for a test binary's TestMain: nothing else runs then.
func SetLoadStep(d time.Duration) { loadStep = d }
func SetSilence(d time.Duration)  { silence = d }
