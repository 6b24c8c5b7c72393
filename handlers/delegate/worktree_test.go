package delegate

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/ops/expect"
)

// withGit returns delegates whose workspace is a git repository with a commit. Scripts run without a sandbox.
func withGit(t *testing.T) *Delegates {
	t.Helper()
	expect.Program(t, "git")
	h := open(t)
	p := placeOf(h)
	p.Workspace, _ = filepath.EvalSymlinks(p.Workspace)
	p.Git = func(ctx context.Context, directory, script string) (string, error) {
		cmd := exec.CommandContext(ctx, "sh", "-c", script)
		var stderr bytes.Buffer
		cmd.Dir, cmd.Stderr = directory, &stderr
		out, err := cmd.Output()
		if err != nil {
			err = handlers.Refuse(handlers.Conflict, "%s", strings.TrimSpace(stderr.String()))
		}
		return string(out), err
	}
	h.In = at(p)
	git(t, p.Workspace, "init", "-q", "-b", "main")
	expect.WriteFile(t, p.Workspace+"/sub/a", "a")
	commit(t, p.Workspace)
	return h
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	as := []string{"-C", dir, "-c", "user.name=n", "-c", "user.email=e@example.org"}
	cmd := exec.Command("git", append(as, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func commit(t *testing.T, dir string) {
	t.Helper()
	git(t, dir, "add", ".")
	git(t, dir, "commit", "-q", "-m", "c")
}

// startIn starts a delegate in a worktree, and returns its parent as the log has it.
func startIn(t *testing.T, h *Delegates, call, directory string) (Started, events.Parent) {
	t.Helper()
	s, err := h.Start(t.Context(), Start{Parent: Caller{Chat: "c1", Session: "ses_1", Call: call}, Message: "m",
		Directory: directory, Worktree: true})
	is.New(t).NoErr(err)
	_, data := handlerstest.History(t, h.Log, s.Delegate)
	return s, *data[0].(events.ChatCreated).Parent
}

func TestADelegateWorksInAWorktreeOfItsOwn(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := withGit(t)
	s, p := startIn(t, h, "one", "sub")
	_, again := startIn(t, h, "one", "sub") // the call is repeated
	is.Equal(again, p)
	is.Equal(p.Worktree, placeOf(h).Workspace+"/.worktrees/"+s.Delegate)
	is.Equal(p.Directory, p.Worktree+"/sub")
	is.Equal(git(t, p.Directory, "branch", "--show-current"), p.Branch)
	is.Equal(p.Branch, "pocketcoder/"+s.Delegate)
	is.Equal(git(t, placeOf(h).Workspace, "status", "--porcelain"), "") // the chat above does not see it
	_, other := startIn(t, h, "two", "")
	is.Equal(other.Directory, other.Worktree)
	is.True(other.Worktree != p.Worktree)
}

func TestAWorktreeIsRefusedWithAReason(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := withGit(t)
	plain := over(t, h.Log)
	plain.In = at(Place{placeOf(plain).Workspace, placeOf(h).Git})
	refused := func(h *Delegates, directory, why string) {
		t.Helper()
		_, err := h.Start(t.Context(), Start{Parent: Caller{Chat: "c1"}, Message: "m", Directory: directory, Worktree: true})
		is.Equal(handlerstest.Refusal(t, err), handlers.Invalid)
		expect.Contains(t, err.Error(), why)
	}
	refused(plain, "", "not a git repository")
	git(t, placeOf(h).Workspace, "init", "-q", "empty")
	refused(h, "empty", "has no commit")

	// A repository in the workspace can have been made by the assistant.
	git(t, placeOf(h).Workspace, "init", "-q", "evil")
	expect.WriteFile(t, placeOf(h).Workspace+"/evil/a", "a")
	commit(t, placeOf(h).Workspace+"/evil")
	expect.WriteFile(t, placeOf(h).Workspace+"/evil/.git/hooks/post-checkout",
		"#!/bin/sh\ntouch "+placeOf(h).Workspace+"/ran\n")
	is.NoErr(os.Chmod(placeOf(h).Workspace+"/evil/.git/hooks/post-checkout", 0o700))
	startIn(t, h, "hook", "evil")
	_, err := os.Stat(placeOf(h).Workspace + "/ran")
	is.True(errors.Is(err, fs.ErrNotExist)) // no hook ran
	git(t, placeOf(h).Workspace+"/evil", "config", "filter.x.smudge", "touch "+placeOf(h).Workspace+"/ran")
	refused(h, "evil", "may name programs")
	is.NoErr(os.Symlink("/", placeOf(h).Workspace+"/link"))
	refused(h, "link", "is not a directory in the workspace")

	h.Limits.PerChat = 1
	_, err = h.Start(t.Context(), Start{Parent: Caller{Chat: "c1", Call: "more"}, Message: "m", Worktree: true})
	is.Equal(handlerstest.Refusal(t, err), handlers.Conflict)
	_, err = os.Stat(placeOf(h).worktreeOf(events.DelegateOf("c1", "", "", "more")).root)
	is.True(errors.Is(err, fs.ErrNotExist)) // a delegate that is refused leaves no worktree
}

func TestTheWorktreeOfADeletedDelegateIsRemovedIfItIsClean(t *testing.T) {
	t.Parallel()
	h := withGit(t)
	for name, c := range map[string]struct {
		change       func(dir string)
		kept, branch bool
	}{
		"clean": {func(string) {}, false, false},
		"dirty": {func(dir string) { expect.WriteFile(t, dir+"/new", "n") }, true, true},
		"committed": {func(dir string) {
			expect.WriteFile(t, dir+"/new", "n")
			commit(t, dir)
		}, false, true},
		"gone": {func(dir string) { os.RemoveAll(dir) }, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			s, p := startIn(t, h, name, "")
			c.change(p.Worktree)
			_, err := h.Chats.Delete(t.Context(), chat.Delete{Chat: s.Delegate})
			is.NoErr(err)
			for range 2 {
				_, _, err = h.CloseWorktree(t.Context(), CloseWorktree{s.Delegate, p.Worktree, p.Branch})
				is.NoErr(err)
			}
			_, data := handlerstest.History(t, h.Log, s.Delegate)
			closed := handlerstest.Of[events.WorktreeClosed](data)
			is.Equal(len(closed), 1)
			is.Equal([]bool{closed[0].Kept != "", closed[0].Branch != ""}, []bool{c.kept, c.branch})
			_, err = os.Stat(p.Worktree)
			is.Equal(err == nil, c.kept)
			if name != "gone" {
				is.Equal(git(t, placeOf(h).Workspace, "branch", "--list", p.Branch) != "", c.branch)
			}
		})
	}
}

// Git would remove what these changes leave in the worktree.
func TestTheWorktreeOfADeletedDelegateIsKeptIfItHoldsFilesThatAreNowhereElse(t *testing.T) {
	t.Parallel()
	h := withGit(t)
	expect.WriteFile(t, placeOf(h).Workspace+"/.gitignore", "*.log\nbuild/\n")
	commit(t, placeOf(h).Workspace)
	expect.WriteFile(t, placeOf(h).Workspace+"/same.log", "same")
	for name, c := range map[string]struct {
		change func(dir string)
		kept   string // part of the reason, "" if the worktree is removed
	}{
		"ignored file":             {func(dir string) { expect.WriteFile(t, dir+"/sub/own.log", "own") }, "nowhere else: sub/own.log"},
		"ignored file of the same": {func(dir string) { expect.WriteFile(t, dir+"/same.log", "same") }, ""},
		"changed ignored file":     {func(dir string) { expect.WriteFile(t, dir+"/same.log", "other") }, "nowhere else: same.log"},
		"nested repository": {func(dir string) {
			git(t, dir, "init", "-q", "build/nested")
			expect.WriteFile(t, dir+"/build/nested/a", "a")
			commit(t, dir+"/build/nested")
		}, "nowhere else: build/nested/"},
		"hidden change": {func(dir string) {
			git(t, dir, "update-index", "--assume-unchanged", "sub/a")
			expect.WriteFile(t, dir+"/sub/a", "changed")
		}, "git hides changes"},
		"commit without a branch": {func(dir string) {
			git(t, dir, "checkout", "-q", "--detach")
			expect.WriteFile(t, dir+"/new", "n")
			commit(t, dir)
		}, "commits that no branch has"},
		"many": {func(dir string) {
			for _, n := range strings.Split("1234567", "") {
				expect.WriteFile(t, dir+"/"+n+".log", n)
			}
		}, "nowhere else: 1.log, 2.log, 3.log, 4.log, 5.log, and more"},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			s, p := startIn(t, h, name, "")
			c.change(p.Worktree)
			_, err := h.Chats.Delete(t.Context(), chat.Delete{Chat: s.Delegate})
			is.NoErr(err)
			closed, _, err := h.CloseWorktree(t.Context(), CloseWorktree{s.Delegate, p.Worktree, p.Branch})
			is.NoErr(err)
			expect.Contains(t, closed.Kept, c.kept)
			is.Equal(closed.Kept != "", c.kept != "")
			_, err = os.Stat(p.Worktree)
			is.Equal(err == nil, c.kept != "")
		})
	}
}
