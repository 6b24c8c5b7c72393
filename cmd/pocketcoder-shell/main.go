// Command pocketcoder-shell is the shell that OpenCode's bash tool runs: pocketcoder-shell -c COMMAND. It runs nothing
// itself. It asks the bridge over a socket to have the command run, copies the output to stdout and stderr as it
// arrives, and exits with the command's exit code.
//
//	OPENCODE_SESSION_ID, OPENCODE_CALL_ID  name the tool call; PocketCoder's plugin in OpenCode sets them. Without them the command is refused
//	POCKETCODER_SOCKET                     address of the bridge, unix:PATH or tcp:PORT/SECRET
//
// Exit 126 and one line on stderr mean that the command was not run. SIGTERM, SIGINT and SIGHUP cancel it, exit 128+n;
// so does a closed stdout or stderr, exit 141. Exit 255 and a line on stderr: the answer was lost, the command may
// have run.
//
// It links a few packages of the standard library and shellsocket, because it starts once per command.
package main

import (
	"errors"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"pocketcoder/bridge/opencode/shellsocket"
)

// Exit codes of a command that was not run, and of one whose answer was lost.
const (
	exitRefused = 126
	exitLost    = 255
)

// cancelWait bounds how long the shell waits for the command to end after it was cancelled. OpenCode kills the shell
// 3 s after SIGTERM.
const cancelWait = 3 * time.Second

func main() {
	code, message := run()
	if message != "" {
		os.Stderr.WriteString("pocketcoder-shell: " + message + "\n")
	}
	os.Exit(code)
}

// run returns the exit code, and a message if the exit code does not say enough.
func run() (code int, message string) {
	r, address, err := request()
	if err != nil {
		return exitRefused, "not run: " + err.Error()
	}
	bridge, err := dial(address)
	if err != nil {
		return exitRefused, "not run: connect to PocketCoder: " + err.Error()
	}
	c := &call{bridge: bridge}
	// A write to a closed pipe then is an error instead of the end of this process.
	signal.Ignore(syscall.SIGPIPE)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	go func() { c.cancel(128 + int((<-signals).(syscall.Signal))) }()
	if _, err := bridge.Write(r.Frame()); err != nil {
		return exitRefused, "not run: send the command to PocketCoder: " + err.Error()
	}
	code, message = c.copy()
	if cancelled := c.cancelled.Load(); cancelled != 0 {
		return int(cancelled), ""
	}
	return code, message
}

// request returns the request and the bridge's address.
func request() (r shellsocket.Request, address string, err error) {
	if len(os.Args) != 3 || os.Args[1] != "-c" {
		return r, "", errors.New("this shell only runs the commands of an agent: pocketcoder-shell -c COMMAND")
	}
	r.Command = os.Args[2]
	if r.Session = os.Getenv("OPENCODE_SESSION_ID"); r.Session == "" {
		return r, "", errors.New("OPENCODE_SESSION_ID is not set, so this is not the command of an agent")
	}
	if r.Call = os.Getenv("OPENCODE_CALL_ID"); r.Call == "" {
		return r, "", errors.New("OPENCODE_CALL_ID is not set, so this is not the command of an agent")
	}
	if address = os.Getenv(shellsocket.Variable); address == "" {
		return r, "", errors.New(shellsocket.Variable + " is not set")
	}
	// Not os.Getwd, which believes $PWD: two paths to one directory would be two different requests to the policy.
	if r.Cwd, err = syscall.Getwd(); err != nil {
		return r, "", errors.New("read the working directory: " + err.Error())
	}
	return r, address, nil
}

// call is a requested command.
type call struct {
	bridge    *os.File
	cancelled atomic.Int32 // the exit code, once the command is cancelled
}

// cancel asks the bridge to cancel the command. The shell exits with code once the command has ended, or after
// cancelWait, even if a write to stdout blocks.
func (c *call) cancel(code int) {
	if !c.cancelled.CompareAndSwap(0, int32(code)) {
		return
	}
	// an error means that the bridge is gone, which copy notices
	c.bridge.Write(shellsocket.Append(nil, shellsocket.Cancel, ""))
	time.AfterFunc(cancelWait, func() { os.Exit(code) })
}

// copy copies the command's output until the command has finished, and returns its exit code and the bridge's message.
func (c *call) copy() (code int, message string) {
	frames, isAccepted := shellsocket.NewReader(c.bridge, shellsocket.MaxOutput), false
	for {
		kind, body, err := frames.Next()
		switch {
		case err == io.EOF:
			return ended(isAccepted, "the connection to PocketCoder ended")
		case err != nil:
			return ended(isAccepted, "the connection to PocketCoder broke: "+err.Error())
		case kind == shellsocket.Accepted:
			isAccepted = true
		case kind == shellsocket.Stdout:
			c.write(os.Stdout, body)
		case kind == shellsocket.Stderr:
			c.write(os.Stderr, body)
		case kind == shellsocket.Finished && len(body) > 0:
			return int(body[0]), string(body[1:])
		default:
			return ended(isAccepted, "PocketCoder sent a frame that this shell does not know; use a pocketcoder-shell of its version")
		}
	}
}

// ended returns the exit code and the message if the connection ends before the result.
func ended(isAccepted bool, why string) (code int, message string) {
	if isAccepted {
		return exitLost, "lost, the command may have run: " + why
	}
	return exitRefused, "not run: " + why
}

// write writes output. A failed write cancels the command; further output is then ignored.
func (c *call) write(to *os.File, output []byte) {
	if c.cancelled.Load() == 128+int32(syscall.SIGPIPE) {
		return
	}
	if _, err := to.Write(output); err != nil {
		c.cancel(128 + int(syscall.SIGPIPE))
	}
}
