// Package permission decides permission requests. The Gate evaluates each request with the rules: it allows, denies,
// or leaves the request to a person. Permissions carries out a person's decision. Always and the dry run build on both.
// CardOf describes a request for the person who decides on it, and Explain explains it from the log afterwards: its
// content, the verdict of the policy, the decision, and the executions that followed.
//
// Promises: the first decision wins, and a later one is refused. A decision is made from the log and from the
// workspace's files. Only the arguments of a tool call, and the chat and the directory of a session, come from the read
// model; while the arguments are missing, the request is denied or a person decides. An approval of a request that
// OpenCode forgot is used once, for exactly the same request, until the person begins another turn or reverts. After a
// change of the rules, the pending requests that they allow now are decided, except those that OpenCode forgot. A card
// shows what an approval would allow byte for byte, or Whole is false; only a request for a command is described as a
// command, whatever its metadata hold. An explanation shows the rules of the time of the verdict, and changes nothing.
//
// It must not know how a command runs, how a host is reached, what a turn costs, or how a card is shown.
// Packages that know one of these things read State.
package permission

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers"
	"pocketcoder/handlers/mcpserver"
	"pocketcoder/handlers/permission/workspace"
	"pocketcoder/handlers/policy"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/rule"
)

// Session is an OpenCode session of a chat.
type Session struct {
	Chat      string
	Directory string // absolute
}

// Call is a tool call. A field that is not known is empty.
type Call struct {
	Tool    string // name of the tool; empty when it is not known
	Command string // bash: the command
	Cwd     string // bash: where the command is to run, absolute; empty when that is not known
	// the file that the call names as filePath, as OpenCode opens it: absolute, not cleaned; empty when it names none
	Path    string
	Agent   string // name of the agent that makes it; empty when that is not known
	Chosen  string // record of the agent that a person has chosen for the turn; empty for none
	Several bool   // several calls of one message have this id, so all but Agent may be of another call
}

// Gate reacts to permission requests. It decides a request at once, in the name of the policy, if a rule allows or
// denies it. It uses an earlier approval, once, if OpenCode forgot the approved request and makes it again. It leaves
// every other request to a person.
type Gate struct {
	Permissions *Permissions
	Records     *record.Records
	// those of the command line and the default ones; stored rules are in Records
	Rules []policy.Rule
	// returns the directory of a chat's project
	Workspace func(chat string) string
	// looks up the session of a request
	Session func(id string) (Session, bool)
	// ok once the arguments of the call are known
	Call func(ctx context.Context, session string, tool events.Call, wait time.Duration) (Call, bool)
	// of commands in the sandbox; empty if commands run outside it, or if the mode is unknown
	Network NetworkMode
	// whether a path outside the workspace exists for the OpenCode of a session that works in a directory; nil when
	// OpenCode is not confined
	Visible func(directory, real string) bool
	// returns a note on a request for the person who decides it, or ""; nil if no request has one
	NoteOn func(ctx context.Context, chat string, a events.PermissionRequest) string
	// of requests, for a dry run
	History RequestHistory
	Logger  *slog.Logger

	// sequence of the last event about an execution; 0 while it runs
	LastOfExecution func(ctx context.Context, exec string) (uint64, error)
	// returns a sequence up to which each request is evaluated; nil if that is not known
	Evaluated func(context.Context) (uint64, error)
}

// Run reacts to requests and to changes of rules until ctx ends. After a crash it continues with the first event that
// it has not acked.
func (g Gate) Run(ctx context.Context) error {
	type reaction = func(context.Context, events.Event) error
	type take = func(ctx context.Context, name, filter string, react reaction, failed func(events.Event, error)) error
	// The log stores the progress of each consumer under its name.
	consumer := func(work take, name, filter string, react reaction,
		begin func(context.Context) (uint64, error)) func(context.Context) error {
		return func(ctx context.Context) error {
			return work(log.ConsumeAfter(ctx, begin), name, filter, react, func(e events.Event, err error) {
				g.Logger.Error(name, "seq", e.Seq, "err", err)
			})
		}
	}
	l := g.Permissions.Log
	return handlers.RunAll(ctx,
		consumer(l.ConsumeByChat, "gate", events.ChatOpenCodeSubject("*", events.PermissionAsked), g.React, g.Evaluated),
		consumer(l.ConsumeByChat, "gate-requests", events.ChatSubject("*", events.PermissionRequested{}.Kind()), g.React,
			g.Evaluated),
		consumer(l.Consume, "gate-rules", events.ConfigSubject("*", "*", "*"), g.reactToRules(), nil))
}

