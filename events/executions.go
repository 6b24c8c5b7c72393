package events

import (
	"fmt"
	"strings"
)

// ExecRequested means that a command is sent to the sandbox: an authorized command of the model, or a person's shell,
// which has no permission, session or call.
type ExecRequested struct {
	Exec       string `json:"exec"`
	Permission string `json:"permission"`
	Session    string `json:"session"`
	Call       string `json:"call"`
	Command    string `json:"command"`            // as it runs; a person's shell has none
	Original   string `json:"original,omitempty"` // the model's command, if a person has edited it
	Cwd        string `json:"cwd"`
	Pool       string `json:"pool"`
	Detached   bool   `json:"detached,omitempty"` // it runs in the background
	Terminal   bool   `json:"terminal,omitempty"` // a person's own shell
	Private    bool   `json:"private,omitempty"`  // its output is not recorded
}

// ExecStarted names the worker that runs a command. A foreground command that ends within a second has no ExecStarted;
// ExecFinished names its worker.
type ExecStarted struct {
	Exec      string `json:"exec"`
	Worker    string `json:"worker"`
	Isolation string `json:"isolation"` // bwrap, landlock, container or none
}

// ExecSignalled means that a signal was sent to a running command.
type ExecSignalled struct {
	Exec   string `json:"exec"`
	Signal string `json:"signal"` // SIGTERM, …
}

// ExecConnected records that a command was allowed to reach a host or refused: once per host, port and answer of an
// execution. After some hundred refusals no more are recorded.
type ExecConnected struct {
	Exec       string `json:"exec"`
	Host       string `json:"host"`
	Port       int    `json:"port"`
	Allowed    bool   `json:"allowed"`
	Permission string `json:"permission,omitempty"` // the request that decided, if there was one
	Reason     string `json:"reason"`               // the rule, the flag or the person that decided
}

// ExecChanged lists the files that were created or changed while a command ran.
type ExecChanged struct {
	Exec  string     `json:"exec"`
	Files []Artifact `json:"files"`
	More  int        `json:"more,omitempty"` // how many are not listed
}

