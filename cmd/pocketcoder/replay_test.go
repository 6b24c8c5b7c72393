package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
)

func TestReplayExportsAChat(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	admin := p.admin(t)
	chat := admin.create(t, "chats", record{"title": "Exported"})
	admin.say(t, chat, bash("echo one; echo two"))
	admin.authorize(t, admin.awaitRequest(t, chat))
	p.turnEnds(t, chat)
	page, _, code := p.cli(t, "", "replay", chat, "--html")
	is.Equal(code, 0)
	expect.Contains(t, page, "approved by "+adminEmail)
	recording, _, code := p.cli(t, "", "replay", chat, "--cast")
	is.Equal(code, 0)
	lines := strings.Split(strings.TrimSpace(recording), "\n")
	var times []float64
	var output strings.Builder
	for _, line := range lines[1:] {
		var at float64
		var kind, text string
		is.NoErr(json.Unmarshal([]byte(line), &[]any{&at, &kind, &text}))
		is.Equal(kind, "o")
		times = append(times, at)
		output.WriteString(text)
	}
	expect.Contains(t, output.String(), "one\r\ntwo\r\n")
	is.True(times[len(times)-1] >= times[1]) // in order
	_, stderr, code := p.cli(t, "", "replay", "nochat", "--html")
	is.Equal(code, 1)
	expect.Contains(t, stderr, "there is no chat nochat in the log")
	_, _, code = p.cli(t, "", "replay", chat, "--html", "--cast")
	is.Equal(code, 2)
}
