// Package render shows a chat on a terminal, in a file or in a pipe: its events, streaming fragments, requests,
// questions, commands with their output, and what explains a decision.
//
// Promises: each thing is shown once, in log order. All text of models and commands is made safe (package display).
//
// It must not know where events come from, who answers, or flags.
package render

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers/policy/display"
	"pocketcoder/projections/turnstate"
)

// Renderer shows a chat as it happens: events in log order, and streaming fragments in between. Each thing is shown
// once: the event that closes a part shows only the text that no fragment has shown.
// It is not safe for concurrent use.
type Renderer struct {
	*Screen
	Live    bool  // fragments follow from now on
	MaxLive int64 // bytes of one stream of a command's output that are shown as they come
	// lines of a command's output that are shown before the rest is folded; 0 folds nothing
	Fold  int
	Quiet map[string]bool          // messages whose author has them on the screen already
	Email func(user string) string // of an account, or ""; nil when no account is known

	depth     map[string]int    // of sessions: 0 for the chat's own, 1 for its subagents, and so on
	directory map[string]string // of sessions
	submitted map[string]bool   // OpenCode's ids of messages that were submitted here
	roles     map[string]string // of OpenCode's messages
	parts     map[string]*shownPart
	tools     map[string]string          // part -> the status of its tool call that was shown
	inputs    map[string]json.RawMessage // session/call -> input of the tool call
	execs     map[string]*Execution
	calls     map[string]*Execution // session/call -> its execution
	latest    *Execution            // whose output was shown last
	requests  map[string]*Request
	answered  map[string]bool // questions answered here, or over
	stopped   map[string]bool // sessions that were stopped, and whose open parts are shown first
}

func New(s *Screen) *Renderer {
	return &Renderer{
		Screen: s, MaxLive: maxLiveOutput, Quiet: map[string]bool{},
		depth: map[string]int{}, directory: map[string]string{}, submitted: map[string]bool{}, roles: map[string]string{},
		parts: map[string]*shownPart{}, tools: map[string]string{}, inputs: map[string]json.RawMessage{},
		execs: map[string]*Execution{}, calls: map[string]*Execution{}, requests: map[string]*Request{}, answered: map[string]bool{},
		stopped: map[string]bool{},
	}
}

// indent returns the indentation of lines about a session.
func (r *Renderer) indent(session string) string { return strings.Repeat("    ", r.level(session)) }

// level returns the depth of a session. An unknown session is a subagent, unless it is the first.
func (r *Renderer) level(session string) int {
	if d, ok := r.depth[session]; ok || session == "" || len(r.depth) == 0 {
		return d
	}
	return 1
}

// Flatten shows a session without indentation, whatever its depth.
func (r *Renderer) Flatten(session string) { r.depth[session] = 0 }

// Note shows a line about a session; an empty session is the chat.
func (r *Renderer) Note(session string, st Style, format string, args ...any) {
	r.Line(r.indent(session), st, display.Exact(fmt.Sprintf(format, args...)))
}

