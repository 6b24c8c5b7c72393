package main

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/sandbox/wire"
)

func TestAgentAccountsRequestAndCannotApprove(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	agent, owner := p.account(t, "agent"), p.account(t, "user")
	chat := owner.create(t, "chats", record{"title": "intents"})
	owner.say(t, chat, "@@say hello")
	p.turnEnds(t, chat)
	session, call := p.row(t, chat).Session, "call_forged"
	type answer struct {
		Permitted  bool
		ID, Status string
	}
	request := func(by login, command, id string) (code int, a answer) {
		t.Helper()
		r := by.do(t, "POST", "/api/pocketcoder/permission", record{
			"permission": "bash", "patterns": []string{command}, "chat_id": chat, "opencode_id": id, "metadata": record{"command": command}, "session_id": session, "call_id": call,
		})
		if r.code == http.StatusOK {
			decode(t, r.body, &a)
		}
		return r.code, a
	}
	first := func(command, id, status string) answer {
		t.Helper()
		code, a := request(agent, command, id)
		if code != http.StatusOK || a.Permitted != (status == "authorized") || a.Status != status {
			why, stderr, _ := p.cli(t, "", "policy", "why", a.ID)
			t.Fatalf("%d %+v, want %s: %s%s", code, a, status, why, stderr)
		}
		return a
	}
	first("ls", "", "authorized")
	const forged = "echo run >>forged"
	draft := first(forged, "i1", "draft")
	_, same := request(agent, forged, "i1")
	is.Equal(same, draft)
	code, _ := request(owner, forged, "i2")
	is.Equal(code, http.StatusForbidden) // users do not request permissions, they decide them

	path := recordPath("permissions", draft.ID)
	// an agent never approves
	is.Equal(agent.do(t, "PATCH", path, record{"status": "authorized"}).code, http.StatusNotFound)
	decided := owner.authorize(t, record{"id": draft.ID})
	is.Equal([]any{decided["status"], decided["approved_by"]}, []any{"authorized", owner.id})
	_, same = request(agent, forged, "i1")
	is.Equal([]any{same.Permitted, same.Status}, []any{true, "authorized"})
	is.Equal(owner.do(t, "PATCH", path, record{"status": "denied"}).code, http.StatusBadRequest)

	// as if the call were OpenCode's
	shell := exec.CommandContext(t.Context(), pocketcoderShell(t), "-c", forged)
	shell.Dir = p.workspace
	shell.Env = append(os.Environ(), "OPENCODE_SESSION_ID="+session, "OPENCODE_CALL_ID="+call,
		"POCKETCODER_SOCKET=unix:"+p.data.Path("opencode", "run", "shell.sock"))
	is.True(shell.Run() != nil)
	is.Equal(shell.ProcessState.ExitCode(), wire.ExitRefused)

	owner.say(t, chat, bash(forged)) // the same command, of OpenCode's
	real := owner.awaitRequest(t, chat)
	is.True(real["id"] != draft.ID)
	owner.must(t, "PATCH", recordPath("permissions", real["id"].(string)), record{"status": "denied"}, nil)
	p.turnEnds(t, chat)
	ran := owner.list(t, "executions", `chat = "`+chat+`"`)
	is.Equal(len(ran), 1)
	is.Equal(ran[0]["status"], "refused")
	_, err := os.Stat(filepath.Join(p.workspace, "forged"))
	is.True(errors.Is(err, fs.ErrNotExist))
}
