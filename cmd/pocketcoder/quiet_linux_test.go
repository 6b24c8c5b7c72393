package main

import "testing"

// These tests count all chats and accounts, or look for the newest, so nothing else uses their system.
func TestOnAQuietSystem(t *testing.T) {
	t.Parallel()
	p := startInside(t, "--metrics", "127.0.0.1:0", "--push-allow-private")
	runStages(t, p, stage{"metrics say how the system is", metricsSayHowTheSystemIs},
		stage{"devices are added, tested and removed", devicesAreAddedTestedAndRemoved},
		stage{"a browser shows notifications", notifiedInABrowser}, // before a restart changes the port
		stage{"a restored system shows the same chat and goes on", restoredSystemShowsTheSameChat},
		stage{"attach shows a running command as it runs", attachShowsARunningCommand})
}
