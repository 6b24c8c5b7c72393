package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/projections"
)

// shownAsk is a permission ask.
type shownAsk struct {
	ask         events.PermissionAsk
	seq         uint64 // when it was asked
	message     string // with which it was asked over the API
	referred    bool   // the policy has left it to a person
	why         string // it did so
	directory   string // where the command would run, when the policy has found out
	request     string // SHA-256 of type, patterns and metadata
	interrupted bool
	shown       bool // all of it is on the screen
	settled     bool
	denied      bool
}

func (r *renderer) addAsk(ask events.PermissionAsk, seq uint64) *shownAsk {
	if r.asks[ask.ID] == nil { // it is seen again after a reconnect
		r.asks[ask.ID] = &shownAsk{ask: ask, seq: seq, request: ask.Request()}
	}
	return r.asks[ask.ID]
}

// pending gives the asks that nobody has decided, oldest first.
func (r *renderer) pending() []*shownAsk {
	var all []*shownAsk
	for _, a := range r.asks {
		if !a.settled {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, func(a, b *shownAsk) int { return cmp.Compare(a.seq, b.seq) })
	return all
}

// due gives those of them that the policy has left to a person.
func (r *renderer) due() []*shownAsk {
	return slices.DeleteFunc(r.pending(), func(a *shownAsk) bool { return !a.referred })
}

// referred takes the policy's word that a person is needed.
func (r *renderer) referred(d events.PermissionReferred) {
	if a := r.asks[d.Permission]; a != nil {
		a.referred, a.why, a.directory = true, d.Reason, d.Cwd
	}
}

// mayScroll is the number of lines above which the length of a command is said: it may not fit on a screen.
const mayScroll = 12

// showAsk shows what is asked and why, each in a line. What does not fit into one, a diff for example, stands between them.
func (r *renderer) showAsk(a *shownAsk) {
	if a.shown {
		return
	}
	a.shown = true
	session, in := a.ask.SessionID, r.indent(a.ask.SessionID)
	about := map[string]json.RawMessage{}
	_ = json.Unmarshal(a.ask.Metadata, &about) // of another shape: the patterns say what it is about
	what := a.what(about)
	if strings.Contains(what, "\n") {
		r.note(session, yellow, "? %s", a.ask.Permission)
		r.line(in+"    ", bold, visible(what))
	} else {
		r.line(in+r.paint(yellow, "? "+visible(a.ask.Permission)+"  "), bold, visible(what))
	}
	r.askDetails(a, about)
	var why []string
	reason := a.why
	if reason != "" {
		reason = "why: " + reason
	}
	// Said below the text, because the first lines of a long one have scrolled away.
	length := ""
	if n := strings.Count(strings.TrimRight(what, "\n"), "\n") + 1; n > mayScroll {
		length = fmt.Sprintf("%d lines, read all of them", n)
	}
	for _, text := range []string{length, reason, r.askPlace(a), recordOf(a.ask.ID)} {
		if text != "" {
			why = append(why, text)
		}
	}
	r.line(in+"  ", dim, wrapped(visibleLine(strings.Join(why, " · ")), r.width(len(in)+2)))
	if a.interrupted {
		r.note(session, yellow, "  OpenCode restarted and forgot this request. Approving it resumes the turn.")
	}
}

// what says what is asked for: the command, the file with the number of changed lines, or the patterns.
func (a *shownAsk) what(about map[string]json.RawMessage) string {
	if c := a.ask.Command(); c != "" {
		return c
	}
	if a.byPolicy() && a.message != "" {
		return a.message
	}
	what := visibleLine(strings.Join(a.ask.Patterns, " · "))
	if diff := plainText(about["diff"]); about["diff"] != nil {
		added, removed := changedLines(diff)
		what += fmt.Sprintf(" (+%d −%d)", added, removed)
	}
	return what
}

// byPolicy reports whether the policy itself asks: its message says all that the request is about.
func (a *shownAsk) byPolicy() bool {
	return a.ask.Permission == handlers.NetworkAsk || a.ask.Permission == handlers.BudgetAsk
}

// changedLines counts the lines that a unified diff adds and removes.
func changedLines(diff string) (added, removed int) {
	inHunk := false
	for line := range strings.SplitSeq(diff, "\n") {
		switch {
		case strings.HasPrefix(line, "@@"):
			inHunk = true
		case inHunk && strings.HasPrefix(line, "+"):
			added++
		case inHunk && strings.HasPrefix(line, "-"):
			removed++
		}
	}
	return added, removed
}

// askDetails shows what else belongs to a decision: the diff, and what only the metadata says.
func (r *renderer) askDetails(a *shownAsk, about map[string]json.RawMessage) {
	if a.byPolicy() {
		return
	}
	if a.message != "" && a.message != a.ask.Command() {
		r.note(a.ask.SessionID, plain, "  %s", a.message)
	}
	for _, name := range sortedKeys(about) {
		text := plainText(about[name])
		switch {
		case name == "command", name == "filepath", text == "", text == "{}", text == "[]":
		case name == "diff":
			r.diff(a.ask.SessionID, text)
		default:
			r.note(a.ask.SessionID, plain, "  %s: %s", name, visibleLine(text))
		}
	}
}

// askPlace is where a tool call would work.
func (r *renderer) askPlace(a *shownAsk) string {
	if cwd := cmp.Or(a.directory, r.cwd(a.ask)); cwd != "" {
		return "in " + cwd
	}
	return ""
}

// recordOf is the id under which "pocketcoder policy why" and clients know a request.
func recordOf(request string) string {
	if strings.HasPrefix(request, "per_") {
		return projections.RecordID(request)
	}
	return request // a request over the API is its own record
}

// cwd is where the tool call would work.
func (r *renderer) cwd(ask events.PermissionAsk) string {
	if dir := toolArgument(r.inputs[ask.SessionID+"/"+ask.Tool.CallID], "workdir"); dir != "" {
		return dir
	}
	return r.directory[ask.SessionID]
}

// diff shows a unified diff, without the rule that OpenCode puts above it.
func (r *renderer) diff(session, text string) {
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		st := plain
		switch {
		case strings.HasPrefix(line, "Index: "), strings.HasPrefix(line, "====="):
			continue
		case strings.HasPrefix(line, "@@"):
			st = cyan
		case strings.HasPrefix(line, "+"):
			st = green
		case strings.HasPrefix(line, "-"):
			st = red
		}
		r.line(r.indent(session)+"    ", st, visible(line))
	}
}

