package projections

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"pocketcoder/events"
	"pocketcoder/events/opencode"
	"pocketcoder/projections/store"
)

// Permission is a permission request of OpenCode or over the API, and its outcome.
type Permission struct {
	store.Record
	// the record's own id for a request over the API
	EnginePermission string `db:"ai_engine_permission_id" json:"ai_engine_permission_id"`
	// that asked, a subagent's too
	Session        string     `db:"session_id" json:"session_id"`
	Chat           string     `db:"chat" json:"chat"`
	Permission     string     `db:"permission" json:"permission"` // bash, edit, …
	Patterns       store.JSON `db:"patterns" json:"patterns"`     // list
	Metadata       store.JSON `db:"metadata" json:"metadata"`     // object
	Always         store.JSON `db:"always" json:"always"`         // list
	EngineMessage  string     `db:"message_id" json:"message_id"`
	Call           string     `db:"call_id" json:"call_id"`
	Status         string     `db:"status" json:"status"`           // draft, authorized, denied, expired
	Interrupted    bool       `db:"interrupted" json:"interrupted"` // OpenCode restarted and forgot it
	Replied        bool       `db:"replied" json:"replied"`         // OpenCode has the reply, or needs none
	Reason         string     `db:"reason" json:"reason"`
	Referred       bool       `db:"referred" json:"referred"` // the policy left it to a person
	ReferredReason string     `db:"referred_reason" json:"referred_reason"`
	Rule           string     `db:"rule" json:"rule"` // that decided when the policy did, or says to ask
	RuleID         string     `db:"rule_id" json:"rule_id"`
	RuleVersion    int64      `db:"rule_version" json:"rule_version"` // sequence of the event that made it so
	Cwd            string     `db:"cwd" json:"cwd"`                   // bash: directory of the command
	Edited         string     `db:"edited" json:"edited"`             // bash: the command that runs instead
	Expires        string     `db:"expires" json:"expires"`           // end of the approval
	DecidedBy      string     `db:"decided_by" json:"decided_by"`     // actor
	Source         string     `db:"source" json:"source"`             // opencode, api
	Message        string     `db:"message" json:"message"`           // the request as one line
	Challenge      string     `db:"challenge" json:"challenge"`
	ApprovedBy     string     `db:"approved_by" json:"approved_by"` // user who authorized it
	ApprovedAt     string     `db:"approved_at" json:"approved_at"`
	Device         string     `db:"device" json:"device"`         // with which a person decided
	Request        string     `db:"request" json:"request"`       // SHA-256, see events.PermissionRequest
	Files          store.JSON `db:"files" json:"files"`           // list of events.RequestFile
	FilesHash      string     `db:"files_hash" json:"files_hash"` // SHA-256, see events.HashFiles
	GrantUsed      bool       `db:"grant_used" json:"grant_used"` // its approval was used for a repetition of the request
	Applied        bool       `db:"applied" json:"applied"`       // keep: the sandbox has carried out the decision
	Failure        string     `db:"failure" json:"failure"`       // keep: why the sandbox could not
	AskedSeq       int64      `db:"asked_seq" json:"asked_seq"`
	DecidedSeq     int64      `db:"decided_seq" json:"decided_seq"` // 0 until it is decided
}

func (p Permission) RequestFiles() (all []events.RequestFile) {
	_ = json.Unmarshal([]byte(p.Files), &all) // the column is such a list
	return all
}

// WaitsForPerson reports whether a person has to decide the request: the policy has left it to a person, or OpenCode
// restarted and forgot it. The policy has not decided the other drafts yet. The view waiting_requests says the same.
func (p Permission) WaitsForPerson() bool {
	return p.Status == events.Draft && !p.Removed && (p.Referred || p.Interrupted)
}

// Content returns the content of the request in the form of the event.
func (p Permission) Content() events.PermissionRequest {
	a := events.PermissionRequest{
		ID: p.EnginePermission, SessionID: p.Session, Permission: p.Permission, Metadata: json.RawMessage(p.Metadata),
		Tool: events.Call{MessageID: p.EngineMessage, CallID: p.Call},
	}
	_ = json.Unmarshal([]byte(p.Patterns), &a.Patterns) // the columns are lists of strings
	_ = json.Unmarshal([]byte(p.Always), &a.Always)
	return a
}

