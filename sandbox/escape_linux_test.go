package sandbox

import (
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
	"pocketcoder/sandbox/isolation"
	"pocketcoder/sandbox/wire"
)

func TestIsolationHidesTheFilesOfTheMachine(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, choice isolation.Choice) {
		j := newTestWorker(t, choice, nil)
		const gone = "EACCES ENOENT"
		escapes := []escape{
			{"read %o/file", gone, true}, {"write %o/file", gone + " EROFS", true}, {"create %o/new", gone + " EROFS", true},
			{"list %o", gone, true}, {"read %d/keys", gone, true}, {"create %d/new", gone + " EROFS", true},
			{"link %o/file %w/stolen", gone + " EXDEV", true}, {"rename %o/file %w/sub/stolen", gone + " EXDEV EROFS", true},
			{"rename %w/sub/file %o/left", gone + " EXDEV EROFS", false},
			{"write /etc/passwd", "EACCES EROFS", false}, {"create /usr/new", "EACCES EROFS", false}, {"create /new", "EACCES EROFS", false},
			{"mkdir /dev/new", "EACCES EROFS", false}, {"node %w/disk", "EPERM EACCES", false}, {"write /proc/sys/kernel/core_pattern", "EACCES EROFS", false},
			{"list /root", gone, false}, {"list /home", gone, false}, {"list /sys", gone, false}, {"list /srv", gone, false},
			{"read /etc/shadow", gone, false}, {"read /etc/gshadow", gone, false}, {"list /etc/ssl/private", gone, false},
			{"read /proc/%v/environ", gone + " ESRCH", true}, {"read /proc/%v/maps", gone + " ESRCH", true}, {"read /proc/%v/fd/0", gone + " ESRCH", true},
			{"write /proc/%v/mem", gone + " ESRCH", true}, {"read /proc/%v/root/etc/passwd", gone + " ESRCH", true},
			{"chmod /usr", "EACCES EPERM EROFS", false},
		}
		modes := []escape{ // before the other attempts, which remove files
			{"chown %o/file", gone + " EPERM EROFS", true}, {"chown %d/keys", gone + " EPERM EROFS", true},
		}
		for _, call := range []string{"chmod", "fchmod", "fchmodat", "fchmodat2", "path", "list"} {
			for _, at := range []string{"%o/file", "%d", "%d/keys", "%o/.."} {
				modes = append(modes, escape{"mode " + call + " " + at + " 0700", gone + " EROFS ENOTSUP EBADF",
					call != "path" && call != "list"})
			}
		}
		escapes = append(modes, escapes...)
		if choice.Level == isolation.Landlock { // with bubblewrap this is its own
			escapes = append(escapes, escape{"read /proc/1/environ", gone, false}, escape{"list /run", gone, false})
		}
		j.run(t, escapes)
	})
}

// It is not parallel: a command of another test may start when a secret is removed.
func TestNewSecretsOfTheSystemAreHiddenFromTheNextCommand(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root writes there")
	}
	for _, choice := range levels(t) {
		t.Run(string(choice.Level), func(t *testing.T) {
			is := is.New(t)
			j := newTestWorker(t, choice, nil)
			is.Equal(j.try("read /etc/passwd"), []string{"ok"})
			var dirs []string
			for _, place := range []string{"/etc", "/opt", "/usr/local"} {
				dir, err := os.MkdirTemp(place, "pocketcoder-test-")
				is.NoErr(err)
				t.Cleanup(func() { os.RemoveAll(dir) })
				is.NoErr(os.Chmod(dir, 0o755))
				is.NoErr(os.WriteFile(filepath.Join(dir, "file"), []byte("secret"), 0o644))
				is.NoErr(os.Mkdir(filepath.Join(dir, "folder"), 0o755))
				is.NoErr(os.WriteFile(filepath.Join(dir, "folder", "inner"), []byte("secret"), 0o600))
				dirs = append(dirs, dir)
			}
			each := func(escapes ...escape) {
				t.Helper()
				var all []escape
				for _, dir := range dirs {
					for _, e := range escapes {
						e.attempt = strings.ReplaceAll(e.attempt, "%f", dir)
						all = append(all, e)
					}
				}
				j.run(t, all)
			}
			change := func(file, folder fs.FileMode) {
				for _, dir := range dirs {
					is.NoErr(os.Chmod(filepath.Join(dir, "file"), file))
					is.NoErr(os.Chmod(filepath.Join(dir, "folder"), folder))
				}
			}
			each(escape{"read %f/file", "ok", false}, escape{"read %f/folder/inner", "EACCES", true})
			change(0o600, 0o700)
			each(escape{"read %f/file", "EACCES", true}, escape{"list %f/folder", "EACCES", true},
				escape{"read %f/folder/inner", "EACCES ENOENT", true})
			change(0o644, 0o755)
			each(escape{"read %f/file", "ok", false}, escape{"read %f/folder/inner", "EACCES", true})
		})
	}
}