// askOf finds the ask of a tool call.
func (r *renderer) askOf(session, call string) *shownAsk {
	for _, a := range r.asks {
		if a.ask.SessionID == session && a.ask.Tool.CallID == call {
			return a
		}
	}
	return nil
}

// askName says in a word which ask is meant.
func (r *renderer) askName(id string) string {
	if a := r.asks[id]; a != nil {
		return a.ask.Permission + " " + oneLine(askSubject(a.ask), 80)
	}
	return id
}

func askSubject(ask events.PermissionAsk) string {
	if c := ask.Command(); c != "" {
		return c
	}
	return strings.Join(ask.Patterns, " ")
}

func (r *renderer) decided(e events.Event, d events.PermissionDecided) {
	a := r.asks[d.Permission]
	if a == nil {
		a = r.addAsk(events.PermissionAsk{ID: d.Permission, SessionID: d.Session, Permission: d.Type, Patterns: []string{d.Command}}, e.Seq)
		a.shown = true
	}
	if e.Actor != events.ActorPolicy && d.Grant == "" {
		r.showAsk(a)
	}
	mark, st := "✓", dim
	if a.denied = d.Decision == events.Denied; a.denied {
		mark, st = "✗", red
	}
	text := fmt.Sprintf("%s %s: %s by %s", mark, r.askName(d.Permission), d.Decision, r.actor(e.Actor))
	if d.Edited != "" {
		text += ", edited"
	}
	if d.Rule != "" {
		text += fmt.Sprintf(", rule %q", d.Rule)
	}
	if !d.Expires.IsZero() {
		text += ", until " + d.Expires.Local().Format(time.DateTime)
	}
	if d.Reason != "" {
		text += ": " + d.Reason
	}
	r.settle(d.Permission, st, text+" · "+recordOf(d.Permission))
	if d.Edited != "" {
		r.diff(a.ask.SessionID, edits(d.Command, d.Edited))
	}
}

