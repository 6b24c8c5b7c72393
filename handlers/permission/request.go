package permission

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	"pocketcoder/events"
	"pocketcoder/events/opencode"
	"pocketcoder/handlers"
	"pocketcoder/handlers/permission/workspace"
)

// Request is a permission request, with its outcome and the use of its approval.
type Request struct {
	ID      string
	Seq     uint64 // of the event that made it; 0 for an unknown request
	Event   string // id of this event
	At      time.Time
	ViaAPI  bool                      // made over our API; without session and call, because its author could name any
	Host    string                    // host:port, if the policy made it for a command that connects
	Content *events.PermissionRequest // its content; nil in a State, which keeps only the fields that a decision repeats

	Type, Command, Hash    string // Hash is that of events.PermissionRequest.ContentHash
	Session, Message, Call string

	Escalation  Escalation // to a person; zero for none
	Outcome     Outcome    // zero while it is pending
	Interrupted bool       // OpenCode forgot it
	Granted     bool       // another request has used its approval
	Item        string     // of type keep: the worker's id of what it is about
	Answered    bool       // of type keep: the worker has carried out the decision, or refused
	Execution   string     // that its approval started; empty for none
	Connected   bool       // its approval has let a command connect
	Events      []uint64   // sequences of the events about it, those of its execution after the beginning not included

	content        [sha256.Size]byte // of a direct request: of its event's JSON
	administrators bool              // only they decide it
}

// Escalation is the event with which the policy left a request to a person.
type Escalation struct {
	events.PermissionReferred
	Seq uint64
	At  time.Time
}

// Outcome is how a request ended.
type Outcome struct {
	Seq uint64
	At  time.Time
	By  string // actor
	// authorized, denied, expired, or OpenCode's once, always and reject of an answer given there
	Status  string
	Reason  string                    // of a request that was not decided in PocketCoder
	Decided *events.PermissionDecided // nil for a request that was not decided in PocketCoder
	cause   string
}

// Pending reports whether a request has not ended.
func (r Request) Pending() bool { return r.Outcome.Seq == 0 }

// cwd returns where the command of a request was allowed to run, or would run. It returns "" while that is not known.
func (r Request) cwd() string {
	if d := r.Outcome.Decided; d != nil {
		return d.Cwd
	}
	return r.Escalation.Cwd
}

// State is the state of a chat's permission requests. Apply is idempotent, and the order of the events does not matter.
type State struct {
	handlers.ChatState
	requests       map[string]*Request          // by id
	calls          map[call]map[string]*Request // by tool call, then by id; the request or its decision names the call
	aborted        map[string]uint64            // sequence of the last abort of a session; of the whole chat under ""
	lost           map[string]uint64            // sequence of the last loss of a session's turn
	lastPersonTurn uint64                       // sequence of the newest revert, or message of a person

	unreadable uint64 // sequence of the newest event of ours that cannot be read: it may have ended what came before
}

// call is a tool call of OpenCode's.
type call struct{ session, id string }

func NewState() *State {
	return &State{requests: map[string]*Request{}, calls: map[call]map[string]*Request{}, aborted: map[string]uint64{},
		lost: map[string]uint64{}}
}

// Filters returns the filters of the events on which a decision depends. Decisions match the first filter.
func Filters(chat string) []string {
	return []string{
		events.ChatSubject(chat, "permission.*"), events.ChatSubject(chat, "opencode.permission.*"),
		handlers.ChatFilter(chat),
		UseFilter(chat), events.ChatSubject(chat, events.ExecConnected{}.Kind()),
		events.ChatSubject(chat, events.TurnLost{}.Kind()),
		events.ChatSubject(chat, events.MessageSubmitted{}.Kind()),
	}
}

// UseFilter returns the filter whose last sequence an append expects when it uses an approval. It matches aborts,
// reverts, and executions that an approval has started.
func UseFilter(chat string) string { return events.ChatSubject(chat, "*.requested") }

// Chat returns the cached fold of a chat's permission requests.
func (h *Permissions) Chat(ctx context.Context, chat string) *handlers.Fold[*State] {
	return h.chats.Get(ctx, chat, func() *handlers.Fold[*State] { return handlers.NewFold(NewState(), Filters(chat)...) })
}

// request returns a request of a chat with its content. Content is nil for an unknown request, and for one that is not
// stored yet.
func (h *Permissions) request(ctx context.Context, chat, id string) (r Request, err error) {
	err = h.Chat(ctx, chat).Read(ctx, h.Log, func(s *State) error { r = s.Request(id); return nil })
	if err != nil || r.Seq == 0 || !handlers.IsStored(r.Seq) {
		return r, err
	}
	e, ok, err := h.Log.Get(ctx, r.Seq)
	if err != nil || !ok {
		return r, err
	}
	a, _, err := events.PermissionRequestOf(e)
	if err != nil {
		return r, err
	}
	r.Content = &a
	return r, nil
}

