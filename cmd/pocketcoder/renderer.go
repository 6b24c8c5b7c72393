package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"pocketcoder/events"
	"pocketcoder/events/log"
)

// renderer shows a chat as it happens: events in log order, and streaming fragments in between. Each thing is shown
// once: what a fragment has shown is not repeated by the event that closes it, and what no fragment has shown is.
// It is not safe for concurrent use.
type renderer struct {
	*screen
	live  bool                     // fragments are followed from now on
	most  int64                    // bytes of one stream of a command's output that are shown as they come
	fold  int                      // lines of a command's output that are shown before the rest is folded; 0 folds nothing
	quiet map[string]bool          // messages whose author has them on the screen already
	email func(user string) string // of an account, or ""; nil when no account is known

	depth     map[string]int    // of sessions: 0 for the chat's own, 1 for its subagents, and so on
	directory map[string]string // of sessions
	submitted map[string]bool   // OpenCode's ids of messages that were submitted here
	roles     map[string]string // of OpenCode's messages
	parts     map[string]*shownPart
	tools     map[string]string          // part -> the status of its tool call that was shown
	inputs    map[string]json.RawMessage // session/call -> input of the tool call
	execs     map[string]*shownExec
	calls     map[string]*shownExec // session/call -> its execution
	latest    *shownExec            // whose output was shown last
	asks      map[string]*shownAsk
	answered  map[string]bool // questions answered here, or over
	stopped   map[string]bool // sessions that were stopped, and whose open parts are shown first
}

func newRenderer(s *screen) *renderer {
	return &renderer{
		screen: s, most: maxLiveOutput, quiet: map[string]bool{},
		depth: map[string]int{}, directory: map[string]string{}, submitted: map[string]bool{}, roles: map[string]string{},
		parts: map[string]*shownPart{}, tools: map[string]string{}, inputs: map[string]json.RawMessage{},
		execs: map[string]*shownExec{}, calls: map[string]*shownExec{}, asks: map[string]*shownAsk{}, answered: map[string]bool{},
		stopped: map[string]bool{},
	}
}

// indent is what every line about a session begins with.
func (r *renderer) indent(session string) string { return strings.Repeat("    ", r.level(session)) }

// level is the depth of a session; one that nothing was said about yet is a subagent, unless it is the first.
func (r *renderer) level(session string) int {
	if d, ok := r.depth[session]; ok || session == "" || len(r.depth) == 0 {
		return d
	}
	return 1
}

// flatten shows a session without indentation, whatever its depth.
func (r *renderer) flatten(session string) { r.depth[session] = 0 }

func (r *renderer) note(session string, st style, format string, args ...any) {
	r.line(r.indent(session), st, visible(fmt.Sprintf(format, args...)))
}

// event shows what an event of the chat adds to what is on the screen.
func (r *renderer) event(e events.Event) {
	d, err := events.Decode(e)
	if err != nil {
		r.note("", red, "event #%d cannot be read: %v", e.Seq, err)
		return
	}
	switch d := d.(type) {
	case events.ChatCreated:
		r.note("", dim, "chat %s: %s", e.Subject.ID, d.Title)
	case events.SessionBound:
		r.depth[d.Session], r.directory[d.Session] = 0, d.Directory
	case events.MessageSubmitted:
		r.message(e, d)
	case events.MessageSending:
		r.submitted[d.EngineMessage] = true
	case events.MessageFailed:
		r.note("", red, "the message could not be delivered (%s): %s", d.Domain, d.Error)
	case events.MessageHeld:
		r.note("", yellow, "(the message waits: %s)", d.Reason)
	case events.ModelReplaced:
		r.note("", yellow, "%s", d.Reason)
	case events.PermissionRequested:
		r.addAsk(d.Ask(), e.Seq).message = d.Message
	case events.PermissionReferred:
		r.referred(d)
	case events.PermissionDecided:
		r.decided(e, d)
	case events.PermissionInterrupted:
		if a := r.asks[d.Permission]; a != nil {
			a.interrupted = true
		}
		r.note("", yellow, "OpenCode restarted and forgot the request %s; it can still be decided", r.askName(d.Permission))
	case events.PermissionExpired:
		r.settle(d.Permission, yellow, "the request "+r.askName(d.Permission)+" expired: "+d.Reason+" · "+recordOf(d.Permission))
	case events.QuestionAnswered:
		r.questionAnswered(e, d)
	case events.QuestionInterrupted:
		r.note("", yellow, "OpenCode restarted and forgot its question; it can still be answered, which resumes the turn")
	case events.QuestionExpired:
		r.answered[d.Question] = true
		r.note("", yellow, "the question expired: %s", d.Reason)
	case events.ExecRequested:
		r.execRequested(d, e.Time)
	case events.ExecRefused:
		r.note(d.Session, red, "✗ refused to run: %s\n  %s", d.Command, d.Reason)
	case events.ExecStarted:
		if r.exec(d.Exec).detached {
			r.execNote(d.Exec, dim, "runs by itself as %s (isolation %s)", d.Exec, d.Isolation)
		}
	case events.ExecSignalled:
		r.execSignalled(e, d)
	case events.ExecConnected:
		r.execConnected(d)
	case events.ExecFinished:
		r.execFinished(d)
	case events.ExecChanged:
		r.execChanged(d)
	case events.TurnLost:
		r.closeParts(d.Session)
		r.note(d.Session, red, "the turn was lost: OpenCode went away in the middle of it")
	case events.AbortRequested:
		r.note(d.Session, yellow, "%s asked to stop", r.actor(e.Actor))
	case events.OpenCode:
		r.openCode(e, d)
	}
}

