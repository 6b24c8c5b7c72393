package wire

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Request is a command to run, or another operation of a worker (Op).
type Request struct {
	// id of the execution, one token; Call sets it if it is empty. The handler sends its own id to the worker
	Exec    string `json:"exec,omitempty"`
	Op      Op     `json:"op,omitempty"`      // Run when empty
	Session string `json:"session,omitempty"` // OpenCode's session id, one token
	// the tool call's id, given by the model provider: at most 256 printable bytes
	Call string `json:"call,omitempty"`
	// argument of the shell's -c, byte for byte; UTF-8 without NUL, at most MaxCommand bytes. Empty with a Terminal: an
	// interactive shell
	Command string `json:"command,omitempty"`
	Cwd     string `json:"cwd,omitempty"` // absolute
	// absolute; Cwd must lie inside. The handler sets it and ignores the value of the shell. Only workers of this
	// workspace answer
	Workspace string    `json:"workspace,omitempty"`
	TimeoutMS int64     `json:"timeout_ms,omitempty"`
	Terminal  *Terminal `json:"terminal,omitempty"` // runs the command at a terminal, with all output on stdout
	Stdin     bool      `json:"stdin,omitempty"`    // without a Terminal: Input is what the command reads, until its end
	// URL of the HTTP proxy the command may use, with credentials; empty is no network
	Network string `json:"network,omitempty"`
	Ports   bool   `json:"ports,omitempty"` // Dial may connect to its ports on 127.0.0.1
	// at bwrap: commands with the same value reach each other's servers on 127.0.0.1; one token
	Loopback string `json:"loopback,omitempty"`
	Limits   Limits `json:"limits,omitzero"`
	// the command adds and removes git worktrees. Only PocketCoder's own scripts do
	ManagesWorktrees bool `json:"manages_worktrees,omitempty"`

	Path  string `json:"path,omitempty"`  // of Read: relative to the workspace; of Expect: a name in the top directory
	Since int64  `json:"since,omitempty"` // of Changes: a Result's Began
	Port  int    `json:"port,omitempty"`  // of Dial
	Item  string `json:"item,omitempty"`  // of Keep and Dismiss: a Quarantined.ID

	Account string `json:"account,omitempty"` // on PersonSubject: owner of the shell; empty for the operator

	// input while the command runs; may be nil. Not part of the encoded request
	Input   <-chan Input `json:"-"`
	Started func(Start)  `json:"-"` // called once, before any output, when a worker has started the command; may be nil
}

// Limits lower the worker's limits for one command. 0 is the limit of the worker, and so is any higher value.
type Limits struct {
	Memory    int64 `json:"memory,omitempty"` // bytes
	Processes int64 `json:"processes,omitempty"`
	CPUTimeMS int64 `json:"cpu_time_ms,omitempty"`
}

// Op is an operation of a worker.
type Op string

const (
	Run     Op = ""        // run Command
	Changes Op = "changes" // list the files that changed since Since: one Change in JSON a line on stdout
	Read    Op = "read"    // write the file at Path to stdout
	// connect to 127.0.0.1:Port of the execution Exec: Input is sent there, stdout is what is received
	Dial Op = "dial"
	// move the quarantined Item back to its name. It is Refused if a file has the name now, or if there is no such item.
	// The item then stays. Repeating Keep does nothing
	Keep    Op = "keep"
	Dismiss Op = "dismiss" // delete the quarantined Item, if there is one
	Report  Op = "report"  // return Result.Quarantined while the command of Exec runs
	// OpenCode may create or change the protected name Path. For ExpectTime the worker neither moves it out of the
	// workspace nor puts it back
	Expect Op = "expect"
)

// ExpectTime is how long a worker expects a name after Expect. OpenCode writes a file at once after its approval.
const ExpectTime = 2 * time.Second

// Connected is the whole stderr of a Dial that is connected.
const Connected = "connected"

// Terminal is the size of a terminal, in characters, and its kind, such as xterm-256color.
type Terminal struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
	Kind string `json:"kind,omitempty"`
}

// Input is input of a running command: typed bytes, a new terminal size, or a signal to all its processes.
type Input struct {
	Data   []byte
	Size   *Terminal
	Signal string // "SIGTERM", …
}

