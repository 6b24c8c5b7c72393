// Package viewer looks into the sandbox: windows of tmux that follow the commands of a chat, and shells in the sandbox
// at a terminal.
//
// Promises: no key of the viewer runs anything on this machine but this program, and nothing that is printed in it
// reaches the terminal except as text.
//
// It must not know events, or what the programs in its windows show.
package viewer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"pocketcoder/bridge/opencode/install"
	"pocketcoder/cmd/client"
	"pocketcoder/cmd/datadir"
)

// Viewer is the tmux server of a data directory, with a session for each chat that is viewed. A client may hold
// nothing but an SSH key. The viewer only shows: nothing is read back from it.
type Viewer struct {
	data   datadir.Dir
	system []string // the flags that say which system it shows
	tmux   string   // path
	self   string   // path of this program
}

// tmuxOldest is the first version of tmux that does not let what is printed pass through it to the terminal: tmux's
// CHANGES of 3.3 say allow-passthrough, off by default.
var tmuxOldest = [2]int{3, 3}

// Get says how to get tmux.
const Get = "apt install tmux, version 3.3 or newer"

// Open finds tmux. It returns an error if tmux is missing or too old.
func Open(ctx context.Context, at client.Address) (Viewer, error) {
	v := Viewer{data: datadir.Dir(datadir.Absolute(string(at.State()))), system: at.Args()}
	var err error
	if v.tmux, err = exec.LookPath("tmux"); err != nil {
		return v, errors.New("tmux is not on PATH; " + Get)
	}
	version, err := install.VersionOf(ctx, v.tmux, "-V")
	if err != nil {
		return v, err
	}
	if TooOld(version) {
		return v, fmt.Errorf("%s lets what is printed pass through to your terminal; %s", version, Get)
	}
	if v.self, err = os.Executable(); err != nil {
		return v, err
	}
	if path := v.socket(); len(path) > maxSocket() {
		return v, fmt.Errorf("the path of tmux's socket, %s, has %d bytes, and the system takes %d: choose a shorter --data",
			path, len(path), maxSocket())
	}
	return v, nil
}

// TooOld reports whether a version of tmux, such as "tmux 3.2a", is known to be too old.
func TooOld(version string) bool {
	found := regexp.MustCompile(`(\d+)\.(\d+)`).FindStringSubmatch(version)
	if found == nil { // built from its repository
		return false
	}
	major, _ := strconv.Atoi(found[1])
	minor, _ := strconv.Atoi(found[2])
	return slices.Compare([]int{major, minor}, tmuxOldest[:]) < 0
}

func (v Viewer) socket() string { return v.data.Path("tmux", "socket") }

// maxSocket is how long the path of a socket may be, without the zero at its end: unix(7), and macOS's unix(4).
func maxSocket() int {
	if runtime.GOOS == "linux" {
		return 107
	}
	return 103
}

// Show makes sure that the chat has its session, and that its first window follows the chat. It returns the id of the
// session. No other session ever has that id: a session that replaces this one has another.
func (v Viewer) Show(ctx context.Context, chat string) (session string, err error) {
	first := "=" + chat + ":0"
	if err := os.MkdirAll(filepath.Dir(v.socket()), 0o700); err != nil {
		return "", err
	}
	if v.run(ctx, "has-session", "-t", "="+chat) != nil {
		// One command after another, and the session is the last of them: if tmux does not take a setting, there is none.
		all := append(tmuxSettings(v.self), append([]string{"new-session", "-d", "-s", chat, "-n", "transcript", "-c", "/",
			"--"}, v.transcript(chat, "--windows")...))
		made := v.run(ctx, joined(all)...)
		// even after an error: another process may just have created it
		if err := v.run(ctx, "has-session", "-t", "="+chat); err != nil {
			return "", errors.Join(made, err)
		}
	}
	// A transcript that ended, because the system was gone, leaves its window: respawn-pane refuses when it has not.
	_ = v.run(ctx, append([]string{"respawn-pane", "-t", first, "--"}, v.transcript(chat, "--windows")...)...)
	shell := tmuxLine(append([]string{"new-window", "-n", "shell", "-c", "/", "--"}, v.shell(chat)...))
	id, err := v.output(ctx, joined(append(only(first), []string{"set-option", "-t", "=" + chat + ":", "@shell", shell},
		[]string{"display-message", "-p", "-t", first, "#{session_id}"}))...)
	return strings.TrimSpace(id), err
}

