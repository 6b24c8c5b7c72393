package main

import (
	"encoding/json"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
)

// The same systems show an erased chat, because each start of OpenCode takes seconds.
func restoredSystemShowsTheSameChat(t *testing.T, p *process) {
	is := is.New(t)
	chat := p.chat(t, bash("echo re''stored"))
	p.approve(t, chat, 0)
	p.turnEnds(t, chat)
	const canary = "text-that-goes-away"
	deleted := p.chat(t, bash("echo "+canary))
	p.approve(t, deleted, 0)
	p.turnEnds(t, deleted)
	dir := t.TempDir()
	backup, file := filepath.Join(dir, "backup"), filepath.Join(dir, "passphrase")
	is.NoErr(os.WriteFile(file, []byte("correct horse\n"), 0o600))
	stdout := p.mustRun(t, "backup", backup, "--passphrase-file", file, "--json") // while it runs
	var result struct{ Events uint64 }
	is.NoErr(json.Unmarshal([]byte(stdout), &result))
	to := strconv.FormatUint(result.Events, 10)
	before, _, _ := p.cli(t, "", "replay", chat, "--json", "--to", to)
	text := p.text(t, chat)

	r := prepareInside(t, dir)
	r.env = nil // the account comes from the backup
	stdout = r.mustRun(t, "restore", backup, "--passphrase-file", file)
	expect.Contains(t, stdout, "start it with: pocketcoder up --data "+string(r.data))
	stdout = r.mustRun(t, "admin", "erase", deleted, "--yes")
	expect.Contains(t, stdout, "erased chat "+deleted)
	r.runForTest()
	is.Equal(r.row(t, deleted).Title, "erased")
	erased, _, _ := r.cli(t, "", "replay", deleted)
	expect.Contains(t, erased, "message.submitted: erased by an operator, SHA-256 ")
	expect.Lacks(t, erased, "cannot be read")
	is.NoErr(filepath.WalkDir(string(r.data), func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			expect.Lacks(t, expect.ReadFile(t, path), canary) // path
		}
		return nil
	}))
	states, err := health(r.HTTP)
	is.NoErr(err)
	is.Equal(states.code, http.StatusOK) // nothing counts as lost
	after, _, _ := r.cli(t, "", "replay", chat, "--json", "--to", to)
	is.True(before != "" && after == before)
	is.Equal(r.text(t, chat), text)
	r.login(t, adminEmail, adminPassword) // the password is one of the secrets
	r.submit(t, chat, call("bash", map[string]any{"command": "echo afterwards", "description": "test"})+
		"\n@@next\n@@say it works")
	r.approve(t, chat, 1)
	r.turnEnds(t, chat)
	expect.Contains(t, r.text(t, chat), "it works")
}

var progressLine = regexp.MustCompile(`(?m)^[a-z ]+: \d+ of \d+\n`)

// mustRun runs a subcommand that must succeed and, where it takes long, shows progress on stderr.
func (p *process) mustRun(t testing.TB, args ...string) (stdout string) {
	t.Helper()
	stdout, stderr, code := p.cli(t, "", args...)
	is.New(t).Equal([]any{code, progressLine.ReplaceAllString(stderr, "")}, []any{0, ""})
	return stdout
}
