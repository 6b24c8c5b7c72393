package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
)

// running waits for the execution of a chat that runs.
func (l login) running(t testing.TB, chat string) (id string) {
	t.Helper()
	expect.Eventually(t, "a command of chat "+chat+" runs", func() bool {
		all := l.list(t, "executions", `chat = "`+chat+`" && status = "executing"`)
		if len(all) > 0 {
			id = all[0]["id"].(string)
		}
		return len(all) > 0
	})
	return id
}

// A client reads the output while the command writes it, and later.
func TestLargeOutputIsReadWhole(t *testing.T) {
	expect.Long(t, "moves much data")
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	admin := p.admin(t)
	chat := admin.create(t, "chats", record{"title": "large output"})
	dir := p.dir(t)
	admin.say(t, chat, bash(fmt.Sprintf("cd %s; { echo begun; until [ -e go ]; do sleep 0.02; done; head -c 5242874 /dev/urandom; } | tee large.bin", dir)))
	admin.authorize(t, admin.awaitRequest(t, chat))
	path := "/api/executions/" + admin.running(t, chat) + "/output"
	ctx, cancel := context.WithTimeout(t.Context(), eventTimeout)
	defer cancel()
	live, err := admin.follow(ctx, path, "")
	is.NoErr(err)
	defer live.Close()
	r := bufio.NewReader(live)
	begun, err := r.ReadString('\n')
	is.NoErr(err)
	expect.WriteFile(t, filepath.Join(dir, "go"), "")
	rest, err := io.ReadAll(r)
	is.NoErr(err)
	p.turnEnds(t, chat)
	written := read(t, filepath.Join(dir, "large.bin"))
	is.Equal(len(written), 5<<20)
	is.True(begun+string(rest) == written)
	stored := admin.do(t, "GET", path, nil)
	is.True(stored.body == written)
	ranged := admin.do(t, "GET", path, nil, "Range", "bytes=4000000-4000999")
	is.Equal(ranged.code, http.StatusPartialContent)
	is.True(ranged.body == written[4000000:4001000])
	is.Equal(login{process: p}.do(t, "GET", path, nil).code, http.StatusUnauthorized)
}