// Follow opens a window with the transcript of a subagent, and stays where it is. Like that of the chat it takes no
// keys.
func (v Viewer) Follow(ctx context.Context, chat, name, session string) error {
	window := append([]string{"new-window", "-d", "-t", "=" + chat + ":", "-n", name, "-c", "/", "--"},
		v.transcript(chat, "--session", session)...)
	return v.run(ctx, joined(append([][]string{window}, only("="+chat+":="+name)...))...)
}

// CloseWindow closes a window that Follow has opened, because tmux may keep it when its program has ended (see only).
// It does nothing if the window is closed already.
func (v Viewer) CloseWindow(ctx context.Context, chat, name string) {
	_ = v.run(ctx, "kill-window", "-t", "="+chat+":="+name)
}

// only makes a window show a transcript and nothing else: it takes no keys, and the reason why the transcript failed
// stays. For that, tmux waits for a signal (SIGCHLD) when the program has ended. While libutempter handles that signal,
// tmux misses it and keeps the window. So shells have no such windows, and CloseWindow closes those of subagents.
func only(window string) [][]string {
	return [][]string{{"select-pane", "-d", "-t", window}, {"set-option", "-p", "-t", window, "remain-on-exit", "failed"}}
}

// OpenShell opens a window with a shell of an account's own, or the operator's, inside the isolation, and goes there.
func (v Viewer) OpenShell(ctx context.Context, chat, user string) error {
	words := append(v.shell(chat), "--user="+user)
	return v.run(ctx, append([]string{"new-window", "-t", "=" + chat + ":", "-n", "shell", "-c", "/", "--"}, words...)...)
}

// Enter stores the account of a process that becomes a client: a session may have clients of several accounts. Each
// attach stores it anew, which replaces the account of an earlier process with the same id.
func (v Viewer) Enter(ctx context.Context, pid int, user string) error {
	return v.run(ctx, "set-option", "-s", clientOption(pid), "for "+user)
}

// clientUser returns the account of a client, empty for the operator. It returns an error if Enter stored none.
func (v Viewer) clientUser(ctx context.Context, pid int) (string, error) {
	out, err := v.output(ctx, "show-options", "-sqv", clientOption(pid))
	if err != nil {
		return "", err
	}
	user, noted := strings.CutPrefix(strings.TrimSuffix(out, "\n"), "for ")
	if !noted {
		return "", fmt.Errorf("process %d has not attached; attach again", pid)
	}
	return user, nil
}

func clientOption(pid int) string { return "@user-" + strconv.Itoa(pid) }

func (v Viewer) Windows(ctx context.Context, chat string) ([]string, error) {
	out, err := v.output(ctx, "list-windows", "-t", "="+chat, "-F", "#{window_name}")
	return strings.Fields(out), err
}

func (v Viewer) transcript(chat string, more ...string) []string {
	return slices.Concat([]string{v.self, "transcript"}, v.system, more, []string{"--", chat})
}

func (v Viewer) shell(chat string) []string {
	return slices.Concat([]string{v.self, "sandbox", "shell"}, v.system, []string{"--stay", "--", chat})
}

// run lets tmux do something. The arguments are its own: no shell reads them.
func (v Viewer) run(ctx context.Context, args ...string) error {
	_, err := v.output(ctx, args...)
	return err
}

// tmuxTime bounds one run of tmux, which takes milliseconds.
const tmuxTime = 20 * time.Second