// Start names the worker of a command and its isolation level.
type Start struct {
	Worker    string `json:"worker"`
	Isolation string `json:"isolation"` // bwrap, landlock, container or none
	// the command has a network of its own: no other command reaches what it serves
	Apart bool `json:"apart,omitempty"`
}

// MaxChanges limits the files that Changes lists.
const MaxChanges = 1000

// Change is a created or changed file. The last Change of a list may instead have the number of further files.
type Change struct {
	Path   string `json:"path,omitempty"` // relative to the workspace
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256,omitempty"` // hex; empty if the file is large or could not be read
	More   int    `json:"more,omitempty"`
}

// Reason is why a command ended, if not by itself.
type Reason string

const (
	Exited     Reason = ""          // by itself: ExitCode, or Signal when something killed it
	Refused    Reason = "refused"   // never started; Error says why
	Cancelled  Reason = "cancelled" // the caller gave up: signal, abort or death of the shell
	TimedOut   Reason = "timeout"
	Memory     Reason = "memory" // this and the next are limits of the command
	Processes  Reason = "processes"
	FileSize   Reason = "file-size"
	CPUTime    Reason = "cpu-time"
	OpenFiles  Reason = "open-files"
	OutputSize Reason = "output-size" // the output exceeds what is recorded
	// it created or changed protected names again and again
	ProtectedName Reason = "protected-name"
	Lost          Reason = "lost" // the server is gone; it is unknown whether the command ended
)

// Result is how a command ended. Serve fills the byte counts.
type Result struct {
	ExitCode int    `json:"exit_code"`        // 0-255; 128+n when killed by signal n; ExitRefused when refused
	Signal   string `json:"signal,omitempty"` // "SIGKILL", …
	Reason   Reason `json:"reason,omitempty"`
	// one line for a person, if Reason is Refused or Lost or does not explain the result
	Error       string `json:"error,omitempty"`
	DurationMS  int64  `json:"duration_ms"`
	StdoutBytes int64  `json:"stdout_bytes"`
	StderrBytes int64  `json:"stderr_bytes"`
	Began       int64  `json:"began,omitempty"` // when it started, by the worker's clock: Unix time in nanoseconds
	Left        *Left  `json:"left,omitempty"`  // nil if there are none, or if Reason is not Exited
	// of Run and Report: protected names that the worker has moved out of the workspace. No earlier result of the worker
	// has them since it started. Also set if Reason is not Exited
	Quarantined []Quarantined `json:"quarantined,omitempty"`
}

// envelope is the encoded form of a request.
type envelope struct {
	ID    string `json:"id,omitempty"`    // id of the call; Exec when empty
	Input bool   `json:"input,omitempty"` // the call has input
	Request
}

// withID returns the envelope with the id of the call: the id of the execution for Run, a new id for another Op.
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

// validate returns an error about the first invalid field.
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
	case r.Loopback != "" && !IsToken(r.Loopback):
		return errors.New("loopback must be 1 to 64 letters, digits, _ or -")
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
	case Report:
		if r.Exec == "" {
			return errors.New("report needs an exec")
		}
	case Keep, Dismiss:
		if !IsToken(r.Item) {
			return errors.New("item must be 1 to 64 letters, digits, _ or -")
		}
	case Expect:
		if !isName(r.Path) {
			return errors.New("path must be a name in the top directory")
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
	case r.Limits.Memory < 0 || r.Limits.Processes < 0 || r.Limits.CPUTimeMS < 0 || r.Limits.CPUTimeMS > math.MaxInt64/int64(time.Millisecond):
		return errors.New("a limit is out of range")
	case r.Terminal != nil:
		return r.Terminal.validate()
	}
	return nil
}

// validate checks that the kind is a valid file name of terminfo(5).
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

// validate checks the values that a faulty server may send.
func (r Result) validate() error {
	switch r.Reason {
	case Exited, Refused, Cancelled, TimedOut, Memory, Processes, FileSize, CPUTime, OpenFiles, OutputSize, ProtectedName, Lost:
	default:
		return fmt.Errorf("unknown reason %q", r.Reason)
	}
	if r.ExitCode < 0 || r.ExitCode > 255 || r.DurationMS < 0 ||
		r.DurationMS > time.Duration(math.MaxInt64).Milliseconds() {
		return errors.New("a number is out of range")
	}
	if err := validateQuarantined(r.Quarantined); err != nil {
		return err
	}
	return r.Left.validate()
}