// known returns a stored request of a chat. It refuses an id without one.
func (h *Permissions) known(ctx context.Context, chat, id string) (Request, error) {
	r, err := h.request(ctx, chat, id)
	if err == nil && r.Content == nil {
		err = handlers.Refuse(handlers.NotFound, "there is no permission request %s in chat %s", id, chat)
	}
	return r, err
}

// OpenCodeRequest returns a request that OpenCode made. ok is false if the chat has no such request.
func (h *Permissions) OpenCodeRequest(ctx context.Context, chat,
	permission string) (a events.PermissionRequest, ok bool, err error) {
	r, err := h.request(ctx, chat, permission)
	if err != nil || r.Content == nil || r.ViaAPI {
		return a, false, err
	}
	return *r.Content, true, nil
}

func (s *State) Apply(e events.Event) {
	s.ChatState.Apply(e)
	d, err := events.Decode(e)
	if _, ok := e.Subject.OpenCodeType(); !ok && e.Malformed != nil {
		s.unreadable = e.Seq
	}
	if err != nil {
		return
	}
	switch d := d.(type) {
	case events.PermissionRequested:
		s.applyRequest(e, d.Request(), true)
	case events.PermissionReferred:
		s.at(e, d.Permission).Escalation = Escalation{d, e.Seq, e.Time}
	case events.PermissionDecided:
		r := s.at(e, d.Permission)
		r.Outcome = Outcome{e.Seq, e.Time, e.Actor, d.Decision, "", &d, e.Cause}
		s.addCall(r, d.Session, d.Call)
		if d.ApprovalOf != "" {
			s.at(e, d.ApprovalOf).Granted = true
		}
	case events.PermissionInterrupted:
		s.at(e, d.Permission).Interrupted = true
	case events.PermissionExpired:
		s.at(e, d.Permission).end(e, events.Expired, d.Reason)
	case events.PermissionApplied:
		s.at(e, d.Permission).Answered = true
	case events.AbortRequested:
		s.aborted[d.Session] = e.Seq
	case events.MessageSubmitted:
		if d.Resumes == "" && !d.IsReport() {
			s.lastPersonTurn = max(s.lastPersonTurn, e.Seq)
		}
	case events.RevertRequested:
		s.lastPersonTurn = max(s.lastPersonTurn, e.Seq)
	case events.TurnLost:
		s.lost[d.Session] = e.Seq
	case events.ExecRequested:
		s.at(e, d.Permission).Execution = d.Exec
	case events.ExecConnected:
		r := s.at(e, d.Permission)
		r.Connected = r.Connected || d.Allowed
	case events.OpenCode:
		s.applyOpenCode(e, d)
	}
}

func (s *State) applyOpenCode(e events.Event, d events.OpenCode) {
	switch d.Type {
	case events.PermissionAsked:
		if a, err := opencode.Read[events.PermissionRequest](d); err == nil {
			s.applyRequest(e, a, false)
		}
	case events.PermissionReplied:
		if reply, err := opencode.Read[opencode.PermissionReplied](d); err == nil && !s.Request(reply.RequestID).ViaAPI {
			s.at(e, reply.RequestID).end(e, reply.Reply, "answered in OpenCode")
		}
	}
}

// applyRequest applies the event that makes a request. An id is that of the first request of the chat that had it.
func (s *State) applyRequest(e events.Event, a events.PermissionRequest, direct bool) {
	r := s.at(e, a.ID)
	if r.Seq != 0 {
		return
	}
	r.Seq, r.Event, r.At, r.ViaAPI = e.Seq, e.ID, e.Time, direct
	r.Type, r.Command, r.Hash = a.Permission, a.Command(), a.ContentHash()
	if !direct {
		r.Session, r.Message, r.Call = a.SessionID, a.Tool.MessageID, a.Tool.CallID
		s.addCall(r, r.Session, r.Call)
		return
	}
	r.content, r.administrators = sha256.Sum256(e.Data), ForAdministrators(a.Permission, a.Metadata)
	if e.Actor == events.ActorPolicy && a.Permission == events.KindNetwork && len(a.Patterns) == 1 {
		r.Host = a.Patterns[0]
	}
	if e.Actor == events.ActorSandbox && a.Permission == events.KindKeep {
		r.Item = a.Keep().Item // without an item, nothing is carried out
	}
}

// addCall notes that a request is about a call.
func (s *State) addCall(r *Request, session, id string) {
	c := call{session, id}
	if s.calls[c] == nil {
		s.calls[c] = map[string]*Request{}
	}
	s.calls[c][r.ID] = r
}

// at returns the request of an id, to be changed because of an event about it.
func (s *State) at(e events.Event, id string) *Request {
	if s.requests[id] == nil {
		s.requests[id] = &Request{ID: id}
	}
	r := s.requests[id]
	if !slices.Contains(r.Events, e.Seq) {
		r.Events = append(r.Events, e.Seq)
	}
	return r
}

