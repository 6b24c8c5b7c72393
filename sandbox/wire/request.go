package wire

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"path"
	"path/filepath"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Request asks for one command to be run, or, when it names an Op, for something else of a worker.
type Request struct {
	// names the call on its leg, one token; Call makes one when empty. The handler uses its own towards the worker
	Exec    string `json:"exec,omitempty"`
	Op      Op     `json:"op,omitempty"`      // Run when empty
	Session string `json:"session,omitempty"` // OpenCode's session id, one token
	// the tool call's id, given by the model provider: at most 256 printable bytes
	Call string `json:"call,omitempty"`
	// passed to the shell's -c, byte for byte; UTF-8 without NUL, at most MaxCommand bytes. Empty with a Terminal: the
	// shell itself
	Command string `json:"command,omitempty"`
	Cwd     string `json:"cwd,omitempty"` // absolute
	// absolute; Cwd must lie inside. Set by the handler: what the shell writes here is ignored. Only workers of it answer
	Workspace string    `json:"workspace,omitempty"`
	TimeoutMS int64     `json:"timeout_ms,omitempty"`
	Terminal  *Terminal `json:"terminal,omitempty"` // run it at a terminal: what it prints is stdout
	// URL of the HTTP proxy the command may use, with credentials; empty is no network
	Network string `json:"network,omitempty"`
	Ports   bool   `json:"ports,omitempty"` // what it serves on 127.0.0.1 may be reached with Dial

	Path  string `json:"path,omitempty"`  // of Read: relative to the workspace
	Since int64  `json:"since,omitempty"` // of Changes: a Result's Began
	Port  int    `json:"port,omitempty"`  // of Dial

	Account string `json:"account,omitempty"` // on PersonSubject: whose shell it is; empty for the operator's

	// what the caller says while the command runs; nil for nothing. Like a body, it is no part of the encoded request
	Input   <-chan Input `json:"-"`
	Started func(Start)  `json:"-"` // called once, before any output, when a worker has taken the command
}

// Op is what a worker is asked for.
type Op string

const (
	Run     Op = ""        // run Command
	Changes Op = "changes" // list the workspace's files changed since Since: stdout is one Change in JSON a line
	Read    Op = "read"    // stdout is the file at Path
	// connect to 127.0.0.1:Port where the command Exec runs: Input is sent there, stdout is what comes back
	Dial Op = "dial"
)

// Connected is what stderr of a Dial says when there is a connection, and all it says.
const Connected = "connected"

// Terminal is the size of a terminal, in characters, and its kind, such as xterm-256color.
type Terminal struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
	Kind string `json:"kind,omitempty"`
}

// Input is something said to a running command: bytes typed, a new size of its terminal, or a signal to all its
// processes.
type Input struct {
	Data   []byte
	Size   *Terminal
	Signal string // "SIGTERM", …
}

// Start names the worker of a command and its isolation level.
type Start struct {
	Worker    string `json:"worker"`
	Isolation string `json:"isolation"` // bwrap, landlock, container or none
}

// MaxChanges is how many files Changes lists.
const MaxChanges = 1000

// Change is a file that was created or changed; in the last line of a list, instead of one, how many more there are.
type Change struct {
	Path   string `json:"path,omitempty"` // relative to the workspace
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256,omitempty"` // hex; empty when it is large or could not be read
	More   int    `json:"more,omitempty"`
}

// Reason says why a command ended other than by itself.
type Reason string

const (
	Exited     Reason = ""          // by itself: ExitCode, or Signal when something killed it
	Refused    Reason = "refused"   // never started; Error says why
	Cancelled  Reason = "cancelled" // the caller gave up: signal, abort or death of the shell
	TimedOut   Reason = "timeout"
	Memory     Reason = "memory" // the limits of a command: it needed more of …
	Processes  Reason = "processes"
	FileSize   Reason = "file-size"
	CPUTime    Reason = "cpu-time"
	OpenFiles  Reason = "open-files"
	OutputSize Reason = "output-size" // more was printed than is recorded
	Lost       Reason = "lost"        // the server vanished; whether the command ended is unknown
)