// edits is what became of a command, as a diff of its lines.
func edits(original, edited string) string {
	return "-" + strings.ReplaceAll(original, "\n", "\n-") + "\n+" + strings.ReplaceAll(edited, "\n", "\n+")
}

// replied is news only about an ask that nobody decided here.
func (r *renderer) replied(e events.Event, p openCodePayload) {
	if a := r.asks[p.RequestID]; a != nil && !a.settled {
		r.showAsk(a)
		r.settle(p.RequestID, yellow, fmt.Sprintf("%s was answered in OpenCode: %s", r.askName(p.RequestID), p.Reply))
	}
}

func (r *renderer) settle(id string, st style, text string) {
	session := ""
	if a := r.asks[id]; a != nil {
		session, a.settled = a.ask.SessionID, true
	}
	r.note(session, st, "%s", text)
}

// openQuestion is one of the questions that the model asked together.
type openQuestion struct {
	id           string // que_…, of all of them
	index        int
	session      string
	header       string
	text         string
	labels       []string
	descriptions []string // one for each label
	multiple     bool
	custom       bool // own words are an answer too
	interrupted  bool
}

func openQuestions(ask events.QuestionAsk) []openQuestion {
	var all []openQuestion
	for i, q := range ask.Questions {
		open := openQuestion{id: ask.ID, index: i, session: ask.SessionID, header: q.Header, text: q.Question, multiple: q.Multiple, custom: q.Free()}
		for _, o := range q.Options {
			open.labels, open.descriptions = append(open.labels, o.Label), append(open.descriptions, o.Description)
		}
		all = append(all, open)
	}
	return all
}

func (r *renderer) showQuestion(q openQuestion) {
	text := strings.TrimSpace(q.text)
	if q.multiple {
		text += " (several answers may be given)"
	}
	r.note(q.session, yellow, "? %s", text)
	if q.interrupted {
		r.note(q.session, yellow, "  (interrupted: OpenCode forgot it when it restarted; answering it resumes the turn)")
	}
	for i, label := range q.labels {
		r.note(q.session, plain, "%s", strings.TrimRight(fmt.Sprintf("  %d) %s  %s", i+1, label, q.descriptions[i]), " "))
	}
}

// promptText asks for what the question waits for.
func (q openQuestion) promptText() string {
	text := "a number"
	if q.multiple {
		text = "numbers"
	}
	switch {
	case len(q.labels) == 0:
		text = "your own words"
	case q.custom:
		text += " or your own words"
	}
	return text + ", - dismisses: "
}

func (r *renderer) questionAnswered(e events.Event, d events.QuestionAnswered) {
	r.answered[d.Question] = true
	text := "answered: " + strings.Join(d.Answers, ", ")
	if d.Rejected {
		text = "dismissed"
	}
	r.note("", dim, "✓ question %s by %s", text, r.actor(e.Actor))
}

func (r *renderer) questionReplied(e events.Event, p openCodePayload) {
	if r.answered[p.RequestID] {
		return
	}
	if p.Answers == nil {
		r.note(p.SessionID, yellow, "the question was dismissed in OpenCode")
	}
	for _, answers := range p.Answers {
		r.note(p.SessionID, yellow, "the question was answered in OpenCode: %s", strings.Join(answers, ", "))
	}
}

func sortedKeys(m map[string]json.RawMessage) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// plainText is a JSON string's text, or any other value as compact JSON.
func plainText(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text
	}
	var b bytes.Buffer
	_ = json.Compact(&b, value) // it was part of a valid document
	return b.String()
}
