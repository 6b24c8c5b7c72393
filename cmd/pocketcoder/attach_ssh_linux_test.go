package main

import (
	"os"
	"os/exec"
	osuser "os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/bridge/ssh"
	"pocketcoder/cmd/cli"
	"pocketcoder/events"
	"pocketcoder/ops/expect"
)

// startWithSSH starts a system with an SSH server. Only the current user can write in the directories above its data,
// because sshd requires that.
func startWithSSH(t *testing.T, args ...string) *process {
	t.Helper()
	is := is.New(t)
	expect.Program(t, "ssh")
	expect.Program(t, "tmux")
	if _, err := ssh.Find(); err != nil && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	u, err := osuser.LookupId(strconv.Itoa(os.Getuid())) // $HOME may be anywhere
	is.NoErr(err)
	dir, err := os.MkdirTemp(u.HomeDir, ".pocketcoder-ssh-")
	is.NoErr(err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	p := prepare(t, dir, append(args, "--ssh", "127.0.0.1:0")...)
	p.runForTest()
	return p
}

// sshPort is where the SSH server listens.
func (p *process) sshPort(t *testing.T) string {
	t.Helper()
	found := regexp.MustCompile(`at 127\.0\.0\.1:(\d+), host key SHA256:`).FindStringSubmatch(p.output.String())
	is.New(t).True(found != nil) // it says where
	return found[1]
}

// dial is a person's ssh. It has no locale, and a terminal that this machine may not know.
func dial(t *testing.T, port, key string, command ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), "ssh",
		append([]string{"-F", "none", "-p", port, "-i", key, "-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none",
			"-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o",
			"LogLevel=ERROR", "-t", "127.0.0.1"}, command...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "USER=" + os.Getenv("USER"),
		"TERM=a-terminal-nobody-has"}
	return cmd
}

func sshKeyLandsInTheViewer(t *testing.T, p *process) {
	is := is.New(t)
	port := p.sshPort(t)
	others := p.chat(t, "@@say hello")
	ann := p.account(t, "user")
	key, public := newSSHKey(t)
	is.NoErr(os.WriteFile(key+".pub", []byte(public), 0o600))
	_, stderr, code := p.cli(t, "", "key", "add", key+".pub", "--user", ann.email)
	t.Log(stderr)
	is.Equal(code, 0)
	expect.Eventually(t, "the API shows the key", func() bool { return len(ann.list(t, "ssh_keys", "")) == 1 })
	registered := func() record { return ann.list(t, "ssh_keys", "")[0] }
	id := registered()["id"].(string)
	is.Equal(registered()["last_used"], "")
	chat := ann.create(t, "chats", record{"title": "hers"})
	ann.say(t, chat, bash(`echo from the sandbox`))
	ann.authorize(t, ann.awaitRequest(t, chat))
	p.turnEnds(t, chat)
	expect.Eventually(t, "the key is there", func() bool {
		text, _ := os.ReadFile(p.data.Path("ssh", ssh.AuthorizedKeys))
		return strings.Contains(string(text), public)
	})

	s := startTerminal(t, dial(t, port, key)) // the one of hers with the newest activity
	s.awaitText("from the sandbox")
	s.awaitText("──") // as characters, not as question marks
	is.True(registered()["last_used"] != "")
	v := tmuxFor(t, p.data)
	s.pressAfterPrefix(v, chat, "c")
	expect.Eventually(t, "a shell's window is there", func() bool {
		names, _ := v.windows(t.Context(), chat)
		return len(names) == 2 && names[1] == "shell"
	})
	s.typeText("echo in$((40+2)) of $PWD\r")
	s.awaitText("in42 of " + p.workspace)
	s.typeText("ls " + p.data.Path("keys") + "; echo looked\r")
	s.awaitText("cannot ") // access, or open, as the level is; a sequence of the terminal may stand before it
	is.NoErr(os.WriteFile(filepath.Join(p.workspace, "hostile"), []byte(strings.Join(hostileOutput, "\n")+"\n"), 0o644))
	s.typeText("cat hostile; echo read$((40+2))\r")
	s.awaitText("read42")
	// nor does tmux pass on what a program says to it
	for _, code := range []string{"evil-title", "evil-name", "evil-apc", "ZXZpbA", "evil.example"} {
		expect.Lacks(t, s.seen.String(), code)
	}
	names, err := v.windows(t.Context(), chat)
	is.NoErr(err)
	is.Equal(names, []string{"transcript", "shell"})
	s.typeText("exit\r")
	p.finished(t, chat, 1)
	onlyTranscript := func() bool { names, _ := v.windows(t.Context(), chat); return len(names) == 1 }
	expect.Eventually(t, "the shell's window is gone", onlyTranscript)
	owned := p.attach(t, chat) // the operator, in the same session
	owned.awaitText("from the sandbox")
	for i, c := range []struct {
		at    *terminalSession
		actor string
	}{{s, events.UserActor(ann.id)}, {owned, events.UserActor("operator")}, {s, events.UserActor(ann.id)}} {
		c.at.pressAfterPrefix(v, chat, "c")
		expect.Eventually(t, "a shell of theirs is open", func() bool { return len(shellActors(t, p, chat)) == i+2 })
		is.Equal(shellActors(t, p, chat)[i+1], c.actor)
		c.at.typeText("exit 0\r")
		p.finished(t, chat, i+2) // after the assistant's command and the first shell
	}
	shell := []string{pocketcoder(t), "sandbox", "shell", "--data", string(p.data), "--stay", "--user=nobody",
		"--", chat}
	is.NoErr(v.run(t.Context(), append([]string{"new-window", "-t", "=" + chat + ":", "-n", "shell", "-c", "/", "--"},
		shell...)...))
	owned.awaitText("C-b x closes the window") // why it failed stays
	owned.pressAfterPrefix(v, chat, "x")
	expect.Eventually(t, "the window is closed", onlyTranscript)
	owned.pressAfterPrefix(v, chat, "d")
	owned.awaitExit()
	for account, want := range map[string]string{ann.id: "may not open a shell", "nobody": "may not open a shell"} {
		refused := p.ownShell(t, "--user", account, others)
		refused.awaitText(want)
		refused.awaitExit()
	}

	for command, want := range map[string]string{
		others: "there is no chat", "ls": "there is no chat ls", "sh -c 'touch ran'": "the only command is the id of a chat", "$(id)": "want 1 to 64 letters", " --shell": "there is no chat --shell",
	} {
		refused := startTerminal(t, dial(t, port, key, command))
		refused.awaitText(want)
		refused.awaitExit()
	}
	named := startTerminal(t, dial(t, port, key, chat))
	named.awaitText("from the sandbox")
	out, _ := dial(t, port, key).CombinedOutput() // without a terminal of its own, ssh asks for none there
	expect.Contains(t, string(out), "it needs a terminal")

	_, stderr, code = p.cli(t, "", "key", "remove", id)
	is.Equal([]any{code, stderr}, []any{0, ""})
	s.awaitExit() // the open connection is closed
	named.awaitExit()
	second := startTerminal(t, dial(t, port, key))
	second.awaitText("Permission denied")
	second.awaitExit()
}