// Left are the processes that still ran when the shell of a command had exited by itself.
type Left struct {
	Processes int      `json:"processes"`
	Programs  []string `json:"programs"`          // their names, each once, at most maxPrograms
	More      int      `json:"more,omitempty"`    // names that Programs does not hold
	Running   bool     `json:"running,omitempty"` // the processes continue to run. Otherwise they ended with the command
}

const (
	maxPrograms    = 4
	maxProgramName = 64 // bytes
)

// NewLeft returns the processes with the names of their programs, or nil if there are none.
func NewLeft(programs []string, running bool) *Left {
	if len(programs) == 0 {
		return nil
	}
	names := slices.Compact(slices.Sorted(slices.Values(programs)))
	shown := names[:min(len(names), maxPrograms)]
	left := &Left{Processes: len(programs), Programs: shown, More: len(names) - len(shown), Running: running}
	left.shorten()
	return left
}

// shorten makes each name one short line, because a command chooses the names.
func (l *Left) shorten() {
	for i, name := range l.Programs {
		l.Programs[i] = oneLine(name[:min(len(name), maxProgramName)])
	}
}

func (l *Left) validate() error {
	switch {
	case l == nil:
		return nil
	case len(l.Programs) < 1 || len(l.Programs) > maxPrograms || l.More < 0 ||
		l.Processes < len(l.Programs) || l.Processes-len(l.Programs) < l.More:
		return errors.New("the number of processes that the command left is out of range")
	}
	l.shorten()
	return nil
}

// Quarantined is a protected name that appeared in the top directory of the workspace while a command ran, and that
// the worker has moved out of the workspace. Keep moves it back, and Dismiss deletes it.
type Quarantined struct {
	ID    string         `json:"id"`   // one token; Request.Item of Keep and Dismiss
	Name  string         `json:"name"` // in the top directory, such as .envrc
	Kind  QuarantineKind `json:"kind"`
	Bytes int64          `json:"bytes"` // of a file, or of all files of a folder
	Files int            `json:"files"` // of a folder, at any depth
	// first bytes of a text file, the target of a link, or the files of a folder with their sizes, one a line. At most
	// MaxQuarantineText bytes. Empty if the file is no text
	Text string `json:"text,omitempty"`
	Cut  bool   `json:"cut,omitempty"` // there is more than Text holds
}

type QuarantineKind string

const (
	FileKind   QuarantineKind = "file"
	FolderKind QuarantineKind = "folder"
	LinkKind   QuarantineKind = "link" // a symbolic link
)

// Limits of Result.Quarantined. All texts of one Result fit into a message of NATS.
const (
	MaxQuarantineText  = 16 << 10
	MaxQuarantineTexts = 128 << 10 // bytes of all texts of a Result; JSON can take six times as many
	maxQuarantined     = 256
)

func validateQuarantined(list []Quarantined) error {
	if len(list) > maxQuarantined {
		return errors.New("too many names are quarantined")
	}
	texts := 0
	for _, q := range list {
		switch q.Kind {
		case FileKind, FolderKind, LinkKind:
		default:
			return fmt.Errorf("kind %q of a quarantined name is unknown", q.Kind)
		}
		texts += len(q.Text)
		switch {
		case !IsToken(q.ID):
			return errors.New("id of a quarantined name is not a token")
		case !isName(q.Name):
			return errors.New("a quarantined name is not the name of a file")
		case q.Bytes < 0 || q.Files < 0:
			return fmt.Errorf("size of %s is negative", q.Name)
		case len(q.Text) > MaxQuarantineText || texts > MaxQuarantineTexts || !isText(q.Text):
			return fmt.Errorf("text of %s is not a text of at most %d bytes", q.Name, MaxQuarantineText)
		}
	}
	return nil
}

// isName reports whether s is the name of a file in a directory, on one line.
func isName(s string) bool {
	return s != ".." && len(s) <= 255 && path.Base(s) == s && isPrintable(s) && s != "." && s != "/"
}
