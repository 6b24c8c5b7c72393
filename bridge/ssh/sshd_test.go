package ssh_test

import (
	"bytes"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"
	cryptossh "golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"pocketcoder/bridge/ssh"
	"pocketcoder/handlers/account"
	"pocketcoder/ops/expect"
)

// serve runs an SSH server on the keys for as long as the test lasts.
func (s *system) serve() *ssh.Server {
	s.t.Helper()
	expect.Program(s.t, "ssh")
	if _, err := ssh.Find(); err != nil && os.Getenv("CI") == "" {
		s.t.Skip(err)
	}
	server, err := ssh.OpenServer(s.t.Context(), "127.0.0.1:0", s.dir, s.logger())
	check(s.t, err)
	expect.Background(s.t, server.Run)
	s.keys.Written = func(lines map[string]string) { server.Keep(lines); s.known.Store(int64(len(lines))) }
	s.keep()
	return server
}

// client is an ssh that speaks to the server with one key, trusts it, and reads no configuration.
func (s *system) client(server *ssh.Server, key string, args ...string) *exec.Cmd {
	_, port, err := net.SplitHostPort(server.Addr().String())
	check(s.t, err)
	all := []string{"-F", "none", "-p", port, "-i", key, "-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none", "-o",
		"BatchMode=yes",
		"-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "-o",
		"ExitOnForwardFailure=yes"}
	// the first of two options holds
	return exec.CommandContext(s.t.Context(), "ssh", append(append(args, all...), server.User+"@127.0.0.1")...)
}

// agent is the path of the socket of an agent that has no keys.
func (s *system) agent() string {
	s.t.Helper()
	path := filepath.Join(s.dir, "agent")
	l, err := net.Listen("unix", path)
	check(s.t, err)
	s.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer conn.Close(); agent.ServeAgent(agent.NewKeyring(), conn) }()
		}
	}()
	return path
}

// ran is what a client prints that has nothing to say.
func ran(cmd *exec.Cmd) string {
	out, _ := cmd.CombinedOutput()
	return strings.ReplaceAll(string(out), "\r", "")
}

// words puts a command behind the host.
func words(cmd *exec.Cmd, command ...string) *exec.Cmd {
	cmd.Args = append(cmd.Args, command...)
	return cmd
}

func TestKeyGivesTheViewerAndNothingElse(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	server := s.serve()
	ann := s.user("ann", account.User)
	key, public := s.newKey()
	stranger, _ := s.newKey()
	s.register(ann, public, nil)
	s.eventually("the key is there", func() bool { return s.known.Load() == 1 })

	output := ran(words(s.client(server, key, "-tt"), "touch", filepath.Join(s.dir, "touched")))
	expect.Contains(t, output, "viewer of <"+ann+">, asked for <touch "+s.dir+"/touched>")
	expect.Contains(t, output, "/dev/pts/")
	_, err := os.Stat(filepath.Join(s.dir, "touched"))
	is.True(os.IsNotExist(err)) // what was asked for is told to the viewer, not run
	expect.Contains(t, ran(s.client(server, stranger)), "Permission denied (publickey)")
	s.eventually("who came is said", func() bool { return strings.Contains(s.lines.String(), "Accepted publickey") })

	target, err := net.Listen("tcp", "127.0.0.1:0")
	is.NoErr(err)
	defer target.Close()
	expect.Lacks(t, ran(s.client(server, key, "-W", target.Addr().String())), "viewer")          // a way to another port
	expect.Contains(t, ran(s.client(server, key, "-R", "0:"+target.Addr().String())), "forward") // and back
	expect.Contains(t, ran(s.client(server, key, "-R", s.dir+"/socket:/nowhere")), "forward")    // to a socket
	expect.Lacks(t, ran(words(s.client(server, key, "-s"), "sftp")), "viewer")                   // files
	given := ran(s.client(server, key, "-A", "-o", "IdentityAgent="+s.agent(), "-o", "SetEnv=POCKETCODER_DATA=/x"))
	expect.Contains(t, given, "viewer of <"+ann+">, asked for <>, given <> <>") // neither an agent nor variables
	accepted := make(chan struct{})
	go func() {
		if conn, err := target.Accept(); err == nil {
			conn.Close()
			close(accepted)
		}
	}()
	select {
	case <-accepted:
		t.Error("a connection was forwarded")
	case <-time.After(100 * time.Millisecond): // all clients are gone by now
	}
	for _, option := range []string{"PreferredAuthentications=password", "PreferredAuthentications=keyboard-interactive"} {
		expect.Contains(t, ran(s.client(server, stranger, "-o", option)), "Permission denied (publickey)")
	}
}

func TestKeyThatIsTakenBackLetsNobodyInAndCutsWhoIsIn(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	server := s.serve()
	ann := s.user("ann", account.User)
	key, public := s.newKey()
	other, otherPublic := s.newKey()
	id := s.register(ann, public, nil)
	s.register(ann, otherPublic, nil)
	s.eventually("the keys are there", func() bool { return s.known.Load() == 2 })
	_, left, in := s.enter(server, key)
	defer in.Close()
	seen, stays, otherIn := s.enter(server, other)
	s.save(id, false, map[string]any{"is_active": false})
	s.eventually("the connection is cut", func() bool { return closed(left) })
	expect.Contains(t, ran(s.client(server, key)), "Permission denied")
	_, err := otherIn.Write([]byte("still here\n"))
	is.NoErr(err)
	s.eventually("the other is not", func() bool { return strings.Contains(seen.String(), "still here") })
	is.True(!closed(stays))
	is.NoErr(otherIn.Close())

	yes := true
	_, err = s.accounts.UpdateAccount(t.Context(), account.UpdateAccount{Account: ann, Disabled: &yes})
	is.NoErr(err)
	s.eventually("that of a disabled account is", func() bool { return closed(stays) })
	expect.Contains(t, ran(s.client(server, other)), "Permission denied")
}