// React evaluates the request that an event makes.
func (g Gate) React(ctx context.Context, e events.Event) error {
	request, direct, err := events.PermissionRequestOf(e)
	if err != nil {
		g.Logger.Error("gate: unreadable ask", "seq", e.Seq, "err", err)
		return nil // the request stays pending: a retry would not make it readable
	}
	return g.evaluate(ctx, e.Subject.ID, request, direct, "")
}

// callWait is how long the gate waits for the tool call of a request. OpenCode reports the call about 2 ms after the
// request (behaviour call-with-request).
const callWait = 2 * time.Second

// evaluate evaluates a request and records what follows, unless the request has ended meanwhile. changed says why a
// request that was left to a person is evaluated again; it is empty for a new request.
func (g Gate) evaluate(ctx context.Context, chat string, a events.PermissionRequest, direct bool,
	changed string) error {
	var r Request
	err := g.Permissions.Chat(ctx, chat).Read(ctx, g.Permissions.Log, func(s *State) error {
		r = s.Request(a.ID)
		return nil
	})
	if err != nil || !r.Pending() || r.ViaAPI != direct { // another request of the chat had this id first
		return err
	}
	if r.Escalation.Seq != 0 && changed == "" { // delivered again; reactToRules knows when a later rule may decide it
		return nil
	}
	var files []events.FileFingerprint
	if !direct { // a request over the API runs nothing
		// before input, which may wait for the call
		files = workspace.RequestFingerprints(g.Permissions.originals.of(a).PermissionRequest)
	}
	in, by := g.input(ctx, chat, a, direct, callWait)
	rules, err := g.RuleSets(ctx, by.scope(chat))
	if err != nil {
		return err
	}
	verdict, _ := rules.judge(in)
	evaluation := NewEvaluation(a, direct, in.Cwd, verdict)
	if err := ctx.Err(); err != nil { // it ended the evaluation
		return err
	}
	evaluation.files, evaluation.again = files, changed != ""
	evaluation.note = strings.TrimSpace(changed + " " + workspace.Note(a, g.directory(chat, a.SessionID, direct), direct))
	if verdict.Action == policy.AskPerson && !direct {
		note, err := g.programNote(ctx, chat, a, in.Cwd)
		if err != nil {
			return err
		}
		evaluation.note = strings.TrimSpace(evaluation.note + " " + note)
	}
	if g.NoteOn != nil && verdict.Action == policy.AskPerson && !direct {
		evaluation.note = strings.TrimSpace(evaluation.note + " " + g.noteOn(ctx, chat, a))
	}
	if a.Permission == events.KindBash && !direct {
		evaluation.hosts, evaluation.network = g.UndecidedHosts(rules, in.Command)
		if verdict.Action == policy.AskPerson {
			evaluation.files = workspace.CommandFingerprints(in.Command, in.Root, in.Cwd)
			evaluation.contents = workspace.Contents(evaluation.files, g.mayShow(rules, a.SessionID, in.Root))
		}
	}
	return g.Permissions.RecordEvaluation(ctx, chat, r.Event, evaluation)
}

// programNote returns a sentence for the person who decides a request that may change the program of an MCP server.
func (g Gate) programNote(ctx context.Context, chat string, a events.PermissionRequest, cwd string) (string, error) {
	all, err := mcpserver.All(ctx, g.Records)
	if err != nil || len(all) == 0 {
		return "", err
	}
	commands := make([]string, len(all))
	for i, s := range all {
		commands[i] = s.Command
	}
	i := workspace.NamesOneOf(commands, g.Permissions.originals.of(a).PermissionRequest, g.Workspace(chat), cwd)
	if i < 0 {
		return "", nil
	}
	what := "The file is"
	if a.Permission == events.KindBash {
		what = "The command names"
	}
	return what + " the program of the MCP server " + all[i].Name +
		", which may have secrets. If it changes, an administrator must approve the server again.", nil
}

// mayShow returns a function that reports whether the content of a file may be stored and shown. It may if the model
// could read the file without a question.
func (g Gate) mayShow(rules RuleSets, session, directory string) func(path string) bool {
	return func(path string) bool {
		a := events.PermissionRequest{SessionID: session, Permission: events.KindRead, Patterns: []string{path}}
		v, _ := rules.judge(g.inputOf(originalRequest{PermissionRequest: a}, directory))
		return v.Action == policy.Allow
	}
}

// noteTime limits the wait for a note, because later requests of the chat wait too.
const noteTime = 3 * time.Second

func (g *Gate) noteOn(ctx context.Context, chat string, a events.PermissionRequest) string {
	ctx, cancel := context.WithTimeout(ctx, noteTime)
	defer cancel()
	return g.NoteOn(ctx, chat, a)
}