// Artifact is a file of the workspace as a command left it.
type Artifact struct {
	Path   string `json:"path"` // relative to the workspace
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`         // hex; empty when it is large or could not be read
	Blob   *Blob  `json:"blob,omitempty"` // its content, when it was kept
}

// ExecRefused means that a command was not authorized. It did not run.
type ExecRefused struct {
	Exec    string `json:"exec"`
	Session string `json:"session"`
	Call    string `json:"call"`
	Command string `json:"command"`
	Cwd     string `json:"cwd"`
	Reason  string `json:"reason"`
}

// ExecFinished is the result of a command. It is recorded even if no caller waits for it.
type ExecFinished struct {
	Exec     string `json:"exec"`
	Status   string `json:"status"` // set when it is encoded
	ExitCode int    `json:"exit_code"`
	Signal   string `json:"signal,omitempty"`
	// cancelled, timeout, lost, refused, a limit's name; empty when it ended by itself
	Reason string `json:"reason,omitempty"`
	Error  string `json:"error,omitempty"`
	// of a lost one as far as it is known to have run, 0 when that is not known
	DurationMS int64  `json:"duration_ms"`
	Worker     string `json:"worker,omitempty"`    // as in ExecStarted; empty when no worker took it
	Isolation  string `json:"isolation,omitempty"` // likewise
	Stdout     Output `json:"stdout"`
	Stderr     Output `json:"stderr"`
	// the processes that the command left when it ended by itself; nil if there were none
	Left *LeftProcesses `json:"left,omitempty"`
	// protected names that the worker reported to this execution, while the command ran or at its end. Each has a request
	Quarantined []Quarantined `json:"quarantined,omitempty"`
}

// Quarantined is a protected name that appeared in the top folder of the workspace while a command ran. The worker has
// moved it out of the workspace.
type Quarantined struct {
	Item  string `json:"item"` // the worker's id
	Name  string `json:"name"` // such as .envrc
	Kind  string `json:"kind"` // file, folder or link
	Bytes int64  `json:"bytes"`
	Files int    `json:"files,omitempty"` // of a folder, at any depth
	// of ExecFinished: the request to keep it; empty in KeepMetadata
	Permission string `json:"permission,omitempty"`
}

// KeepRequestID returns the id of the permission request to keep a quarantined item. A name that is reported twice has
// one request.
func KeepRequestID(item string) string { return idOf("keep", item) }

// KeepMetadata is the metadata of a permission request of type keep.
type KeepMetadata struct {
	Quarantined
	Exec    string `json:"exec"`
	Command string `json:"command,omitempty"` // the beginning of it; empty for a person's shell
	// the beginning of a text file, the target of a link, or the files of a folder; empty if the file is no text
	Text string `json:"text,omitempty"`
	Cut  bool   `json:"cut,omitempty"` // there is more than Text holds
}

// Describe returns what the name is, with its size: "file, 12 bytes".
func (q Quarantined) Describe() string {
	switch q.Kind {
	case "file":
		return "file, " + counted(q.Bytes, "byte")
	case "folder":
		return "folder with " + counted(int64(q.Files), "file") + ", " + counted(q.Bytes, "byte")
	}
	return "symbolic link"
}

// Note returns what a person cannot see of the content, and where it is, in sentences. It returns "" if Text is all.
func (k KeepMetadata) Note() string {
	var sentences []string
	switch {
	case k.Text == "" && k.Cut:
		sentences = append(sentences, "Its content is not shown here.")
	case k.Text == "" && k.Bytes > 0:
		sentences = append(sentences, "Its content is not text, and is not shown.")
	case k.Cut:
		sentences = append(sentences, "Only its beginning is shown.")
	}
	if k.Files > 0 {
		sentences = append(sentences, "The contents of its files are in the quarantine.")
	}
	return strings.Join(sentences, " ")
}

func counted(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// LeftProcesses are the processes that still ran when the shell of a command had exited by itself.
type LeftProcesses struct {
	Processes int      `json:"processes"`
	Programs  []string `json:"programs"`          // some of their names, each once
	More      int      `json:"more,omitempty"`    // names that Programs does not hold
	Running   bool     `json:"running,omitempty"` // the processes continue to run. Otherwise they ended with the command
}

// Sentence returns what happened to the processes, and how to start a program that continues to run; "" for nil. The
// model, the pages, the API and the terminal use the same words.
func (l *LeftProcesses) Sentence() string {
	if l == nil {
		return ""
	}
	processes, became := "1 process", "which still runs"
	if l.Processes != 1 {
		processes, became = fmt.Sprintf("%d processes", l.Processes), "which still run"
	}
	if !l.Running {
		became = "which the sandbox ended"
	}
	text := "The command left " + processes + ", " + became + ": " + strings.Join(l.Programs, ", ")
	if l.More > 0 {
		text += fmt.Sprintf(" and %d more", l.More)
	}
	return text + ". Start a server without `&`, in a command of its own that begins with `detach `."
}

// The status of an execution. One that did not end by itself has ExecFinished.Reason as its status.
const (
	ExecutionRunning   = "executing"
	ExecutionCompleted = "completed" // exit code 0
	ExecutionFailed    = "failed"
	ExecutionRefused   = "refused"
)

// MarshalJSON encodes d with its status.
func (d ExecFinished) MarshalJSON() ([]byte, error) {
	switch {
	case d.Reason != "":
		d.Status = d.Reason
	case d.Succeeded():
		d.Status = ExecutionCompleted
	default:
		d.Status = ExecutionFailed
	}
	type fields ExecFinished // without this method
	return Encode(fields(d))
}

// Succeeded reports whether the command ended by itself with exit code 0.
func (d ExecFinished) Succeeded() bool {
	return d.Reason == "" && d.ExitCode == 0 && d.Signal == "" && d.Error == ""
}

// Output is the output of a command on one stream. It is inline if the execution's output has at most log.MaxInline
// bytes, as text, or as base64 if it is not UTF-8. Otherwise it is in BLOBS.
type Output struct {
	Bytes  int64  `json:"bytes"`
	Text   string `json:"text,omitempty"`
	Base64 []byte `json:"base64,omitempty"`
	Blob   *Blob  `json:"blob,omitempty"`
}

func (ExecRequested) Kind() string { return "exec.requested" }
func (ExecStarted) Kind() string   { return "exec.started" }
func (ExecSignalled) Kind() string { return "exec.signalled" }
func (ExecConnected) Kind() string { return "exec.connected" }
func (ExecChanged) Kind() string   { return "exec.changed" }
func (ExecRefused) Kind() string   { return "exec.refused" }
func (ExecFinished) Kind() string  { return "exec.finished" }
