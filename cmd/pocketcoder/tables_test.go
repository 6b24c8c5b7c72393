package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/expect"
	"pocketcoder/projections"
)

func TestListedChatsCannotTouchTheTerminal(t *testing.T) {
	is := is.New(t)
	var out bytes.Buffer
	is.NoErr(printChats(&out, []listedChat{{Chat: projections.Chat{Record: projections.Record{ID: "c1"}, Turn: "user", Title: "a\x1b[2J", Preview: "b\rc", LastActive: "2026-01-02 03:04:05.000Z"}}}))
	is.True(!strings.ContainsAny(out.String(), "\x1b\r"))
	out.Reset()
	is.NoErr(printChats(&out, nil))
	expect.Contains(t, out.String(), "no chats yet")
}
