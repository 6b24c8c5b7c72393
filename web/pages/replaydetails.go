package pages

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/events/opencode"
	"pocketcoder/handlers/policy/display"
	"pocketcoder/projections"
	"pocketcoder/projections/timeline"
	"pocketcoder/web/api"
	"pocketcoder/web/pages/site"
)

// row is a line of what is known about an event.
type row struct{ name, value string }

// details are what a page shows about an event.
type details struct {
	rows   []row
	cause  int    // number of the event that led to it, 0 if none of the chat did
	exec   string // id of the execution that can be downloaded as a recording, "" if there is none
	stored string // its body
	by     string // who or what appended it
}

// maxStored is how much of a body is shown, in bytes.
const maxStored = 8 << 10

// detailsOf describes an event. db has the read models after it.
func (p replay) detailsOf(ctx context.Context, db dbx.Builder, e events.Event, all steps,
	email func(string) string) (d details, err error) {
	name := func(actor string) string { return actorName(actor, email) }
	d.by, d.cause, d.stored = name(e.Actor), all.cause(e.Cause), storedText(e.Data)
	if e.IsErased() {
		d.rows = []row{{"reason", "An operator erased this event."}}
		return d, nil
	}
	body, err := events.Decode(e)
	if err != nil {
		d.rows = []row{{"reason", "This event cannot be read."}}
		return d, nil
	}
	f := &finder{ctx: ctx, db: db, name: name}
	switch b := body.(type) {
	case events.OpenCode:
		d.rows = openCodeRows(b)
	case events.ExecRequested, events.ExecStarted, events.ExecSignalled, events.ExecConnected, events.ExecFinished,
		events.ExecChanged, events.ExecRefused:
		d.exec, d.rows, err = f.execution(b)
	default:
		d.rows, err = f.rows(b)
	}
	d.rows = filled(d.rows)
	if d.cause == 0 && f.about > 0 {
		d.cause = all.after(f.about)
	}
	return d, err
}

// filled leaves out rows without a value.
func filled(all []row) (rows []row) {
	for _, r := range all {
		if r.value != "" {
			rows = append(rows, r)
		}
	}
	return rows
}

// actorName names an account by its email, and a part of the system by what it is.
func actorName(actor string, email func(string) string) string {
	kind, _, _ := strings.Cut(actor, ":")
	return cmp.Or(email(actor), actors[kind], actor)
}

// storedText returns the beginning of a body for a person.
func storedText(body json.RawMessage) string {
	var b bytes.Buffer
	if json.Indent(&b, body, "", "  ") != nil {
		b.Write(body)
	}
	text := b.String()
	if short := api.Truncate(text, maxStored); short != text {
		return short + fmt.Sprintf("\n"+site.LeftOut, len(text)-len(short))
	}
	return text
}

// openCodeRows describe an event of OpenCode.
func openCodeRows(b events.OpenCode) []row {
	switch b.Type {
	case events.PermissionAsked:
		request, _ := opencode.Read[events.PermissionRequest](b)
		return []row{{"asks for", request.Permission}, subjectOf(request)}
	case events.QuestionAsked:
		request, _ := opencode.Read[events.QuestionRequest](b)
		return questionRows(request)
	case "message.part.updated":
		part, _ := opencode.Read[opencode.PartUpdated](b)
		var state struct{ Status, Title string }
		_ = json.Unmarshal(part.Part.State, &state) // text has none
		return []row{{"tool", strings.TrimSpace(part.Part.Tool + " " + state.Status)},
			{"text", firstOf(part.Part.Text)}}
	case "session.status":
		status, _ := opencode.Read[opencode.SessionStatus](b)
		return []row{{"outcome", status.Status.Type}}
	}
	return nil
}

// subjectOf says what a request is about.
func subjectOf(request events.PermissionRequest) row {
	if command := request.Command(); command != "" {
		return row{"command", command}
	}
	return row{"text", request.Text()}
}

func questionRows(request events.QuestionRequest) (all []row) {
	for _, q := range request.Questions {
		all = append(all, row{"asks for", q.Question})
	}
	return all
}

// maxText is how much of a message is shown beside the event, in bytes.
const maxText = 400

func firstOf(text string) string { return display.Cut(text, maxText) }

// finder looks up what an event refers to.
type finder struct {
	ctx   context.Context
	db    dbx.Builder
	name  func(actor string) string
	about uint64 // sequence of the event that the event follows from, 0 for none
}