// end sets the outcome of a pending request. It does not replace a decision, because OpenCode reports a decision that
// it receives.
func (r *Request) end(e events.Event, status, reason string) {
	if r.Pending() {
		r.Outcome = Outcome{Seq: e.Seq, At: e.Time, By: e.Actor, Status: status, Reason: reason}
	}
}

// Request returns the request of an id, the zero Request if there is none.
func (s *State) Request(id string) Request {
	if r := s.requests[id]; r != nil {
		return *r
	}
	return Request{}
}

// HostRequests returns the policy's own requests for hosts, the newest for each host:port.
func (s *State) HostRequests() map[string]Request {
	newest := map[string]Request{}
	for _, r := range s.requests {
		if r.Host != "" && r.Seq > newest[r.Host].Seq {
			newest[r.Host] = *r
		}
	}
	return newest
}

// CommandRequest returns the request with the last decision about a command of one of OpenCode's calls, the zero
// Request if there is none. A model may use the id of a call again. A request that was made over the API does not
// count, because its author could have named any session and call.
func (s *State) CommandRequest(session, id string) (last Request) {
	for _, r := range s.calls[call{session, id}] {
		d := r.Outcome.Decided
		if !r.ViaAPI && d != nil && d.Type == events.KindBash && d.Session == session && d.Call == id &&
			r.Outcome.Seq > last.Outcome.Seq {
			last = *r
		}
	}
	return last
}

// ChangedCommandFiles returns the files that an approved command names and that differ from what its approval covers,
// relative to directory. It returns none if no person approved the command.
func (outcome Outcome) ChangedCommandFiles(directory, cwd string) []string {
	d := outcome.Decided
	if d == nil || !strings.HasPrefix(outcome.By, events.UserActor("")) {
		return nil
	}
	return workspace.Differences(d.Files, workspace.CommandFingerprints(cmp.Or(d.Edited, d.Command), directory, cwd),
		directory)
}

// AbortedAfter reports whether the turn of a session was aborted after an event.
func (s *State) AbortedAfter(session string, seq uint64) bool {
	return max(s.aborted[""], s.aborted[session]) > seq
}

// LostAfter reports whether the turn of a session was lost after an event.
func (s *State) LostAfter(session string, seq uint64) bool { return s.lost[session] > seq }

// over reports whether the turn that waits for a request was aborted, or may have been.
func (s *State) over(r Request) bool {
	return !r.Interrupted && !r.ViaAPI && (s.AbortedAfter(r.Session, r.Seq) || r.Seq < s.unreadable)
}

// WhyInvalid returns why an approval is no longer valid, "" if it is valid.
func (s *State) WhyInvalid(outcome Outcome, at time.Time) string {
	switch d := outcome.Decided; {
	case !d.Expires.IsZero() && !at.Before(d.Expires):
		return "the approval expired at " + d.Expires.Format(time.RFC3339)
	case s.AbortedAfter(d.Session, outcome.Seq):
		return "the turn was aborted after the approval"
	case outcome.Seq < s.unreadable:
		return fmt.Sprintf("event #%d after the approval cannot be read, so the approval may have been used", s.unreadable)
	}
	return ""
}

// grant returns the unused approval of an interrupted request with this hash. The approval ends when the person begins
// another turn or reverts. Where a command runs, and the state of the files that a request changes, must be as they
// were approved.
func (s *State) grant(hash, cwd string, files []events.FileFingerprint, at time.Time) (Outcome, bool) {
	for id, r := range s.requests {
		d := r.Outcome.Decided
		if d == nil || d.Decision != events.Authorized || d.Request != hash ||
			d.Type == events.KindBash && d.Cwd != cwd {
			continue
		}
		isUsed, isOver := r.Granted || r.Execution != "", r.Outcome.Seq < s.lastPersonTurn || s.WhyInvalid(r.Outcome, at) != ""
		if !r.Interrupted || isUsed || isOver {
			continue
		}
		if before := s.filesOf(id); len(before) == 0 && d.Type != events.KindBash || slices.Equal(before, files) {
			return r.Outcome, true
		}
	}
	return Outcome{}, false
}

// filesOf returns the fingerprints for which a request was approved. A request that used the approval of an
// interrupted one has the fingerprints of that one.
func (s *State) filesOf(id string) []events.FileFingerprint {
	for range len(s.requests) + 1 {
		r := s.Request(id)
		if len(r.Escalation.Files) > 0 {
			return r.Escalation.Files
		}
		if r.Outcome.Decided == nil || r.Outcome.Decided.ApprovalOf == "" {
			return nil
		}
		id = r.Outcome.Decided.ApprovalOf
	}
	return nil
}
