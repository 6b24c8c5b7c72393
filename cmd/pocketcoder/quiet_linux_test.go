package main

import (
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
)

// Several of these tests count all chats and accounts, or look for the newest, so nothing else uses their system.
func TestOnAQuietSystem(t *testing.T) {
	t.Parallel()
	p := startWithSSH(t, "--metrics", "127.0.0.1:0", "--push-allow-private")
	runStages(t, p, stage{"there is no chat to continue", func(t *testing.T, p *process) {
		_, stderr, code := p.cli(t, "", "chat", "--continue")
		is.New(t).Equal(code, 1)
		expect.Contains(t, stderr, "there is no chat to continue")
	}}, stage{"metrics say how the system is", metricsSayHowTheSystemIs},
		stage{"devices are added, tested and removed", devicesAreAddedTestedAndRemoved},
		stage{"a browser shows notifications", notifiedInABrowser},
		stage{"a conversation continues the newest chat", conversationContinuesTheNewestChat},
		stage{"an MCP server runs in the sandbox", callsServerInSandbox},
		stage{"a person decides about files that a command created", filesOfACommandAreKeptOrDeleted},
		stage{"a key lands in the viewer", sshKeyLandsInTheViewer},
		stage{"a chat that gets another owner closes its viewer and shells", newOwnerClosesViewerAndShells},
		stage{"a restored system shows the same chat and goes on", restoredSystemShowsTheSameChat},
		stage{"attach shows a running command as it runs", attachShowsARunningCommand})
}
