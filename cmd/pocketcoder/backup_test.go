package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/expect"
)

func TestARestoredSystemShowsTheSameChatAndGoesOn(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := start(t)
	chat := p.chat(t, bash("echo re''stored"))
	p.approve(t, chat, 0)
	p.turnEnds(t, chat)
	dir := t.TempDir()
	backup, file := filepath.Join(dir, "backup"), filepath.Join(dir, "passphrase")
	is.NoErr(os.WriteFile(file, []byte("correct horse\n"), 0o600))
	stdout, stderr, code := p.cli(t, "", "backup", backup, "--passphrase-file", file, "--json") // while it runs
	is.Equal([]any{code, stderr}, []any{0, ""})
	var result struct{ Events uint64 }
	is.NoErr(json.Unmarshal([]byte(stdout), &result))
	to := strconv.FormatUint(result.Events, 10)
	before, _, _ := p.cli(t, "", "replay", chat, "--json", "--to", to)
	said := p.text(t, chat)
	p.stop()

	r := prepare(t, dir)
	r.env = nil // the account comes from the backup
	stdout, stderr, code = r.cli(t, "", "restore", backup, "--passphrase-file", file)
	is.Equal([]any{code, stderr}, []any{0, ""})
	expect.Contains(t, stdout, "start it with: pocketcoder up --data "+string(r.data))
	r.runForTest()
	after, _, _ := r.cli(t, "", "replay", chat, "--json", "--to", to)
	is.True(before != "" && after == before)
	is.Equal(r.text(t, chat), said)
	r.login(t, adminEmail, adminPassword) // the password is one of the secrets
	r.submit(t, chat, call("bash", map[string]any{"command": "echo afterwards", "description": "test"})+"\n@@next\n@@say it works")
	r.approve(t, chat, 1)
	r.turnEnds(t, chat)
	expect.Contains(t, r.text(t, chat), "it works")
}