func TestIsolationDeniesTheMachinesNetworkAndSockets(t *testing.T) {
	t.Parallel()
	tcp, err := net.Listen("tcp", "127.0.0.1:0") // as NATS, OpenCode and the web server listen
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tcp.Close() })
	dir, err := os.MkdirTemp("/var/tmp", "pc") // short: a socket's name takes 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "docker.sock")
	path, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { path.Close() })
	abstract := fmt.Sprintf("@pocketcoder-test-%d", os.Getpid())
	hidden, err := net.Listen("unix", abstract)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hidden.Close() })
	log, err := net.ListenPacket("unixgram", filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	eachLevelAndContainer(t, func(t *testing.T, choice isolation.Choice) {
		const cut = "EPERM ECONNREFUSED ENETUNREACH ENOENT"
		escapes := []escape{
			// the listeners of the test
			{"tcp %t", cut, true}, {"unix %s", cut, true}, {"unix %a", cut, true}, {"datagram %l", cut, true},
			{"pair 1 1", "ok", true}, {"pair 1 5", "ok", true}, // programs start children with them
			{"tcp 169.254.169.254:80", cut, false}, {"udp 169.254.169.254:53", cut, false}, {"udp 192.0.2.1:53", cut, false}, {"tcp 192.0.2.1:443", cut, false},
			{"mptcp %t", cut, false}, {"fastopen %t", cut, false},
			// packet, vsock, alg
			{"socket 17 3 0", "EPERM", false}, {"socket 40 1 0", "EPERM", false}, {"socket 38 5 0", "EPERM", false},
			{"socket 16 3 9", "EPERM", false}, {"socket 16 3 12", "EPERM", false}, // netlink: audit, netfilter
		}
		if choice.Level != isolation.Bwrap {
			escapes = append(escapes, escape{"socket 1 1 0", "EPERM", true}, escape{"bind 127.0.0.1:0", "EPERM", true},
				escape{"socket 16 3 0", "EPERM", true},
				// both datagrams, and TIPC
				escape{"pair 1 2", "EPERM", true}, escape{"pair 1 3", "EPERM", true}, escape{"pair 30 1", "EPERM", false})
		}
		newTestWorker(t, choice, nil).run(t, escapes, "%t", tcp.Addr().String(), "%s", socket, "%a", abstract, "%l",
			log.LocalAddr().String())
	})
}