func updatePermissions(t *tables, e events.Event, body any) error {
	switch b := body.(type) {
	case events.PermissionRequest:
		return addRequest(t, e, b)
	case events.PermissionRequested:
		return addSubmittedRequest(t, e, b)
	case opencode.PermissionReplied:
		return recordReply(t, e, b)
	case events.PermissionReferred:
		recordReferred(t, e, b)
	case events.PermissionDecided:
		return recordDecision(t, e, b)
	case events.PermissionInterrupted:
		return t.changePermission(e, b.Permission, func(p *Permission) { p.Interrupted = true })
	case events.PermissionApplied:
		return t.changePermission(e, b.Permission, func(p *Permission) { p.Applied, p.Failure = b.Error == "", b.Error })
	case events.PermissionExpired:
		return t.changePermission(e, b.Permission, func(p *Permission) {
			if !p.Replied || p.Status == events.Draft || p.Status == events.Expired {
				p.Status, p.Reason = events.Expired, b.Reason
			}
		})
	}
	return nil
}

// permission returns the request that an event refers to, by OpenCode's id, or by its own id if it came over the API.
// An event refers only to requests of its own chat.
func (t *tables) permission(e events.Event, id string) (Permission, bool) {
	p, found := t.permissions.Get(id)
	if !found {
		p, found = t.permissions.Get(store.RecordID(id))
	}
	return p, found && p.Chat == e.Subject.ID && p.EnginePermission == id
}

// putPermission stores a request that exists. OpenCode waits for a person only if the policy has left the request to
// one.
func (t *tables) putPermission(p Permission) {
	t.permissions.Put(p)
	if p.Status == events.Denied && p.Reason == "" {
		t.deny(p.Chat, p.EngineMessage)
	}
	t.setWaiting(p.Session, p.ID, p.Source == engineType && p.WaitsForPerson() && !p.Interrupted)
}

func (t *tables) changePermission(e events.Event, id string, change func(*Permission)) error {
	p, found := t.permission(e, id)
	if !found {
		return fmt.Errorf("permission %s was never asked in chat %s", id, e.Subject.ID)
	}
	change(&p)
	t.putPermission(p)
	return nil
}

// addRequest adds the row of a request. It ignores a repetition after a reconnect.
func addRequest(t *tables, e events.Event, b events.PermissionRequest) error {
	if p, found := t.permission(e, b.ID); found && p.Source == SourceAPI {
		return fmt.Errorf("permission %s of chat %s was asked over the API", b.ID, e.Subject.ID)
	}
	p, found := t.permissions.Get(store.RecordID(b.ID))
	if found && p.Chat != e.Subject.ID {
		return fmt.Errorf("permission %s was asked in chat %s", b.ID, p.Chat)
	}
	if found {
		return nil
	}
	p.EnginePermission, p.Session, p.Chat, p.Permission = b.ID, b.SessionID, e.Subject.ID, b.Permission
	p.Patterns, p.Metadata, p.Always = encodedList(b.Patterns), compactObject(b.Metadata), encodedList(b.Always)
	p.EngineMessage, p.Call = b.Tool.MessageID, b.Tool.CallID
	p.Status, p.Source, p.Message = events.Draft, engineType, b.Line()
	p.Request, p.Files, p.AskedSeq = b.ContentHash(), "[]", int64(e.Seq)
	t.permissions.Put(p)
	return nil
}

// SourceAPI is the source of a request over the API.
const SourceAPI = "api"

// addSubmittedRequest creates the row of a request that came over the API. OpenCode needs no reply to it. The caller
// chooses the id. A request whose id is taken gets no row, and is no error, because a caller could otherwise fill the
// dead letters.
func addSubmittedRequest(t *tables, e events.Event, b events.PermissionRequested) error {
	_, taken := t.permission(e, b.Permission)
	p, found := t.permissions.Get(b.Permission)
	if taken || found {
		return nil
	}
	request := events.PermissionRequest{ID: b.Permission, Permission: b.Type, Patterns: b.Patterns, Metadata: b.Metadata}
	p.EnginePermission, p.Session, p.Chat, p.Permission = b.Permission, b.Session, e.Subject.ID, b.Type
	p.Patterns, p.Metadata, p.Always = encodedList(b.Patterns), compactObject(b.Metadata), "[]"
	p.EngineMessage, p.Call, p.Request, p.AskedSeq = b.MessageID, b.Call, request.ContentHash(), int64(e.Seq)
	p.Status, p.Source, p.Replied, p.Message = events.Draft, SourceAPI, true, cmp.Or(b.Message, request.Line())
	p.Files = "[]"
	t.permissions.Put(p)
	return nil
}