// sshChat makes an account with a key and a chat of its own.
func (p *process) sshChat(t *testing.T) (key, chat string) {
	t.Helper()
	ann := p.account(t, "user")
	key, public := newSSHKey(t)
	ann.create(t, "ssh_keys", record{"user": ann.id, "public_key": public, "device_name": "laptop", "is_active": true})
	chat = ann.create(t, "chats", record{"title": "hers"})
	expect.Eventually(t, "the key is there", func() bool {
		text, _ := os.ReadFile(p.data.Path("ssh", ssh.AuthorizedKeys))
		return strings.Contains(string(text), public)
	})
	return key, chat
}

func newOwnerClosesViewerAndShells(t *testing.T, p *process) {
	is := is.New(t)
	port := p.sshPort(t)
	key, chat := p.sshChat(t)
	bob := p.account(t, "user")
	v := tmuxFor(t, p.data)
	s := startTerminal(t, dial(t, port, key, chat))
	s.awaitText("the commands of chat " + chat)
	local := p.attach(t, chat)
	local.awaitText("the commands of chat " + chat)
	s.pressAfterPrefix(v, chat, "c")
	s.typeText("echo in$((40+2))\r")
	s.awaitText("in42")

	p.admin(t).must(t, "PATCH", recordPath("chats", chat), record{"title": "still hers"}, nil)
	p.admin(t).must(t, "PATCH", recordPath("chats", chat), record{"user": bob.id}, nil)
	s.awaitExit()
	local.awaitExit()
	p.finished(t, chat, 0) // the shell
	is.True(v.run(t.Context(), "has-session", "-t", "="+chat) != nil)
	second := startTerminal(t, dial(t, port, key, chat))
	second.awaitText("there is no chat")
	second.awaitExit()
	local = p.attach(t, chat) // the operator sees every chat
	local.awaitText("the commands of chat " + chat)
}

func TestSSHRequiresIsolation(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	_, stderr, err := runApp(t, "up", "--isolation", "none", "--ssh", "127.0.0.1:2222", "--data", t.TempDir(),
		"--workspace", t.TempDir())
	is.Equal(err, cli.ErrUsage)
	expect.Contains(t, stderr, "would open a shell of your user")
}

// shellActors are those whose shells were opened in a chat.
func shellActors(t *testing.T, p *process, chat string) (actors []string) {
	t.Helper()
	for _, e := range p.history(t, chat) {
		d, err := events.Decode(e)
		if requested, ok := d.(events.ExecRequested); err == nil && ok && requested.Terminal {
			actors = append(actors, e.Actor)
		}
	}
	return actors
}
