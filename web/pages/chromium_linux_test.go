package pages_test

import (
	"os"
	"testing"

	"pocketcoder/web/chromiumtest"
)

// chromium is the Chromium of all tests.
var chromium chromiumtest.Browser

func TestMain(m *testing.M) {
	code := m.Run()
	chromium.Close()
	os.Exit(code)
}