// recordReferred records that a user must decide. A request whose id another request has has no row, so nothing is
// recorded.
func recordReferred(t *tables, e events.Event, b events.PermissionReferred) {
	if p, found := t.permission(e, b.Permission); found && p.Status == events.Draft {
		p.Referred, p.ReferredReason, p.Cwd, p.Metadata = true, b.Reason, b.Cwd, withNetwork(p.Metadata, b)
		p.Files, p.FilesHash = encoded(b.RequestFiles()), events.HashFiles(b.Files)
		p.decideBy(b.RuleRef)
		t.putPermission(p)
	}
}

// withNetwork adds the hosts that an approval allows, or why the command has no network, to the metadata of a command.
func withNetwork(metadata store.JSON, b events.PermissionReferred) store.JSON {
	fields := map[string]json.RawMessage{}
	if len(b.Hosts) == 0 && b.Network == "" || json.Unmarshal([]byte(metadata), &fields) != nil {
		return metadata
	}
	if len(b.Hosts) > 0 {
		fields["hosts"], _ = json.Marshal(b.Hosts) // texts
	}
	if b.Network != "" {
		fields["network"], _ = json.Marshal(b.Network)
	}
	all, err := json.Marshal(fields)
	if err != nil {
		return metadata
	}
	return store.JSON(all)
}

// recordDecision records a decision. Only the first one counts.
func recordDecision(t *tables, e events.Event, b events.PermissionDecided) error {
	if b.ApprovalOf != "" {
		if err := t.changePermission(e, b.ApprovalOf, func(p *Permission) { p.GrantUsed = true }); err != nil {
			return err
		}
	}
	return t.changePermission(e, b.Permission, func(p *Permission) {
		if p.Status == events.Draft {
			p.decide(b.Decision, e)
			p.Reason, p.Cwd, p.Edited, p.Device = b.Reason, b.Cwd, b.Edited, b.Client.Device
			p.decideBy(b.RuleRef)
			p.Expires = events.FormatTime(b.Expires)
		}
	})
}

func (p *Permission) decideBy(r events.RuleRef) {
	p.Rule, p.RuleID, p.RuleVersion = r.Rule, r.RuleID, int64(r.RuleVersion)
}

// recordReply records OpenCode's reply. A request without a decision of ours was decided in OpenCode's own interface,
// or by OpenCode: when one request is rejected, OpenCode rejects all others of the session.
func recordReply(t *tables, e events.Event, b opencode.PermissionReplied) error {
	p, found := t.permissions.Get(store.RecordID(b.RequestID))
	if !found {
		return nil
	}
	if p.Chat != e.Subject.ID {
		return fmt.Errorf("permission %s was asked in chat %s", b.RequestID, p.Chat)
	}
	p.Replied = true
	if p.Status == events.Authorized && b.Reply == "reject" {
		p.Status, p.Reason = events.Expired, "it was rejected in OpenCode after the approval"
	}
	if p.Status == events.Draft {
		if b.Reply == "reject" {
			p.decide(events.Denied, e)
			p.Reason = "rejected in OpenCode: by another client, or together with another request of the session"
			t.reject(p.Chat, p.EngineMessage)
		} else {
			p.decide(events.Authorized, e)
			p.Reason = "allowed in OpenCode by another client"
		}
	}
	t.putPermission(p)
	return nil
}

func (p *Permission) decide(status string, e events.Event) {
	p.Status, p.DecidedBy, p.DecidedSeq = status, e.Actor, int64(e.Seq)
	if user, ok := strings.CutPrefix(e.Actor, events.UserActor("")); ok && status == events.Authorized {
		p.ApprovedBy, p.ApprovedAt = user, events.FormatTime(e.Time)
	}
}