func TestIsolationPreventsPrivilegeEscalation(t *testing.T) {
	t.Parallel()
	eachLevelAndContainer(t, func(t *testing.T, choice isolation.Choice) {
		j := newTestWorker(t, choice, nil)
		escapes := []escape{
			// user, mount, network
			{"unshare 0x10000000", "EPERM", false}, {"unshare 0x20000", "EPERM", false}, {"unshare 0x40000000", "EPERM", false},
			{"clone 0x10000000", "EPERM", false}, {"clone3 0x10000000", "EPERM ENOSYS", false}, {"clone3 0x20000", "EPERM ENOSYS", false},
			{"clone 0x20000000", "EPERM", false}, {"setns /proc/self/ns/net", "EPERM", false}, {"setns /proc/self/ns/mnt", "EPERM", false},
			{"mount %w", "EPERM", false}, {"umount /proc", "EPERM", false}, {"remount /usr", "EPERM", false}, {"umount %w", "EPERM", false}, {"chroot %w", "EPERM", false},
			{"ptrace %v", "EPERM", false}, {"peek %v", "EPERM", false}, {"kill 1", "EPERM ok", false},
			{"sti", "EPERM", false}, {"lease /proc/self/exe", "EPERM", false}, {"foreign", "EPERM", false}, {"shed", "EPERM", true}, {"limit %v", "EPERM ESRCH", true},
		}
		for _, call := range []int{
			syscall.SYS_PIVOT_ROOT, syscall.SYS_KEXEC_LOAD, syscall.SYS_INIT_MODULE, syscall.SYS_REBOOT, syscall.SYS_SWAPON,
			syscall.SYS_QUOTACTL,
			syscall.SYS_ADD_KEY, syscall.SYS_REQUEST_KEY, syscall.SYS_KEYCTL, syscall.SYS_PERF_EVENT_OPEN,
			syscall.SYS_FANOTIFY_INIT, syscall.SYS_ACCT,
			425, 426, 427, // io_uring
			321, 323, 304, 312, 438, // bpf, userfaultfd, open_by_handle_at, kcmp, pidfd_getfd
			428, 429, 430, 431, 432, 433, 442, 467, // the newer calls for mounts
		} {
			escapes = append(escapes, escape{fmt.Sprintf("call %d", call), "EPERM", false})
		}
		if choice.Level == isolation.Container {
			// the worker's
			escapes = append(escapes, escape{"read /proc/%p/environ", "EACCES", false},
				escape{"write /proc/%p/mem", "EACCES", false})
		} else {
			escapes = append(escapes, escape{"kill %v", "EPERM ESRCH", true})
		}
		if choice.Level == isolation.Bwrap { // it has memory and queues of its own
			escapes = append(escapes, escape{"segment 56", "ok", false}, escape{"segment 65536", "ok", false},
				escape{"segment 65537", "EPERM", false}, escape{"segment 0x100000038", "EPERM", false})
		} else {
			for _, call := range []int{syscall.SYS_SHMGET, syscall.SYS_SHMAT, syscall.SYS_SEMGET, syscall.SYS_MSGGET} {
				escapes = append(escapes, escape{fmt.Sprintf("call %d", call), "EPERM", false})
			}
		}
		j.run(t, escapes, "%p", fmt.Sprint(os.Getpid()))
		is := is.New(t)
		is.Equal(j.try("privileges"), []string{"ok"}) // no capabilities, and none can be gained
	})
}

// Another user of the machine who executes such a file gains the rights of the file's owner or group.
func TestIsolationDeniesSetUserIDBits(t *testing.T) {
	t.Parallel()
	eachLevelAndContainer(t, func(t *testing.T, choice isolation.Choice) {
		j := newTestWorker(t, choice, nil)
		var escapes, ordinary []escape
		for _, call := range []string{"chmod", "fchmod", "fchmodat", "fchmodat2", "open", "nameless", "mknod"} {
			for _, mode := range []string{"04755", "02755", "06711"} {
				escapes = append(escapes, escape{"mode " + call + " %w/sub/file " + mode, "EPERM", mode == "04755"})
			}
			ordinary = append(ordinary, escape{"mode " + call + " %w/sub/file 01755", "ok", false})
		}
		escapes = append(escapes, escape{"mode openat2 %w/sub/file 04755", "ENOSYS", true},
			escape{"mode chmod %w/sub 02755", "EPERM", true})
		if j.mounts && choice.Level != isolation.Container {
			ordinary = append(ordinary, escape{"nosuid", "ok", false})
		}
		j.run(t, escapes)
		j.run(t, ordinary)
	})
}

func TestIsolationClosesInheritedDescriptors(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	// the parent of a worker may leave it open descriptors
	leak, err := syscall.Open("/", syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
	is.NoErr(err)
	t.Cleanup(func() { syscall.Close(leak) })
	eachLevel(t, func(t *testing.T, choice isolation.Choice) {
		is := is.New(t)
		is.Equal(newTestWorker(t, choice, nil).try("descriptors"), []string{"ok"})
	})
}

func TestIsolationCannotBeEscapedBySymlinks(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, choice isolation.Choice) {
		is := is.New(t)
		j := newTestWorker(t, choice, nil)
		for name, to := range map[string]string{"out": j.dir + "/other", "keys": j.dir + "/data/keys", "slash": "/"} {
			is.NoErr(os.Symlink(to, filepath.Join(j.workspace, "sub", name)))
		}
		j.run(t, []escape{
			{"read %w/sub/out/file", "EACCES ENOENT", false}, {"create %w/sub/out/new", "EACCES ENOENT EROFS", false}, {"read %w/sub/keys", "EACCES ENOENT", false},
			{"write %w/sub/keys", "EACCES ENOENT EROFS", false}, {"list %w/sub/slash/root", "EACCES ENOENT", false}, {"create %w/sub/slash/new", "EACCES EROFS", false},
			{"read %w/../other/file", "EACCES ENOENT", true},
		})
		r := j.request("pwd")
		r.Cwd = filepath.Join(j.workspace, "sub/out")
		result := j.Exec(t.Context(), r, io.Discard, io.Discard)
		is.Equal(result.Reason, wire.Refused)
	})
}