// Event shows an event of the chat, without the parts that are on the screen already.
func (r *Renderer) Event(e events.Event) {
	d, err := events.Decode(e)
	if e.IsErased() {
		r.Note("", Dim, "event #%d %s: %v", e.Seq, e.Subject.Kind, err)
		return
	}
	if err != nil {
		r.Note("", Red, "event #%d cannot be read: %v", e.Seq, err)
		return
	}
	if r.requestEvent(e, d) || r.executionEvent(e, d) {
		return
	}
	switch d := d.(type) {
	case events.ChatCreated:
		r.Note("", Dim, "chat %s: %s", e.Subject.ID, cmp.Or(d.Title, events.DefaultTitle))
	case events.ChatErased:
		r.Note("", Dim, "chat %s: an operator erased its text", e.Subject.ID)
	case events.WorktreeClosed:
		r.worktreeClosed(d)
	case events.SessionBound:
		r.depth[d.Session], r.directory[d.Session] = 0, d.Directory
	case events.MessageSubmitted:
		r.message(d)
	case events.MessageSending:
		r.submitted[d.EngineMessage] = true
	case events.MessageFailed:
		r.Note("", Red, "the message could not be delivered (%s): %s", d.Domain, d.Error)
	case events.MessageHeld:
		r.Note("", Yellow, "(the message waits: %s)", d.Reason)
	case events.ModelReplaced:
		r.Note("", Yellow, "%s", d.Reason)
	case events.SessionReplaced:
		r.Note("", Yellow, "%s", d.Reason)
	case events.FileSent:
		r.fileSent(d)
	case events.TurnLost:
		r.closeParts(d.Session)
		r.Note(d.Session, Red, "%s", turnstate.EndLost.Sentence())
	case events.AbortRequested:
		r.Note(d.Session, Yellow, "%s asked to stop", r.Actor(e.Actor))
	case events.OmissionRequested:
		for _, f := range d.Files {
			r.Note("", Yellow, "left out: %s", display.OneLine(f.Name, 200))
		}
	case events.EffectDone:
		r.effectDone(d)
	case events.EffectFailed:
		r.Note("", Red, "This failed: %s", d.Reason)
	case events.OpenCode:
		r.openCode(e, d)
	}
}

func (r *Renderer) effectDone(d events.EffectDone) {
	if len(d.Kept) > 0 {
		r.Note("", Yellow, "kept as they are, because they were changed later: %s",
			display.OneLine(strings.Join(d.Kept, ", "), 1000))
	}
	if d.Copies != "" {
		r.Note("", Yellow, "some of them were changed while the undo or redo was interrupted; their earlier versions are in %s",
			display.OneLine(d.Copies, 1000))
	}
}

func (r *Renderer) message(d events.MessageSubmitted) {
	switch {
	case r.Quiet[d.Message]:
	case strings.HasPrefix(d.Resumes, "que_"):
		r.Note("", Dim, "(the turn is resumed: its question was answered)")
	case d.Resumes != "":
		r.Note("", Dim, "(the turn is resumed: %s was approved)", r.requestName(d.Resumes))
	default:
		r.userText("", MessageText(d))
	}
}

func (r *Renderer) fileSent(d events.FileSent) {
	text := fmt.Sprintf("[file %s, %s]", d.Path, display.Size(d.Content.Size))
	if d.Caption != "" {
		text += " " + d.Caption
	}
	r.Note(d.Session, Plain, "%s", text)
}

func (r *Renderer) userText(session, text string) {
	r.Line(r.indent(session)+r.Paint(Cyan, "› "), Plain, display.Clean(text))
}

// Fragment shows a streaming fragment.
func (r *Renderer) Fragment(d log.Delta) {
	switch d.Type {
	case log.ExecOutput:
		r.execOutput(d)
	case "opencode.message.part.delta":
		r.partDelta(d.Data)
	}
	// A running tool's growing output has no other source than the executions shown already.
}

// shownPart is a text or a reasoning that grows.
type shownPart struct {
	session string
	st      Style
	follow  bool     // its fragments are shown as they come
	early   []string // fragments that came before the event that opens it
	opened  bool
	done    bool
	text    string // text so far; the screen shows it except for the end that cleaner and prose hold back
	cleaner display.Cleaner
	prose   prose
}

func (r *Renderer) part(id string) *shownPart {
	if r.parts[id] == nil {
		r.parts[id] = &shownPart{}
	}
	return r.parts[id]
}

func (r *Renderer) partDelta(body []byte) {
	var d struct{ PartID, Delta string }
	if json.Unmarshal(body, &d) != nil || d.PartID == "" {
		return // the closing event has the text
	}
	switch p := r.part(d.PartID); {
	case p.done:
	case !p.opened:
		p.early = append(p.early, d.Delta)
	case p.follow:
		r.grow(d.PartID, p, d.Delta)
	}
}

func (r *Renderer) grow(id string, p *shownPart, more string) {
	p.text += more
	r.prose(id, p, p.cleaner.Clean([]byte(more)))
}

