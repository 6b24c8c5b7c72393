package render

import (
	"bytes"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/cmd/client"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
	"pocketcoder/projections/store"
)

func TestListedChatsCannotTouchTheTerminal(t *testing.T) {
	is := is.New(t)
	var out bytes.Buffer
	is.NoErr(Chats(&out, []client.Chat{{Chat: projections.Chat{Record: store.Record{ID: "c1"}, Turn: "user",
		Title: "a\x1b[2J", Preview: "b\rc", LastActive: "2026-01-02 03:04:05.000Z"}}}))
	is.True(!strings.ContainsAny(out.String(), "\x1b\r"))
	out.Reset()
	is.NoErr(Chats(&out, nil))
	expect.Contains(t, out.String(), "no chats yet")
}