// judge returns the policy's verdict. If the policy panics, judge leaves the request to a person, so that one request
// cannot stop all.
func judge(rules []policy.Rule, in policy.Input) (v policy.Verdict) {
	defer func() {
		if r := recover(); r != nil {
			v = policy.Verdict{Action: policy.AskPerson, Reason: fmt.Sprintf("the policy failed to read it: %v", r)}
		}
	}()
	return policy.Evaluate(rules, in)
}

// Decide carries out a person's decision. An approved command may run only in its requested directory. If the policy
// has not evaluated the request yet, Decide looks up the directory first. It refuses an approval if a file that the
// command names has changed since the request was left to a person.
func (g Gate) Decide(ctx context.Context, c Decide) (uint64, error) {
	if _, err := events.ParseID(c.Chat); err == nil && c.Decision == events.Authorized {
		r, err := g.Permissions.request(ctx, c.Chat, c.Permission)
		if err != nil {
			return 0, err
		}
		if r.Content != nil && r.Pending() && !r.ViaAPI && r.cwd() == "" {
			wait := callWait
			if r.Interrupted { // OpenCode sends no further event about it
				wait = 0
			}
			in, _ := g.input(ctx, c.Chat, *r.Content, false, wait)
			c.cwd = NewEvaluation(*r.Content, false, in.Cwd, policy.Verdict{}).cwd
		}
		if c.files, err = g.checkFiles(ctx, c.Chat, r, c.cwd, c.Edited); err != nil {
			return 0, err
		}
	}
	return g.Permissions.Decide(ctx, c)
}

// checkFiles returns the fingerprints of the files that an approved command names; edited replaces the command if it is
// not empty. If the files of a request changed after it was left to a person, checkFiles leaves it to a person again,
// with the files as they are now, and refuses the approval.
func (g Gate) checkFiles(ctx context.Context, chat string, r Request, cwd,
	edited string) ([]events.FileFingerprint, error) {
	cwd = cmp.Or(cwd, r.cwd())
	if r.Content == nil || !r.Pending() || r.ViaAPI || r.Type != events.KindBash || cwd == "" {
		return nil, nil
	}
	root, _ := workspace.RealPath(g.directory(chat, r.Session, false))
	files := workspace.CommandFingerprints(edited, root, cwd) // first: a change in between is found below
	now := workspace.CommandFingerprints(g.Permissions.originals.of(*r.Content).Command(), root, cwd)
	if edited == "" {
		files = now
	}
	if r.Escalation.Cwd == "" { // the files were not known when the request was left to a person
		return files, nil
	}
	changed := strings.Join(workspace.Differences(r.Escalation.Files, now, root), ", ")
	if changed == "" {
		return files, nil
	}
	if err := g.evaluate(ctx, chat, *r.Content, false, changed+" changed while the request waited. Read it again."); err != nil {
		return nil, err
	}
	return nil, handlers.RefuseField(handlers.Conflict, "shown_files",
		"%s changed while the request waited. Nothing was decided. Look at the request again.", changed)
}

// JudgeRead returns the verdict on reading a file, as if OpenCode had requested that for a tool call of a session. It
// records nothing. path is absolute.
func (g Gate) JudgeRead(ctx context.Context, chat, session string, tool events.Call,
	path string) (policy.Verdict, error) {
	a := events.PermissionRequest{SessionID: session, Permission: events.KindRead, Patterns: []string{path}, Tool: tool}
	in := g.inputOf(originalRequest{PermissionRequest: a}, g.directory(chat, session, false))
	in.Done = ctx.Done()
	call, _ := g.Call(ctx, session, tool, 0)
	rules, err := g.RuleSets(ctx, caller{call.Agent, call.Chosen}.scope(chat))
	v, _ := rules.judge(in)
	return v, err
}

// InForce returns every rule of a scope: stored rules, rules from the command line, and default rules.
func (g Gate) InForce(ctx context.Context, s rule.Scope) ([]policy.Rule, error) {
	rules, err := rule.InForce(ctx, g.Records, s)
	return append(rules, g.Rules...), err
}

// Evaluation is the policy's verdict on a permission request.
type Evaluation struct {
	request events.PermissionRequest
	direct  bool
	cwd     string // directory of a command that will run
	verdict policy.Verdict
	hosts   []string // host:port that a command names and only a person can allow
	network string   // why a command that needs a host will reach none
	note    string   // what a person must read first; empty for nothing
	files   []events.FileFingerprint
	// of the files of a command, for the person
	contents []events.FileContent
	again    bool // the request was left to a person before, with other files
}

func NewEvaluation(a events.PermissionRequest, direct bool, cwd string, v policy.Verdict) Evaluation {
	if direct || a.Permission != events.KindBash {
		cwd = ""
	}
	return Evaluation{request: a, direct: direct, cwd: cwd, verdict: v}
}