// prose shows more text of a part, wrapped and styled as the terminal allows.
func (r *Renderer) prose(id string, p *shownPart, text string) {
	in := r.indent(p.session)
	if r.Writing != id {
		p.prose.interrupt()
	}
	p.prose.width, p.prose.styled, p.prose.base = r.width(len(in)), r.colours, p.st
	r.Flow(id, in, Plain, p.prose.write(text))
}

// setPart shows the text of a part's event that its fragments lacked.
func (r *Renderer) setPart(p *shownPart, part Part) {
	if p.done {
		return
	}
	if !p.opened {
		p.opened, p.follow, p.session = true, r.Live, part.SessionID
		if p.prose.markup = part.Type != "reasoning"; !p.prose.markup {
			p.st = Dim
		}
		if p.follow && part.Time.End == 0 {
			for _, text := range p.early {
				r.grow(part.ID, p, text)
			}
		}
		p.early = nil
	}
	switch rest, ok := strings.CutPrefix(part.Text, p.text); {
	case ok:
		r.grow(part.ID, p, rest)
	case strings.TrimRight(p.text, " \t\r\n") == strings.TrimRight(part.Text, " \t\r\n"): // OpenCode trims a closed text
	case part.Time.End != 0:
		r.Note(p.session, Dim, "(some of the text above was missed; this is all of it)")
		r.grow(part.ID, p, part.Text)
	}
	if p.done = part.Time.End != 0; p.done {
		r.closePart(part.ID, p)
		r.showStopped(p.session)
	}
}

// closePart shows the end of a part.
func (r *Renderer) closePart(id string, p *shownPart) {
	p.done = true
	r.prose(id, p, p.cleaner.Flush())
	r.Flow(id, r.indent(p.session), Plain, p.prose.flush())
	if r.Writing == id {
		r.EndLine()
	}
	p.text = ""
}

// closeParts ends the open parts of a session.
func (r *Renderer) closeParts(session string) {
	for id, p := range r.parts {
		if p.opened && !p.done && p.session == session {
			r.closePart(id, p)
		}
	}
	r.showStopped(session)
}

// showStopped shows that a session was stopped, after the text that it had written.
func (r *Renderer) showStopped(session string) {
	if !r.stopped[session] {
		return
	}
	for _, p := range r.parts {
		if p.opened && !p.done && p.session == session {
			return
		}
	}
	delete(r.stopped, session)
	r.Note(session, Dim, "(stopped)")
}

// Finish shows the lines that were held for events that did not come.
func (r *Renderer) Finish() {
	for session := range r.stopped {
		r.closeParts(session)
	}
	for _, x := range r.execs {
		if len(x.signals) > 0 {
			r.execSignals(x)
		}
	}
	r.EndLine()
}

// Actor returns the name of an actor: the email of an account, or the actor itself.
func (r *Renderer) Actor(actor string) string {
	user, ok := strings.CutPrefix(actor, events.UserActor(""))
	if !ok {
		return actor
	}
	if r.Email != nil {
		if email := r.Email(user); email != "" {
			return display.Exact(email)
		}
	}
	return user
}

// MessageText returns the text of a message, with a line for each file.
func MessageText(d events.MessageSubmitted) string {
	var text []string
	for _, p := range d.Parts {
		if p.Type == "file" {
			p.Text = fmt.Sprintf("[file %s, %s]", p.Filename, p.Mime)
		}
		text = append(text, p.Text)
	}
	return strings.Join(text, "\n")
}

func (r *Renderer) worktreeClosed(d events.WorktreeClosed) {
	switch {
	case d.Kept != "":
		r.Note("", Yellow, "the git worktree %s with the branch %s is kept: %s", d.Worktree, d.Branch, d.Kept)
	case d.Branch != "":
		r.Note("", Yellow, "the git worktree %s was removed; its branch %s is kept for its commits", d.Worktree, d.Branch)
	default:
		r.Note("", Dim, "the git worktree %s and its branch were removed", d.Worktree)
	}
}
