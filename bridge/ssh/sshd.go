package ssh

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/crypto/ssh"
)

// Server accepts connections and runs an sshd for each, as inetd does. So no sshd outlives this process, and the key of
// each connection is known. OpenServer opens it.
type Server struct {
	Fingerprint string // of the host key: SHA256:…
	User        string // user name for the login

	sshd, config string // paths
	listener     *net.TCPListener
	logger       *slog.Logger

	mu    sync.Mutex
	open  map[*connection]bool
	lines map[string]string // of the last Keep; nil before the first
}

// Paths of what a server keeps in its directory.
const (
	hostKeyFile = "host_ed25519"
	configFile  = "sshd_config"
	// AuthorizedKeys is the file the server reads, one of Keys.Files.
	AuthorizedKeys = "authorized_keys"
)

// InstallHint is the command that installs sshd.
const InstallHint = "apt install openssh-server"

// Find finds sshd, which is usually not on the PATH of users other than root.
func Find() (path string, err error) {
	if path, err = exec.LookPath("sshd"); err == nil {
		return filepath.Abs(path) // sshd executes itself again by this path
	}
	for _, dir := range []string{"/usr/sbin", "/usr/local/sbin", "/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, "sshd")); err == nil {
			return path, nil
		}
	}
	return "", errors.New("sshd is neither on PATH nor in /usr/sbin; install it: " + InstallHint)
}

// OpenServer listens at address (host:port; an empty host means every address). It stores its files in dir, to which
// no other user may write. It accepts no connection before the keys are written, because keys of an earlier start may
// be revoked.
func OpenServer(ctx context.Context, address, dir string, logger *slog.Logger) (*Server, error) {
	fail := func(err error) (*Server, error) { return nil, fmt.Errorf("open ssh server: %w", err) }
	sshd, err := Find()
	if err != nil {
		return fail(err)
	}
	me, err := user.LookupId(strconv.Itoa(os.Getuid()))
	if err != nil {
		return fail(fmt.Errorf("sshd needs the name of this user: %w", err))
	}
	if err := checkLoginShell(me.Username); err != nil {
		return fail(err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fail(err)
	}
	if err := checkModes(dir, me); err != nil {
		return fail(err)
	}
	s := &Server{User: me.Username, sshd: sshd, config: filepath.Join(dir, configFile), logger: logger,
		open: map[*connection]bool{}}
	if s.Fingerprint, err = hostKey(filepath.Join(dir, hostKeyFile)); err != nil {
		return fail(err)
	}
	config, err := serverConfig(dir, me.Username)
	if err != nil {
		return fail(err)
	}
	if err := replace(s.config, config); err != nil {
		return fail(err)
	}
	if err := s.check(ctx); err != nil {
		return fail(err)
	}
	if err := os.Remove(filepath.Join(dir, AuthorizedKeys)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fail(err)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fail(err)
	}
	s.listener = listener.(*net.TCPListener)
	return s, nil
}

func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Close stops listening. It does nothing for a nil Server.
func (s *Server) Close() {
	if s != nil {
		s.listener.Close()
	}
}

// checkLoginShell checks the login shell, with which sshd runs the command of a key. For users outside /etc/passwd,
// sshd checks it.
func checkLoginShell(name string) error {
	text, _ := os.ReadFile("/etc/passwd")
	for line := range strings.Lines(string(text)) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		shell := filepath.Base(fields[len(fields)-1])
		if fields[0] == name && (shell == "nologin" || shell == "false") {
			return fmt.Errorf("the login shell of %s is %s, which sshd refuses as a login shell: usermod --shell /bin/sh %[1]s",
				name, fields[len(fields)-1])
		}
	}
	return nil
}