// RecordEvaluation appends the result of an evaluation: a decision, or that the request waits for a person.
func (h *Permissions) RecordEvaluation(ctx context.Context, chat, cause string, evaluation Evaluation) error {
	_, err := h.Chat(ctx, chat).Execute(ctx, h.Log, handlers.Command{ID: cause},
		func(s *State) ([]events.Event, uint64, error) {
			all, err := s.conclude(chat, evaluation, time.Now())
			return all, 0, err
		})
	return err
}

// conclude decides what to record about a request: nothing if it has ended. Pending requests for the same, which
// OpenCode forgot, expire, so that a person sees each request once.
func (s *State) conclude(chat string, evaluation Evaluation, at time.Time) (all []events.Event, err error) {
	a, hash := evaluation.request, evaluation.request.ContentHash()
	if r := s.Request(a.ID); !r.Pending() || evaluation.direct != r.ViaAPI {
		return nil, nil
	}
	actor, d, err := s.follow(chat, evaluation, at)
	if err != nil {
		return nil, err
	}
	add := func(d events.Data) error {
		e, err := events.New(chat, actor, d)
		all = append(all, e)
		return err
	}
	if d != nil {
		if err := add(d); err != nil {
			return nil, err
		}
	}
	if evaluation.direct || evaluation.again || s.Deleted != 0 {
		return all, nil
	}
	actor = events.ActorPolicy
	for id, other := range s.requests {
		if other.Pending() && other.Interrupted && id != a.ID && other.Hash == hash && !a.Redacted() {
			if err := add(events.PermissionExpired{Permission: id, Reason: "asked again as " + a.ID}); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// follow returns the event that follows from an evaluation, nil if it is recorded already, and its actor.
func (s *State) follow(chat string, evaluation Evaluation, at time.Time) (actor string, d events.Data, err error) {
	v, id := evaluation.verdict, evaluation.request.ID
	r, c := s.Request(id), Decide{Command: handlers.Command{Actor: events.ActorPolicy}, Chat: chat, Permission: id,
		cwd: evaluation.cwd}
	if !evaluation.direct && !s.over(r) && s.Deleted == 0 && !evaluation.request.Redacted() { // two may be stored alike
		if by, ok := s.grant(evaluation.request.ContentHash(), evaluation.cwd, evaluation.files, at); ok {
			c.Actor, c.Decision, c.grant = by.By, events.Authorized, by.Decided
			d, _, err := s.Decide(c)
			return c.Actor, d, err
		}
	}
	switch {
	case s.Deleted != 0:
		c.Decision, c.Reason = events.Denied, "the chat was deleted"
	case v.Action == policy.Deny:
		c.Decision, c.Reason, c.Rule = events.Denied, v.Reason, ruleRef(v.Rules)
	case v.Action == policy.Allow && !s.over(r):
		if c.Decision, c.Rule = events.Authorized, ruleRef(v.Rules); len(v.Rules) == 0 {
			c.Reason = v.Reason
		}
	case r.Escalation.Seq != 0 && !evaluation.again:
		return "", nil, nil
	default:
		return c.Actor, events.PermissionReferred{
			Permission: id, Reason: evaluation.reason(), RuleRef: ruleRef(v.Rules), Cwd: evaluation.cwd, Hosts: evaluation.hosts, Network: evaluation.network, Files: evaluation.files,
			Contents: evaluation.contents,
		}, nil
	}
	d, _, err = s.Decide(c)
	return c.Actor, d, err
}

// ruleRef names the rules that decided, each once.
func ruleRef(rules []policy.Rule) (ref events.RuleRef) {
	var names, ids []string
	for _, r := range rules {
		if name := r.String(); !slices.Contains(names, name) {
			names = append(names, name)
		}
		if r.ID != "" && !slices.Contains(ids, r.ID) {
			ids = append(ids, r.ID)
		}
		if handlers.IsStored(r.Version) { // one of the same transaction has no place yet
			ref.RuleVersion = max(ref.RuleVersion, r.Version)
		}
	}
	ref.Rule, ref.RuleID = strings.Join(names, " + "), strings.Join(ids, " + ")
	return ref
}

// reason is what a person reads of the verdict and of the hosts of a command.
func (evaluation Evaluation) reason() string {
	switch reason := strings.TrimPrefix(evaluation.note+" "+evaluation.verdict.Reason, " "); {
	case evaluation.network != "":
		return reason + ". " + evaluation.network
	case len(evaluation.hosts) > 0:
		return reason + ". If you approve it, it can also reach " + strings.Join(evaluation.hosts, ", ") + "."
	default:
		return reason
	}
}
