package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

// leftToAPerson are the requests of a chat that the policy did not decide.
func (p *process) leftToAPerson(t *testing.T, chat string) (left []projections.Permission) {
	t.Helper()
	for _, a := range rows[projections.Permission](t, p, "permissions", chat) {
		if a.Referred {
			left = append(left, a)
		}
	}
	return left
}

// denied runs a script whose only tool call must wait for a person, denies that request, and returns it.
func (p *process) denied(t *testing.T, script string) projections.Permission {
	t.Helper()
	chat := p.chat(t, script+"\n@@next\n@@say done")
	var left []projections.Permission
	expect.Eventually(t, "a person is asked, or the turn is over", func() bool {
		left = p.leftToAPerson(t, chat)
		return len(left) > 0 || slices.Contains(p.kinds(t.Context(), chat), "opencode.session.idle")
	})
	if len(left) == 0 {
		t.Fatalf("%s: no person was asked", script)
	}
	p.decide(t, chat, events.PermissionRequest{ID: left[0].EnginePermission}, events.Denied, "")
	p.turnEnds(t, chat)
	left = p.leftToAPerson(t, chat)
	if len(left) != 1 {
		t.Fatalf("%s: a person was asked %d times", script, len(left))
	}
	return left[0]
}

// outside is a directory beside the workspace, with one file.
func (p *process) outside(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("needle outside\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Each call that reaches outside the workspace or reads secrets is one request, whichever tool makes it.
func TestToolOutsideTheWorkspaceIsOneRequest(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := unconfinedSystem.system(t)
	outside := p.outside(t)
	below := filepath.Join(outside, "below")
	is.NoErr(os.Mkdir(below, 0o700))
	is.NoErr(os.Symlink(outside, filepath.Join(p.workspace, "link")))
	is.NoErr(os.Symlink(below, filepath.Join(p.workspace, "deep")))
	is.NoErr(os.Symlink(filepath.Join(outside, "notes.txt"), filepath.Join(p.workspace, "file")))
	is.NoErr(os.WriteFile(filepath.Join(p.workspace, ".env"), []byte("KEY=needle\n"), 0o600))
	is.NoErr(os.WriteFile(filepath.Join(p.workspace, "notes.txt"), []byte("needle inside\n"), 0o600))
	is.NoErr(os.Mkdir(filepath.Join(p.workspace, "sub"), 0o700))
	is.NoErr(os.WriteFile(filepath.Join(p.workspace, "sub", "notes.txt"), []byte("needle below\n"), 0o600))
	grep := func(path string) string { return call("grep", map[string]any{"pattern": "needle", "path": path}) }
	glob := func(path string) string { return call("glob", map[string]any{"pattern": "*", "path": path}) }
	file := func(tool, path string) string {
		args := map[string]any{"filePath": path, "content": "x"}
		if tool == "read" {
			delete(args, "content")
		}
		return call(tool, args)
	}
	chat := p.create(t, "outside")
	var script []string
	cases := []struct{ call, permission, want string }{
		{grep(outside), "grep", "no rule allows it"},
		{grep(p.workspace), "grep", "may hold secrets"}, // the folder has a file with secrets
		{call("grep", map[string]any{"pattern": "needle"}), "grep", "may hold secrets"},
		{grep(p.workspace + "/deep/.."), "grep", "leads to two places"},
		{glob(outside), "glob", "no rule allows it"},
		{file("read", outside+"/notes.txt"), "read", "no rule allows it"},
		{file("read", p.workspace+"/deep/../notes.txt"), "read", outside + "/notes.txt"},
		{file("write", outside+"/new.txt"), "edit", "no rule allows it"},
		{call("bash", map[string]any{"command": "cat " + outside + "/notes.txt " + below + "/x", "description": "d"}), "bash", "outside the workspace"},
		{call("bash", map[string]any{"command": "ls", "workdir": outside, "description": "d"}), "bash", "outside the workspace"},
	}
	for _, c := range cases {
		script = append(script, c.call)
	}
	p.submit(t, chat, strings.Join(script, "\n@@next\n")+"\n@@next\n@@say done")
	for n, c := range cases {
		var left []projections.Permission
		expect.Eventually(t, "a person is asked, or the turn is over", func() bool {
			left = p.leftToAPerson(t, chat)
			return len(left) > n || slices.Contains(p.kinds(t.Context(), chat), "opencode.session.idle")
		})
		if len(left) != n+1 {
			t.Fatalf("%s: a person was asked %d times", c.call, len(left)-n)
		}
		is.Equal(left[n].Permission, c.permission)
		if !strings.Contains(left[n].ReferredReason, c.want) {
			t.Errorf("%s: %q does not say %q", c.call, left[n].ReferredReason, c.want)
		}
		p.decide(t, chat, events.PermissionRequest{ID: left[n].EnginePermission}, events.Denied, "go on")
	}
	p.turnEnds(t, chat)
	is.Equal(len(p.leftToAPerson(t, chat)), len(cases))

	links := []string{grep("link"), grep(p.workspace + "/link"), grep("file"), glob("link"),
		file("read", "link/notes.txt"), file("write", "link/notes.txt")}
	inside := []string{grep("sub"), glob("."), file("read", p.workspace+"/notes.txt")}
	quiet := p.chat(t, strings.Join(slices.Concat(links, inside), "\n@@next\n")+"\n@@next\n@@say done")
	p.turnEnds(t, quiet)
	is.Equal(len(p.leftToAPerson(t, quiet)), 0)
	for i, c := range p.tools(t, quiet) {
		if i < len(links) {
			expect.Contains(t, c.State.Error, "OpenCode follows no symbolic links")
			continue
		}
		is.Equal(c.State.Status, "completed")
	}
	t.Run("what a person approves happens, without another request", func(t *testing.T) {
		is := is.New(t)
		chat := p.chat(t, grep(outside)+"\n@@next\n"+file("read", outside+"/notes.txt")+"\n@@next\n@@say done")
		for n := range 2 {
			var left []projections.Permission
			expect.Eventually(t, "a person is asked", func() bool { left = p.leftToAPerson(t, chat); return len(left) > n })
			p.decide(t, chat, events.PermissionRequest{ID: left[n].EnginePermission}, events.Authorized, "")
		}
		p.turnEnds(t, chat)
		is.Equal(len(p.leftToAPerson(t, chat)), 2)
		for _, done := range p.tools(t, chat) {
			is.Equal(done.State.Status, "completed")
			expect.Contains(t, done.State.Output, "needle outside")
		}
		for _, a := range rows[projections.Permission](t, p, "permissions", chat) {
			if a.Permission == "external_directory" {
				is.Equal(a.DecidedBy, "policy")
				is.True(strings.HasSuffix(a.Reason, "decides about the same paths"))
			}
		}
	})
}

func TestPathsHiddenFromOpenCodeCauseNoRequest(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := openSystem.system(t)
	is.NoErr(os.WriteFile(filepath.Join(exposed(), "notes.txt"), []byte("needle\n"), 0o600))
	outside := p.outside(t)
	chat := p.chat(t, call("read", map[string]any{"filePath": outside + "/notes.txt"})+"\n@@next\n"+
		call("grep", map[string]any{"pattern": "needle", "path": outside})+"\n@@next\n@@say done")
	p.turnEnds(t, chat)
	calls := p.tools(t, chat)
	is.Equal(len(calls), 2)
	for _, c := range calls {
		expect.Contains(t, c.State.Error, "does not exist for OpenCode.")
	}
	is.Equal(len(p.leftToAPerson(t, chat)), 0)

	request := p.denied(t, call("read", map[string]any{"filePath": exposed() + "/notes.txt"}))
	is.Equal(request.ReferredReason, "no rule allows it")
	data := filepath.Join(string(p.data), "opencode", "data", "opencode", "tool-output", "x")
	is.Equal(p.denied(t, call("read", map[string]any{"filePath": data})).ReferredReason, "no rule allows it")
}

// unconfinedSystem starts a system with the built-in rules, whose OpenCode sees the whole machine.
var unconfinedSystem = sharedInstance{args: func() []string { return []string{"--isolation", "none"} },
	asDelivered: true}

func TestFIFONeverBlocksOpenCode(t *testing.T) {
	expect.Long(t, "has a turn of many steps")
	t.Parallel()
	is := is.New(t)
	p := unconfinedSystem.system(t)
	dir := p.dir(t)
	here, pipe := filepath.Base(dir), filepath.Join(dir, "pipe")
	is.NoErr(syscall.Mkfifo(pipe, 0o600))
	is.NoErr(os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("needle\n"), 0o600))
	var scripts []string
	for range 2 { // two block OpenCode on two processors
		scripts = append(scripts, call("read", map[string]any{"filePath": here + "/pipe"}),
			call("write", map[string]any{"filePath": pipe, "content": "x"}),
			call("edit", map[string]any{"filePath": pipe, "oldString": "a", "newString": "b"}),
			call("grep", map[string]any{"pattern": "x", "path": here + "/pipe"}))
	}
	large := filepath.Join(dir, "large.pdf")
	is.NoErr(os.WriteFile(large, []byte("%PDF-1.4"), 0o600))
	is.NoErr(os.Truncate(large, 40<<20)) // it takes no place on the disk
	defer os.Remove(large)
	others := []string{call("read", map[string]any{"filePath": here + "/large.pdf"}),
		call("grep", map[string]any{"pattern": "needle", "path": here}), // a search skips the FIFO
		call("read", map[string]any{"filePath": here + "/notes.txt"})}
	chat := p.chat(t, strings.Join(slices.Concat(scripts, others), "\n@@next\n")+"\n@@next\n@@say done")
	p.turnEnds(t, chat)
	calls := p.tools(t, chat)
	is.Equal(len(calls), len(scripts)+len(others))
	for _, c := range calls[:len(scripts)] {
		is.Equal(c.State.Status, "error")
		expect.Contains(t, c.State.Error, "is a FIFO. OpenCode opens only regular files and directories.")
	}
	is.Equal(len(p.leftToAPerson(t, chat)), 0)
	calls = calls[len(scripts):]
	is.Equal(calls[0].State.Status, "error")
	expect.Contains(t, calls[0].State.Error, "has more than 32 MiB")
	for _, c := range calls[1:] {
		is.Equal(c.State.Status, "completed")
		expect.Contains(t, c.State.Output, "needle")
	}
}