// message shows what a person wrote.
func (r *renderer) message(e events.Event, d events.MessageSubmitted) {
	switch {
	case r.quiet[d.Message]:
	case strings.HasPrefix(d.Resumes, "que_"):
		r.note("", dim, "(the turn is resumed: its question was answered)")
	case d.Resumes != "":
		r.note("", dim, "(the turn is resumed: %s was approved)", r.askName(d.Resumes))
	default:
		r.userText("", messageText(d))
	}
}

func (r *renderer) userText(session, text string) {
	r.line(r.indent(session)+r.paint(cyan, "› "), plain, cleaned(text))
}

// fragment shows a streaming fragment.
func (r *renderer) fragment(d log.Delta) {
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
	st      style
	follow  bool     // its fragments are shown as they come
	early   []string // fragments that came before the event that opens it
	opened  bool
	done    bool
	text    string // as it was given; the screen has it but for what cleaner and prose hold back
	cleaner cleaner
	prose   prose
}

func (r *renderer) part(id string) *shownPart {
	if r.parts[id] == nil {
		r.parts[id] = &shownPart{}
	}
	return r.parts[id]
}

func (r *renderer) partDelta(body []byte) {
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

// grow shows more of a part.
func (r *renderer) grow(id string, p *shownPart, more string) {
	p.text += more
	r.prose(id, p, p.cleaner.clean([]byte(more)))
}

// prose shows more text of a part, wrapped and styled as the terminal allows.
func (r *renderer) prose(id string, p *shownPart, text string) {
	in := r.indent(p.session)
	if r.writing != id {
		p.prose.interrupt()
	}
	p.prose.width, p.prose.styled, p.prose.base = r.width(len(in)), r.colours, p.st
	r.flow(id, in, plain, p.prose.write(text))
}

// setPart shows what a part's event has that its fragments had not.
func (r *renderer) setPart(p *shownPart, part openCodePart) {
	if p.done {
		return
	}
	if !p.opened {
		p.opened, p.follow, p.session = true, r.live, part.SessionID
		if p.prose.markup = part.Type != "reasoning"; !p.prose.markup {
			p.st = dim
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
		r.note(p.session, dim, "(some of the text above was missed; this is all of it)")
		r.grow(part.ID, p, part.Text)
	}
	if p.done = part.Time.End != 0; p.done {
		r.closePart(part.ID, p)
		r.sayStopped(p.session)
	}
}

// closePart shows the end of a part.
func (r *renderer) closePart(id string, p *shownPart) {
	p.done = true
	r.prose(id, p, p.cleaner.flush())
	r.flow(id, r.indent(p.session), plain, p.prose.flush())
	if r.writing == id {
		r.endLine()
	}
	p.text = ""
}

// closeParts ends the parts of a session that nothing will close any more.
func (r *renderer) closeParts(session string) {
	for id, p := range r.parts {
		if p.opened && !p.done && p.session == session {
			r.closePart(id, p)
		}
	}
	r.sayStopped(session)
}

// sayStopped says that a session was stopped, after what it had written by then.
func (r *renderer) sayStopped(session string) {
	if !r.stopped[session] {
		return
	}
	for _, p := range r.parts {
		if p.opened && !p.done && p.session == session {
			return
		}
	}
	delete(r.stopped, session)
	r.note(session, dim, "(stopped)")
}

// finish shows what waited for events that did not come.
func (r *renderer) finish() {
	for session := range r.stopped {
		r.closeParts(session)
	}
	for _, x := range r.execs {
		if len(x.signals) > 0 {
			r.execSignals(x)
		}
	}
	r.endLine()
}

// actor names who did something: an account by its email.
func (r *renderer) actor(actor string) string {
	user, ok := strings.CutPrefix(actor, events.UserActor(""))
	if !ok {
		return actor
	}
	if r.email != nil {
		if email := r.email(user); email != "" {
			return visible(email)
		}
	}
	return user
}

// messageText is a message as a person reads it.
func messageText(d events.MessageSubmitted) string {
	var text []string
	for _, p := range d.Parts {
		if p.Type == "file" {
			p.Text = fmt.Sprintf("[file %s, %s]", p.Filename, p.Mime)
		}
		text = append(text, p.Text)
	}
	return strings.Join(text, "\n")
}
