package events

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"
)

// PermissionRequested is a permission request that a client made over the API, or the policy for a budget or a host.
// The policy or a person decides it. Nothing is sent to OpenCode: the requester reads the decision.
type PermissionRequested struct {
	Permission string          `json:"permission"` // its id, unique in the chat
	Type       string          `json:"type"`       // bash, edit, …
	Patterns   []string        `json:"patterns,omitempty"`
	Metadata   json.RawMessage `json:"metadata,omitempty"` // object
	Message    string          `json:"message,omitempty"`
	Session    string          `json:"session,omitempty"`
	MessageID  string          `json:"message_id,omitempty"`
	Call       string          `json:"call,omitempty"`
}

// Decision is the outcome of a decision about a permission request: Authorized or Denied.
type Decision = string

// The statuses of a permission request, and of a question that expired. Clients write Authorized and Denied.
const (
	Draft      = "draft" // no decision yet
	Authorized = "authorized"
	Denied     = "denied"
	Expired    = "expired" // it allows nothing any more, or needs no answer
)

// PermissionDecided is the one decision about a permission request. It repeats the content of the request, so that an
// execution is checked against the decision alone. The event's actor made the decision.
type PermissionDecided struct {
	Permission string   `json:"permission"` // OpenCode's per_… id
	Decision   Decision `json:"decision"`
	// why: a person's words, shown to the model with a denial, or the policy's
	Reason     string    `json:"reason,omitempty"`
	RuleRef              // that decided, when the policy did
	ApprovalOf string    `json:"grant,omitempty"` // the interrupted request whose approval this decision uses
	Session    string    `json:"session"`
	Call       string    `json:"call,omitempty"`
	Type       string    `json:"type"`              // bash, edit, …
	Command    string    `json:"command,omitempty"` // exact bytes, for bash
	Cwd        string    `json:"cwd,omitempty"`     // bash: where it may run, absolute, symlinks resolved
	Edited     string    `json:"edited,omitempty"`  // bash: exact bytes of what runs instead of Command
	Expires    time.Time `json:"expires,omitzero"`  // it allows nothing after that
	// SHA-256 of type, patterns and metadata: the same request asked again has the same
	Request string `json:"request"`
	Client  Client `json:"client,omitzero"` // with which a person decided
	// bash, approved by a person: the files that the command names; if one differs, the command does not run
	Files []FileFingerprint `json:"files,omitempty"`
	// bash: host:port that the command names; the approval allows its execution to reach them
	Hosts []string `json:"hosts,omitempty"`
}

// RuleRef names a rule of the policy, in its version at the decision. If several rules together allow a compound
// command, they are joined with " + ".
type RuleRef struct {
	Rule string `json:"rule,omitempty"` // as a person writes it: "bash: git status*"
	// <collection>/<record>; empty for one that is built in or was given at the start
	RuleID      string `json:"rule_id,omitempty"`
	RuleVersion uint64 `json:"rule_version,omitempty"` // sequence of the event that made it so
}

// PermissionReferred means that the policy left a permission request to a person. It is appended again if files of a
// command changed before the decision, because the person must then look at the request again.
type PermissionReferred struct {
	Permission string `json:"permission"`
	Reason     string `json:"reason"` // a sentence for the person
	// bash: where it would run, absolute, symlinks resolved; empty when that is not known
	Cwd     string `json:"cwd,omitempty"`
	RuleRef        // that says to ask, when one does
	// bash: host:port that the command names; an approval allows its execution to reach them
	Hosts   []string `json:"hosts,omitempty"`
	Network string   `json:"network,omitempty"` // bash: a sentence, if the command needs a host and will reach none

	// the files as they were when the policy looked: edit, those that an approval changes; bash, those that the command
	// names
	Files    []FileFingerprint `json:"files,omitempty"`
	Contents []FileContent     `json:"contents,omitempty"` // bash: of the files, as far as a person is shown it
}

// RequestFile is a file that a request changes, or that its command names, as it was when the policy left the request
// to a person.
type RequestFile struct {
	FileFingerprint
	Text string `json:"text,omitempty"` // bash: the content, as far as a person is shown it
}

// RequestFiles returns the files with their contents.
func (d PermissionReferred) RequestFiles() []RequestFile {
	all := make([]RequestFile, len(d.Files))
	for i, f := range d.Files {
		all[i].FileFingerprint = f
		for _, c := range d.Contents {
			if c.Path == f.Path {
				all[i].Text = c.Text
			}
		}
	}
	return all
}

// FileContent is the content of a text file at one moment.
type FileContent struct {
	Path string `json:"path"` // absolute, as in its fingerprint
	Text string `json:"text"`
}

// HashFiles returns the SHA-256 of fingerprints, in hex. No files have a hash too, so that a decision on a card without
// files does not count for one with files.
func HashFiles(files []FileFingerprint) string {
	if len(files) == 0 {
		files = []FileFingerprint{} // nil and an empty list are the same
	}
	sum := sha256.Sum256(MustEncode(files))
	return hex.EncodeToString(sum[:])
}

// FileFingerprint is the state of a file at one moment. At most one of SHA256, ModifiedNS and Absent is set. None is
// set for a file that is not regular or cannot be read.
type FileFingerprint struct {
	Path   string `json:"path"`             // absolute, as the request names it
	Target string `json:"target,omitempty"` // the path with symlinks resolved, if it differs
	Size   int64  `json:"size,omitempty"`   // in bytes
	SHA256 string `json:"sha256,omitempty"` // of the content, in hex
	// of a file too large to hash: its modification time in Unix nanoseconds
	ModifiedNS int64 `json:"modified_ns,omitempty"`
	Absent     bool  `json:"absent,omitempty"` // there is no such file
}

// PermissionInterrupted says that OpenCode restarted and forgot the request. An undecided one can still be decided. An
// approval resumes the turn.
type PermissionInterrupted struct {
	Permission string `json:"permission"`
}

// PermissionApplied is the sandbox's answer to a decision about a request of type keep. Without Error it moved the name
// back or deleted it.
type PermissionApplied struct {
	Permission string `json:"permission"`
	Error      string `json:"error,omitempty"` // a sentence for the person
}

// PermissionExpired says that the request, or its approval, allows nothing any more. Reason says why: its files
// changed, its time or its turn is over, OpenCode asked again, or it was answered elsewhere.
type PermissionExpired struct {
	Permission string `json:"permission"`
	Reason     string `json:"reason"`
}