func TestIsolationIgnoresSetUserIDBits(t *testing.T) {
	program := os.Getenv("SANDBOX_TEST_SETUID")
	if program == "" {
		t.Skip("runs as another user, see TestIsolationWorksForAnotherUser")
	}
	t.Parallel()
	eachLevel(t, func(t *testing.T, choice isolation.Choice) {
		is := is.New(t)
		w, err := Open(Config{Isolation: choice, Workspace: t.TempDir(), Home: t.TempDir(),
			Expose: []string{filepath.Dir(program)}, Log: slog.New(slog.DiscardHandler)})
		is.NoErr(err)
		t.Cleanup(w.Close)
		_, stdout, _ := run(t, w, program+" "+attemptName+" euid")
		is.Equal(stdout, fmt.Sprintf("euid %d\n", os.Getuid()))
		_, stdout, _ = run(t, open(t), program+" "+attemptName+" euid")
		is.Equal(stdout, "euid 0\n") // else this proves nothing
	})
}

// TestIsolationWorksForAnotherUser runs tests once more as a user without rights. For that user bubblewrap makes a user
// namespace, landlock has no mounts, and file modes stop the worker too. What does not depend on these is left out.
func TestIsolationWorksForAnotherUser(t *testing.T) {
	expect.Long(t, "runs the escapes again")
	t.Parallel()
	runAsAnotherUser(t, "TestIsolationHidesTheFilesOfTheMachine", "TestIsolationDeniesTheMachinesNetworkAndSockets",
		"TestIsolationPreventsPrivilegeEscalation", "TestIsolationDeniesSetUserIDBits",
		"TestIsolationClosesInheritedDescriptors", "TestIsolationIgnoresSetUserIDBits",
		"TestIsolationAllowsConnectionsToTheProxyOnly", "TestIsolationKillsAllProcessesOfAKilledWorker",
		"TestIsolationPreventsCreatingProtectedFilesInGit", "TestIsolationPreventsCreatingARepository",
		"TestIsolationPreventsChangingProtectedFiles", "TestIsolationProtectsARepositoryThatAGitFileNames",
		"TestIsolationDoesNotFollowProtectedSymlinks", "TestIsolationAllowsOrdinaryWork",
		"TestIsolationLetsWorktreesBeMadeAndCommittedInWhereTheWorkspaceIsTheRepository",
		"TestQuarantineTakesANewProtectedName", "TestQuarantineStopsALoop")
}

// runAsAnotherUser runs tests as a user without rights.
func runAsAnotherUser(t *testing.T, tests ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("root alone can become another user")
	}
	is := is.New(t)
	dir, err := os.MkdirTemp("/var/tmp", "pocketcoder-user-")
	is.NoErr(err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	program, privileged, temp := filepath.Join(dir, "sandbox.test"), filepath.Join(dir, "setuid", "attempt"),
		filepath.Join(dir, "tmp")
	is.NoErr(os.Chmod(dir, 0o755))
	is.NoErr(os.Mkdir(filepath.Dir(privileged), 0o755))
	is.NoErr(os.Mkdir(temp, 0o777))
	is.NoErr(os.Chmod(temp, 0o777))
	copySelf(t, program)
	copySelf(t, privileged)
	is.NoErr(os.Chmod(privileged, 0o755|os.ModeSetuid))
	cmd := exec.CommandContext(t.Context(), program, "-test.v", "-test.run", "^("+strings.Join(tests, "|")+")$")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}
	cmd.Dir = temp
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + temp, "TMPDIR=" + temp, "SANDBOX_TEST_SETUID=" + privileged,
		"CI=" + os.Getenv("CI")}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, regexp.MustCompile(`(?m)^\s*(===|--- (PASS|SKIP)).*\n`).ReplaceAll(out, nil))
	}
	for _, name := range tests {
		expect.Contains(t, string(out), "--- PASS: "+name+" ")
	}
}