func (v Viewer) output(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, tmuxTime)
	defer cancel()
	words := []string{"-S", v.socket(), "-f", os.DevNull}
	for _, word := range args {
		// tmux takes a semicolon at a word's end for the end of the command
		if before, ok := strings.CutSuffix(word, ";"); ok && before != "" {
			word = before + `\;`
		}
		words = append(words, word)
	}
	cmd := exec.CommandContext(ctx, v.tmux, words...)
	cmd.Env = append(viewerEnvironment(os.Getenv), "TERM=xterm-256color")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("tmux %s: %s", args[0], cmp.Or(strings.TrimSpace(string(out)), err.Error()))
	}
	return string(out), nil
}

// viewerEnvironment is that of the tmux server, and so of what runs in its windows, but for TERM.
func viewerEnvironment(getenv func(string) string) []string {
	env := []string{"LANG=C.UTF-8"}
	for _, name := range []string{"PATH", "HOME", "USER", "TZ", "NO_COLOR", "XDG_CONFIG_HOME"} {
		if value := getenv(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// Stop ends the tmux server of a data directory, and with it every session, if there is one.
func Stop(data datadir.Dir) {
	socket := Viewer{data: data}.socket()
	if _, err := os.Stat(socket); err != nil {
		return
	}
	if v, err := Open(context.Background(), client.Address{Data: data}); err == nil {
		_ = v.run(context.Background(), "kill-server") // it fails when none is there any more
	}
	_ = os.Remove(socket) // what is left makes no difference to the next one
}

// Sessions returns the chats that have a session.
func Sessions(ctx context.Context, data datadir.Dir) (chats []string, err error) {
	if _, err := os.Stat(Viewer{data: data}.socket()); err != nil {
		return nil, nil
	}
	v, err := Open(ctx, client.Address{Data: data})
	if err != nil {
		return nil, fmt.Errorf("list the viewers: %w", err)
	}
	names, err := v.output(ctx, "list-sessions", "-F", "#{session_name}")
	if err != nil { // the tmux server has no session any more
		return nil, nil
	}
	return strings.Fields(names), nil
}

// End closes a chat's session with all its windows, if the data directory has a tmux server.
func End(ctx context.Context, data datadir.Dir, chat string) error {
	if _, err := os.Stat(Viewer{data: data}.socket()); err != nil {
		return nil
	}
	v, err := Open(ctx, client.Address{Data: data})
	if err == nil {
		err = v.End(ctx, chat)
	}
	if err != nil {
		return fmt.Errorf("close the viewer of chat %s: %w", chat, err)
	}
	return nil
}

// End closes a chat's session with all its windows, if there is one. A program in one of them ends with it.
func (v Viewer) End(ctx context.Context, chat string) error {
	if v.run(ctx, "has-session", "-t", "="+chat) != nil {
		return nil
	}
	return v.run(ctx, "kill-session", "-t", "="+chat)
}

// Attach makes this process a client of the session with the id that Show has returned. It returns only if it fails,
// such as when End has closed that session.
func (v Viewer) Attach(ctx context.Context, session string, getenv func(string) string) error {
	// TMUX would make it refuse to run inside another one
	environment := append(viewerEnvironment(getenv), "TERM="+terminalKind(ctx, getenv))
	return syscall.Exec(v.tmux, []string{"tmux", "-u", "-S", v.socket(), "attach-session", "-t", session}, environment)
}

// terminalKind is TERM, or what nearly every terminal understands when this machine has no description of that one.
func terminalKind(ctx context.Context, getenv func(string) string) string {
	kind := getenv("TERM")
	probe := exec.CommandContext(ctx, "tput", "-T", kind, "longname")
	probe.Env = viewerEnvironment(getenv)
	if err := probe.Run(); errors.As(err, new(*exec.ExitError)) {
		return "xterm-256color"
	}
	return kind
}

// AccountOfClient returns the account for which a client of the viewer was attached, empty for the operator.
func AccountOfClient(ctx context.Context, at client.Address, process string) (string, error) {
	pid, err := strconv.Atoi(process)
	if err != nil {
		return "", err
	}
	v, err := Open(ctx, at)
	if err != nil {
		return "", err
	}
	return v.clientUser(ctx, pid)
}
