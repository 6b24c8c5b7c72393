package events

// ExecRequested says a command is handed to the sandbox: one of the model's, which passed the gate, or a person's own shell,
// which has neither permission, session nor call.
type ExecRequested struct {
	Exec       string `json:"exec"`
	Permission string `json:"permission"`
	Session    string `json:"session"`
	Call       string `json:"call"`
	Command    string `json:"command"`            // as it runs; a person's shell has none
	Original   string `json:"original,omitempty"` // as the model gave it, when a person has edited it
	Cwd        string `json:"cwd"`
	Pool       string `json:"pool"`
	Detached   bool   `json:"detached,omitempty"` // nobody waits for it
	Terminal   bool   `json:"terminal,omitempty"` // a person's own shell
	Private    bool   `json:"private,omitempty"`  // its output is not recorded
}

// ExecStarted says which worker has taken a command. Of one that somebody waits for it is said when it still runs after a moment, and
// by ExecFinished alone when it does not: a command of a moment is not worth a fact of its own.
type ExecStarted struct {
	Exec      string `json:"exec"`
	Worker    string `json:"worker"`
	Isolation string `json:"isolation"` // bwrap, landlock, container or none
}

// ExecSignalled says somebody sent a signal to a running command.
type ExecSignalled struct {
	Exec   string `json:"exec"`
	Signal string `json:"signal"` // SIGTERM, …
}

// ExecConnected says a command was let to a host, or kept from it: once each for every host and port of an execution, and of what
// it was kept from no more when there are some hundreds.
type ExecConnected struct {
	Exec       string `json:"exec"`
	Host       string `json:"host"`
	Port       int    `json:"port"`
	Allowed    bool   `json:"allowed"`
	Permission string `json:"permission,omitempty"` // that was asked for it
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

// ExecRefused says a command was asked for that nothing had authorized. It was not run.
type ExecRefused struct {
	Exec    string `json:"exec"`
	Session string `json:"session"`
	Call    string `json:"call"`
	Command string `json:"command"`
	Cwd     string `json:"cwd"`
	Reason  string `json:"reason"`
}

// ExecFinished is the result of a command, recorded even when nobody waits for it any more.
type ExecFinished struct {
	Exec       string `json:"exec"`
	ExitCode   int    `json:"exit_code"`
	Signal     string `json:"signal,omitempty"`
	Reason     string `json:"reason,omitempty"` // cancelled, timeout, lost, refused, a limit's name; empty when it ended by itself
	Error      string `json:"error,omitempty"`
	DurationMS int64  `json:"duration_ms"`         // of a lost one as far as it is known to have run, 0 when that is not known
	Worker     string `json:"worker,omitempty"`    // as in ExecStarted; empty when no worker took it
	Isolation  string `json:"isolation,omitempty"` // likewise
	Stdout     Output `json:"stdout"`
	Stderr     Output `json:"stderr"`
}

// Output is what a command wrote to one stream: inline when the execution's output is at most MaxInline bytes, as text
// or, when it is not UTF-8, as base64; else whole in the BLOBS bucket.
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
