package main

import (
	"testing"

	"pocketcoder/ops/expect"
)

// Several of these tests count all chats and accounts, or look for the newest, so nothing else uses their system.
func TestOnAQuietSystem(t *testing.T) {
	expect.Long(t, "has many stages, and systems of its own")
	t.Parallel()
	p := startWithSSH(t, "--metrics", "127.0.0.1:0", "--push-allow-private")
	runStages(t, p, stage{"metrics say how the system is", metricsSayHowTheSystemIs},
		stage{"a browser shows notifications", notifiedInABrowser},
		stage{"an MCP server runs in the sandbox", callsServerInSandbox},
		stage{"a person decides about files that a command created", filesOfACommandAreKeptOrDeleted},
		stage{"a key lands in the viewer", sshKeyLandsInTheViewer},
		stage{"a chat that gets another owner closes its viewer and shells", newOwnerClosesViewerAndShells},
		stage{"a restored system shows the same chat and goes on", restoredSystemShowsTheSameChat},
		stage{"attach shows a running command as it runs", attachShowsARunningCommand})
}