// serverConfig is sshd's configuration (sshd_config(5)). Nothing else is read: not that of the machine's own sshd.
// What may run stands in authorized_keys, beside each key, because it depends on whose key it is: a ForceCommand here
// would replace it.
func serverConfig(dir, user string) (string, error) {
	for _, word := range []string{dir, user} {
		if strings.ContainsAny(word, "\"\\\n\r") {
			return "", fmt.Errorf("sshd_config cannot hold %q", word)
		}
	}
	file := func(name string) string { return `"` + strings.ReplaceAll(filepath.Join(dir, name), "%", "%%") + `"` }
	return `HostKey "` + filepath.Join(dir, hostKeyFile) + `"
AuthorizedKeysFile ` + file(AuthorizedKeys) + `
AllowUsers ` + user + `
AuthenticationMethods publickey
PubkeyAuthentication yes
PasswordAuthentication no
KbdInteractiveAuthentication no
HostbasedAuthentication no
PermitRootLogin forced-commands-only
PermitEmptyPasswords no
StrictModes yes
UsePAM no
DisableForwarding yes
AllowTcpForwarding no
AllowStreamLocalForwarding no
AllowAgentForwarding no
X11Forwarding no
GatewayPorts no
PermitTunnel no
PermitUserRC no
PermitUserEnvironment no
PermitTTY yes
PrintMotd no
PrintLastLog no
UseDNS no
PidFile none
LogLevel INFO
LoginGraceTime 30
MaxAuthTries 6
MaxSessions 4
ClientAliveInterval 30
ClientAliveCountMax 3
`, nil
}

// hostKey creates the server's key if there is none, and returns its fingerprint.
func hostKey(path string) (fingerprint string, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		_, private, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return "", err
		}
		block, err := ssh.MarshalPrivateKey(private, "pocketcoder")
		if err != nil {
			return "", err
		}
		text = pem.EncodeToMemory(block)
		if err := replace(path, string(text)); err != nil {
			return "", err
		}
	} else if err != nil {
		return "", err
	}
	signer, err := ssh.ParsePrivateKey(text)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return ssh.FingerprintSHA256(signer.PublicKey()), nil
}

// missingDir matches sshd's message about its missing privilege separation directory.
var missingDir = regexp.MustCompile(`Missing privilege separation directory: (\S+)`)

// check lets sshd check its configuration. As root it creates the missing privilege separation directory, which is
// otherwise created at boot.
func (s *Server) check(ctx context.Context) error {
	for try := 1; ; try++ {
		out, err := exec.CommandContext(ctx, s.sshd, "-t", "-f", s.config).CombinedOutput()
		if err == nil {
			return nil
		}
		if missing := missingDir.FindSubmatch(out); missing != nil && try == 1 && os.Getuid() == 0 {
			// another start may make it too
			if err := os.Mkdir(string(missing[1]), 0o755); err != nil && !errors.Is(err, os.ErrExist) {
				return err
			}
			continue
		}
		return fmt.Errorf("sshd rejects the configuration that PocketCoder wrote: %s", strings.TrimSpace(string(out)))
	}
}

// checkModes checks a directory and its parents as sshd's StrictModes does before it reads authorized_keys, up
// to the user's home or the root. Each must belong to the user or to root, and no other user may write to it. The
// sticky bit of /tmp makes no difference (OpenSSH's safe_path). If a check fails, sshd would start and refuse every
// key.
func checkModes(dir string, me *user.User) error {
	home, err := filepath.EvalSymlinks(me.HomeDir)
	if err != nil {
		home = "" // then up to the root
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return err
	}
	for above := dir; ; above = filepath.Dir(above) {
		info, err := os.Stat(above)
		if err != nil {
			return err
		}
		owner := info.Sys().(*syscall.Stat_t).Uid
		if owner != 0 && int(owner) != os.Getuid() {
			return fmt.Errorf("sshd would refuse every key: %s, which holds %s, belongs to another user (uid %d); choose another data directory", above, dir, owner)
		}
		if mode := info.Mode(); mode.Perm()&0o022 != 0 {
			err := fmt.Errorf("sshd would refuse every key: other users may write to %s (%v), which holds %s; choose another data directory", above, mode, dir)
			if mode&os.ModeSticky == 0 { // a sticky directory such as /tmp is meant to be writable
				err = fmt.Errorf("%w, or: chmod go-w %s", err, above)
			}
			return err
		}
		if above == home || above == filepath.Dir(above) {
			return nil
		}
	}
}