// rows describe an event of our own that is about no execution.
func (f *finder) rows(body events.Data) ([]row, error) {
	switch b := body.(type) {
	case events.MessageSubmitted:
		return []row{{"text", textOf(b.Parts)}}, nil
	case events.MessageEdited:
		return []row{{"text", textOf(b.Parts)}}, f.message(b.Message)
	case events.MessageMoved:
		return nil, f.message(b.Message)
	case events.MessageSteered:
		return nil, f.message(b.Message)
	case events.MessageWithdrawn:
		return nil, f.message(b.Message)
	case events.PermissionRequested:
		return []row{{"asks for", b.Type}, subjectOf(b.Request())}, nil
	case events.PermissionReferred:
		p, err := f.request(b.Permission)
		return []row{subjectOf(p.Content()), {"why you are asked", b.Reason}, {"rule", b.Rule}}, err
	case events.PermissionDecided:
		p, err := f.request(b.Permission)
		subject := subjectOf(p.Content())
		subject.value = cmp.Or(b.Edited, subject.value)
		return []row{{"decision", decisions[b.Decision]}, subject, {"rule", b.Rule}, {"reason", b.Reason}}, err
	case events.PermissionExpired:
		p, err := f.request(b.Permission)
		return []row{subjectOf(p.Content()), {"reason", b.Reason}}, err
	case events.PermissionApplied:
		p, err := f.request(b.Permission)
		return []row{{"asks for", p.Message}, {"reason", b.Error}}, err
	case events.QuestionRequested:
		return questionRows(b.Request()), nil
	case events.QuestionAnswered:
		return []row{{"Answer", strings.Join(b.Answers, ", ")}}, nil
	case events.FileSent:
		return []row{{"file", b.Path}, {"text", firstOf(b.Caption)}}, nil
	case events.MCPCalled:
		return []row{{"tool", fmt.Sprintf(site.ToolOfServer, b.Tool, b.Name)},
			{"text", firstOf(string(b.Arguments))}}, nil
	case events.MCPReturned:
		took := time.Duration(b.DurationMS) * time.Millisecond
		return []row{{"outcome", fmt.Sprintf("answered after %s", took)}, {"text", firstOf(string(b.Result))},
			{"reason", b.Error}}, nil
	case events.MessageSending:
		return nil, f.message(b.Message)
	case events.MessageDelivered:
		return nil, f.message(b.Message)
	case events.MessageHeld:
		return []row{{"reason", b.Reason}}, f.message(b.Message)
	case events.MessageFailed:
		return []row{{"reason", b.Error}}, f.message(b.Message)
	case events.EffectFailed:
		return []row{{"reason", b.Reason}}, nil
	}
	return nil, nil
}

// textOf returns the beginning of what a person wrote.
func textOf(parts []events.Part) string {
	var words []string
	for _, p := range parts {
		words = append(words, cmp.Or(p.Text, p.Filename))
	}
	return firstOf(strings.Join(words, "\n"))
}

// request returns a permission request by OpenCode's id, or ours. The event follows from it.
func (f *finder) request(id string) (projections.Permission, error) {
	p, err := timeline.PermissionRow(f.ctx, f.db, id)
	f.about = uint64(p.AskedSeq)
	return p, err
}

// message says that the event follows from a message.
func (f *finder) message(id string) (err error) {
	f.about, err = timeline.Submitted(f.ctx, f.db, id)
	return err
}

// execution describes an event of an execution: its command, and the decision that allowed it. exec is its id if it
// has ended.
func (f *finder) execution(body events.Data) (exec string, rows []row, err error) {
	switch b := body.(type) {
	case events.ExecRequested:
		exec = b.Exec
	case events.ExecStarted:
		exec, rows = b.Exec, []row{{"outcome", b.Isolation}}
	case events.ExecSignalled:
		exec, rows = b.Exec, []row{{"signal", b.Signal}}
	case events.ExecConnected:
		exec, rows = b.Exec, []row{{"host", fmt.Sprintf("%s:%d", b.Host, b.Port)}, {"reason", b.Reason}}
	case events.ExecChanged:
		exec = b.Exec
		for _, file := range b.Files {
			rows = append(rows, row{"file", file.Path})
		}
	case events.ExecRefused:
		exec, rows = b.Exec, []row{{"command", b.Command}, {"reason", b.Reason}}
	case events.ExecFinished:
		exec, rows = b.Exec, []row{{"outcome", outcome(b)}, {"reason", b.Error}, {"processes left", b.Left.Sentence()}}
		for _, q := range b.Quarantined {
			rows = append(rows, row{"moved out of the workspace", q.Name + ", " + q.Describe()})
		}
	}
	x, err := timeline.Run(f.ctx, f.db, exec)
	if err != nil || x.ID == "" {
		return "", rows, err
	}
	p, err := f.request(x.Permission)
	if err != nil {
		return "", nil, err
	}
	if f.about = uint64(x.Position); beginsExecution(body) {
		f.about = uint64(p.DecidedSeq)
	}
	if x.Status != events.ExecutionRefused {
		rows = append([]row{{"command", x.Text}}, rows...)
	}
	if p.DecidedBy != "" {
		rows = append(rows, row{"allowed by", strings.TrimSpace(f.name(p.DecidedBy) + " " + p.Rule)})
	}
	if x.Finished == "" || x.Started == "" {
		exec = ""
	}
	return exec, rows, nil
}

// beginsExecution reports whether an event begins or refuses an execution.
func beginsExecution(body events.Data) bool {
	switch body.(type) {
	case events.ExecRequested, events.ExecRefused:
		return true
	}
	return false
}

// outcome says how an execution ended.
func outcome(b events.ExecFinished) string {
	end := cmp.Or(b.Reason, b.Signal, fmt.Sprintf("exit code %d", b.ExitCode))
	return fmt.Sprintf("%s after %s", end, time.Duration(b.DurationMS)*time.Millisecond)
}

// The names of marks, decisions and actors.
var (
	markNames = map[string]string{"request": "Requests", "decision": "Decisions", "execution": "Commands"}
	decisions = map[string]string{events.Authorized: "approved", events.Denied: "denied"}
	actors    = map[string]string{"policy": "a rule", "sandbox": "the sandbox", "system": site.Product,
		"anonymous": "a client that is not logged in", "engine": "OpenCode"}
)
