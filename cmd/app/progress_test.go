package app

import (
	"bytes"
	"testing"

	"pocketcoder/cmd/datadir"
	"pocketcoder/ops/expect"
)

func TestReadySaysWhatRunsWhere(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	newProgress(&out).Ready(startedSystem{
		Running: datadir.Running{PID: 7, HTTP: "http://127.0.0.1:8090", NATS: "nats://127.0.0.1:4222", Workspace: "/w"},
		URL:     "https://code.example.org", Data: "/d", OpenCode: "/bin/opencode 1.2.3", Model: "the demo model", WorkerPID: 8,
	})
	for _, line := range []string{
		"ready      pid 7\n", "  web         open https://code.example.org in a browser (API: https://code.example.org/docs)\n", "  log         nats://127.0.0.1:4222 (for the nats CLI: ", "  opencode    /bin/opencode 1.2.3\n",
		"  model       the demo model\n", "  sandbox     worker pid 8 in /w\n", "  data        /d\n", " chat -m \"hello\" ",
	} {
		expect.Contains(t, out.String(), line)
	}
	expect.Lacks(t, out.String(), "%!")
}
