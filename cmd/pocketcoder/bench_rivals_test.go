package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	osuser "os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// otherWays are other ways to run a command in another process: ssh to this machine, with a new connection for each
// command and over a shared one, and a terminal in tmux that is typed into and looked at every 200 ms.
func otherWays(b *testing.B) []*execVariant {
	b.Helper()
	var ways []*execVariant
	connect, err := openSSHD(b)
	if err != nil {
		notMeasured(b, "ssh", err)
	} else {
		shared := filepath.Join(b.TempDir(), "shared")
		master := connect("-o", "ControlMaster=yes", "-o", "ControlPersist=yes", "-S", shared, "true")
		if out, err := master.CombinedOutput(); err != nil {
			b.Fatalf("share an ssh connection: %v: %s", err, out)
		}
		b.Cleanup(func() { connect("-S", shared, "-O", "exit").Run() })
		ways = append(ways,
			&execVariant{name: "ssh", every: 10, start: asProcess(func(command string) *exec.Cmd { return connect(command) })},
			&execVariant{name: "ssh-shared", every: 10, start: asProcess(func(command string) *exec.Cmd {
				return connect("-S", shared, command)
			})})
	}
	if _, err := exec.LookPath("tmux"); err != nil {
		notMeasured(b, "tmux", err)
		return ways
	}
	return append(ways, &execVariant{name: "tmux", every: 10, start: openTmux(b)})
}

// openSSHD starts an sshd without privileges, for a key that is thrown away, and gives the client's command line.
func openSSHD(b *testing.B) (connect func(args ...string) *exec.Cmd, err error) {
	b.Helper()
	sshd, err := exec.LookPath("/usr/sbin/sshd")
	if err != nil {
		return nil, err
	}
	account, attr, err := ordinaryUser()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "pocketcoder-sshd-") // not b.TempDir, which others may not enter
	if err != nil {
		return nil, err
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	file := func(name string) string { return filepath.Join(dir, name) }
	for _, key := range []string{"host", "mine"} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f",
			file(key)).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("make key: %w: %s", err, out)
		}
	}
	uid, _ := strconv.Atoi(account.Uid)
	if err := errors.Join(os.Chmod(dir, 0o711), os.Chown(file("host"), uid, -1),
		os.Chmod(file("mine.pub"), 0o644)); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	cmd := exec.Command(sshd, "-D", "-e", "-f", "/dev/null", "-h", file("host"), "-p", port, "-o",
		"ListenAddress=127.0.0.1", "-o", "PidFile=none",
		"-o", "AuthorizedKeysFile="+file("mine.pub"), "-o", "StrictModes=no", "-o", "UsePAM=no", "-o",
		"PasswordAuthentication=no")
	var output bytes.Buffer
	cmd.Stderr, cmd.SysProcAttr = &output, attr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	b.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	connect = func(args ...string) *exec.Cmd {
		return exec.Command("ssh", append([]string{"-F", "none", "-q", "-i", file("mine"), "-p", port, "-l", account.Username,
			"-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o",
			"UserKnownHostsFile=/dev/null", "127.0.0.1"}, args...)...)
	}
	var out []byte
	for range 50 {
		if out, err = connect("true").CombinedOutput(); err == nil {
			return connect, nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return nil, fmt.Errorf("connect to sshd: %w: %s%s", err, out, output.String())
}

// ordinaryUser is who runs this, or for root, whose sshd needs a directory of the system, the first ordinary user.
func ordinaryUser() (*osuser.User, *syscall.SysProcAttr, error) {
	if os.Getuid() != 0 {
		me, err := osuser.Current()
		return me, nil, err
	}
	account, err := osuser.LookupId("1000")
	return account, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}, err
}

// openTmux types into a terminal's shell and looks every 200 ms whether the mark that follows the output is there.
func openTmux(b *testing.B) func(string, io.Writer) func() error {
	b.Helper()
	socket := filepath.Join(b.TempDir(), "tmux")
	tmux := func(args ...string) ([]byte, error) {
		return exec.Command("tmux", append([]string{"-S", socket, "-f", os.DevNull}, args...)...).Output()
	}
	if _, err := tmux("new-session", "-d", "-x", "200", "-y", "50", "sh"); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { tmux("kill-server") })
	n := 0
	return func(command string, out io.Writer) func() error {
		n++
		began, ended := fmt.Sprintf("began-%d", n), fmt.Sprintf("ended-%d-0", n)
		return func() error {
			if _, err := tmux("send-keys", "-l", fmt.Sprintf("clear; echo began-%d; %s; echo ended-%d-$?", n, command,
				n)); err != nil {
				return err
			}
			if _, err := tmux("send-keys", "Enter"); err != nil {
				return err
			}
			for {
				time.Sleep(200 * time.Millisecond)
				screen, err := tmux("capture-pane", "-p")
				if err != nil {
					return err
				}
				_, after, _ := strings.Cut("\n"+string(screen), "\n"+began+"\n")
				if output, _, found := strings.Cut("\n"+after, "\n"+ended+"\n"); found {
					_, err := io.WriteString(out, strings.TrimPrefix(output+"\n", "\n"))
					return err
				}
			}
		}
	}
}