// enter logs in with a key, and stays.
func (s *system) enter(server *ssh.Server, key string) (seen *expect.Buffer, left chan struct{}, in io.WriteCloser) {
	s.t.Helper()
	cmd := words(s.client(server, key, "-tt"), "stay")
	seen, left = &expect.Buffer{}, make(chan struct{})
	cmd.Stdout, cmd.Stderr = seen, seen
	in, err := cmd.StdinPipe()
	check(s.t, err)
	check(s.t, cmd.Start())
	go func() { cmd.Wait(); close(left) }()
	s.eventually("it is in", func() bool { return strings.Contains(seen.String(), "viewer of") })
	return seen, left, in
}

func TestConnectionOfAnAdministratorWhoIsOneNoMoreIsCut(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	server := s.serve()
	s.user("root", account.Admin) // one stays
	ann, bob := s.user("ann", account.Admin), s.user("bob", account.User)
	key, public := s.newKey()
	other, otherPublic := s.newKey()
	s.register(ann, public, nil)
	s.register(bob, otherPublic, nil)
	s.eventually("the keys are there", func() bool { return s.known.Load() == 2 })
	_, left, in := s.enter(server, key)
	defer in.Close()
	seen, stays, otherIn := s.enter(server, other)
	defer otherIn.Close()
	role := account.User
	_, err := s.accounts.UpdateAccount(t.Context(), account.UpdateAccount{Account: ann, Role: &role})
	is.NoErr(err)
	s.eventually("the connection is cut", func() bool { return closed(left) })
	_, err = otherIn.Write([]byte("still here\n"))
	is.NoErr(err)
	s.eventually("the other is not", func() bool { return strings.Contains(seen.String(), "still here") })
	is.True(!closed(stays))
	_, _, in = s.enter(server, key) // it lets in again, to less
	is.NoErr(in.Close())
}

func TestServerBelowADirectoryOthersMayWriteToIsRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	if _, err := ssh.Find(); err != nil && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	above := filepath.Join(s.dir, "above")
	for mode, refused := range map[os.FileMode]bool{0o777: true, 0o777 | os.ModeSticky: true, 0o775: true, 0o755: false} {
		is.NoErr(os.MkdirAll(filepath.Join(above, "data"), 0o700))
		is.NoErr(os.Chmod(above, mode))
		server, err := ssh.OpenServer(t.Context(), "127.0.0.1:0", filepath.Join(above, "data", "ssh"), s.logger())
		is.Equal(err != nil && strings.Contains(err.Error(), "other users may write to "+above+" ("), refused)
		// never of a /tmp
		is.Equal(err != nil && strings.Contains(err.Error(), "chmod go-w "+above), refused && mode&os.ModeSticky == 0)
		if !refused {
			is.NoErr(err)
			server.Close()
		}
	}
}

func TestKeysOfTheLastRunLetNobodyIn(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	if _, err := ssh.Find(); err != nil && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	is.NoErr(os.WriteFile(s.keys.Files[0], []byte("a key that was taken back since\n"), 0o600))
	server, err := ssh.OpenServer(t.Context(), "127.0.0.1:0", s.dir, s.logger())
	is.NoErr(err)
	expect.Background(t, server.Run)
	_, err = os.Stat(s.keys.Files[0])
	is.True(os.IsNotExist(err))

	key, public := s.newKey()
	s.register(s.user("ann", account.User), public, nil)
	text, err := os.ReadFile(key)
	is.NoErr(err)
	signer, err := cryptossh.ParsePrivateKey(text)
	is.NoErr(err)
	writeKeys := func() ([]cryptossh.Signer, error) { // while a connection waits to log in
		s.keys.Written = server.Keep
		s.keep()
		s.eventually("the key is there", func() bool { return len(s.file()) == 1 })
		return []cryptossh.Signer{signer}, nil
	}
	client, err := cryptossh.Dial("tcp", server.Addr().String(), &cryptossh.ClientConfig{
		User: server.User, Auth: []cryptossh.AuthMethod{cryptossh.PublicKeysCallback(writeKeys)}, HostKeyCallback: cryptossh.InsecureIgnoreHostKey(),
	})
	is.NoErr(err)
	defer client.Close()
	s.eventually("it is in", func() bool { return strings.Contains(s.lines.String(), "Accepted publickey") })
	expect.Lacks(t, s.lines.String(), "cut") // its key is as it was
}

func closed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestServerKeepsItsHostKeyAndLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	server := s.serve()
	reopened, err := ssh.OpenServer(t.Context(), "127.0.0.1:0", s.dir, s.logger())
	is.NoErr(err)
	defer reopened.Close()
	is.Equal(reopened.Fingerprint, server.Fingerprint)
	info, err := os.Stat(filepath.Join(s.dir, "host_ed25519"))
	is.NoErr(err)
	is.Equal(info.Mode(), os.FileMode(0o600))
	_, err = ssh.OpenServer(t.Context(), server.Addr().String(), s.dir, s.logger())
	is.True(err != nil && strings.Contains(err.Error(), "in use"))

	stop := expect.Background(t, reopened.Run)
	conn, err := net.Dial("tcp", reopened.Addr().String())
	is.NoErr(err)
	defer conn.Close()
	greeting := make([]byte, 8)
	_, err = io.ReadFull(conn, greeting)
	is.NoErr(err)
	is.True(bytes.HasPrefix(greeting, []byte("SSH-2.0-")))
	stop()
	_, err = io.Copy(io.Discard, conn) // cut with the server
	is.True(err == nil || strings.Contains(err.Error(), "reset"))
}