// Result is how a command ended. Serve fills the byte counts.
type Result struct {
	ExitCode int    `json:"exit_code"`        // 0-255; 128+n when killed by signal n; ExitRefused when refused
	Signal   string `json:"signal,omitempty"` // "SIGKILL", …
	Reason   Reason `json:"reason,omitempty"`
	// one line for a person, when Reason is Refused or Lost, or does not say enough
	Error       string `json:"error,omitempty"`
	DurationMS  int64  `json:"duration_ms"`
	StdoutBytes int64  `json:"stdout_bytes"`
	StderrBytes int64  `json:"stderr_bytes"`
	Began       int64  `json:"began,omitempty"` // when it started, by the worker's clock: Unix time in nanoseconds
}

// envelope is how a request travels.
type envelope struct {
	ID    string `json:"id,omitempty"`    // names the call on its leg; Exec when empty
	Input bool   `json:"input,omitempty"` // there will be input
	Request
}

// withID gives the call an id: that of the exec when it is to be run, a fresh one when something else is asked about
// it.
func (r Request) withID() envelope {
	e := envelope{Request: r, Input: r.Input != nil}
	switch {
	case r.Op != Run:
		e.ID = rand.Text()
	case r.Exec == "":
		e.Exec = rand.Text()
	}
	return e
}

func (e envelope) id() string { return cmp.Or(e.ID, e.Exec) }

// validate names the first field that is wrong.
func (e envelope) validate() error {
	r := e.Request
	switch {
	case !IsToken(r.Exec) && (r.Exec != "" || e.ID == ""):
		return errors.New("exec must be 1 to 64 letters, digits, _ or -")
	case e.ID != "" && !IsToken(e.ID):
		return errors.New("id must be 1 to 64 letters, digits, _ or -")
	case r.Session != "" && !IsToken(r.Session):
		return errors.New("session must be 1 to 64 letters, digits, _ or -")
	case len(r.Call) > maxCallID || !isPrintable(r.Call):
		return fmt.Errorf("call must be at most %d printable bytes", maxCallID)
	case r.Workspace != "" && !isAbsolute(r.Workspace):
		return errors.New("workspace must be an absolute path")
	case r.TimeoutMS < 0:
		return errors.New("timeout is negative")
	}
	switch r.Op {
	case Run:
		return r.validateRun()
	case Changes:
		if r.Since < 0 {
			return errors.New("since is negative")
		}
	case Read:
		if !filepath.IsLocal(r.Path) || len(r.Path) > maxPath || !isText(r.Path) {
			return errors.New("path must be relative and stay below the workspace")
		}
	case Dial:
		if r.Exec == "" || r.Port < 1 || r.Port > 65535 {
			return errors.New("dial needs an exec and a port from 1 to 65535")
		}
	default:
		return fmt.Errorf("op %q is unknown", r.Op)
	}
	return nil
}

func (r Request) validateRun() error {
	switch {
	case len(r.Command) > MaxCommand:
		return fmt.Errorf("command has %d bytes, at most %d are allowed", len(r.Command), MaxCommand)
	case strings.TrimSpace(r.Command) == "" && r.Terminal == nil:
		return errors.New("command is empty")
	case !isText(r.Command):
		return errors.New("command must be UTF-8 without NUL")
	case !isAbsolute(r.Cwd):
		return errors.New("cwd must be an absolute path")
	case len(r.Network) > maxPath || !isPrintable(r.Network):
		return fmt.Errorf("network must be a URL of at most %d printable bytes", maxPath)
	case r.Terminal != nil:
		return r.Terminal.validate()
	}
	return nil
}

// validate wants a kind that can be a file name of terminfo(5).
func (t Terminal) validate() error {
	ok := len(t.Kind) <= 64
	for _, r := range t.Kind {
		ok = ok && (IsToken(string(r)) || r == '.' || r == '+')
	}
	if !ok {
		return errors.New("terminal's kind must be at most 64 letters, digits, _, -, . or +")
	}
	return nil
}

func isPrintable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

func isAbsolute(s string) bool { return path.IsAbs(s) && len(s) <= maxPath && isText(s) }

// validate refuses what no honest server sends.
func (r Result) validate() error {
	switch r.Reason {
	case Exited, Refused, Cancelled, TimedOut, Memory, Processes, FileSize, CPUTime, OpenFiles, OutputSize, Lost:
	default:
		return fmt.Errorf("unknown reason %q", r.Reason)
	}
	if r.ExitCode < 0 || r.ExitCode > 255 || r.DurationMS < 0 ||
		r.DurationMS > time.Duration(math.MaxInt64).Milliseconds() {
		return errors.New("a number is out of range")
	}
	return nil
}
