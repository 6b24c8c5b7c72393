package render

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/policy/display"
	"pocketcoder/projections/store"
)

// Request is a permission request of the chat, as the terminal shows it.
type Request struct {
	Content     events.PermissionRequest
	seq         uint64               // when it was requested
	Message     string               // message of a request over the API
	Referred    bool                 // no rule decided it: it waits for a person
	Why         string               // it waits for a person: the reason
	Directory   string               // where the command would run; empty until the policy has evaluated the request
	Hash        string               // SHA-256 of type, patterns and metadata
	Files       []events.RequestFile // bash: that the command names
	FilesHash   string
	Interrupted bool
	Shown       bool // all of it is on the screen
	Closed      bool // decided, expired or answered elsewhere
	denied      bool
}

// requestEvent shows an event about a permission request or a question, and reports whether e is one.
func (r *Renderer) requestEvent(e events.Event, d events.Data) bool {
	switch d := d.(type) {
	case events.PermissionRequested:
		r.AddRequest(d.Request(), e.Seq).Message = d.Message
	case events.PermissionReferred:
		r.referred(d)
	case events.PermissionDecided:
		r.decided(e, d)
	case events.PermissionInterrupted:
		if a := r.requests[d.Permission]; a != nil {
			a.Interrupted = true
		}
		r.Note("", Yellow, "OpenCode restarted and forgot the request %s; it can still be decided",
			r.requestName(d.Permission))
	case events.PermissionApplied:
		r.applied(d)
	case events.PermissionExpired:
		r.showOutcome(d.Permission, Yellow, "the request "+r.requestName(d.Permission)+" expired: "+d.Reason+" · "+
			recordOf(d.Permission))
	case events.QuestionRequested:
		r.addQuestions(d.Request())
	case events.QuestionAnswered:
		r.questionAnswered(e, d)
	case events.QuestionInterrupted:
		r.Note("", Yellow, "OpenCode restarted and forgot its question; it can still be answered, which resumes the turn")
	case events.QuestionExpired:
		r.answered[d.Question] = true
		r.Note("", Yellow, "the question expired: %s", d.Reason)
	default:
		return false
	}
	return true
}

// AddRequest adds a request that OpenCode or the API has made, unless it is known.
func (r *Renderer) AddRequest(content events.PermissionRequest, seq uint64) *Request {
	if r.requests[content.ID] == nil { // it is seen again after a reconnect
		r.requests[content.ID] = &Request{Content: content, seq: seq, Hash: content.ContentHash()}
	}
	return r.requests[content.ID]
}

// Pending returns the requests that are not decided, the oldest first.
func (r *Renderer) Pending() []*Request {
	var all []*Request
	for _, a := range r.requests {
		if !a.Closed {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, func(a, b *Request) int { return cmp.Compare(a.seq, b.seq) })
	return all
}

// Due returns those of the pending requests that the policy has left to a person.
func (r *Renderer) Due() []*Request {
	return slices.DeleteFunc(r.Pending(), func(a *Request) bool { return !a.Referred })
}

// referred notes that the policy has left a request to a person. If it does so again, the files have changed, and the
// request is shown again.
func (r *Renderer) referred(d events.PermissionReferred) {
	if a := r.requests[d.Permission]; a != nil {
		if a.Referred {
			a.Shown, a.Closed = false, false
		}
		a.Referred, a.Why, a.Directory = true, d.Reason, d.Cwd
		a.Files, a.FilesHash = d.RequestFiles(), events.HashFiles(d.Files)
	}
}

// longRequestRows is the number of rows above which the length of a request is said: it may not fit on a screen.
const longRequestRows = 12

// maxName is the longest name of a permission that is shown, in runes. The name of a tool of an MCP server begins with
// that of its server.
const maxName = 200

// ShowRequest shows what a request is about and why it was left to a person, each on a line. A diff stands between
// them.
func (r *Renderer) ShowRequest(a *Request) {
	if a.Shown {
		return
	}
	a.Shown = true
	session, in, shown := a.Content.SessionID, r.indent(a.Content.SessionID), r.card(a)
	title, what, rows := "? "+display.OneLine(a.Content.Permission, maxName), cmp.Or(shown.Text, shown.Title), 0
	if strings.Contains(what, "\n") {
		r.Line(in, Yellow, title)
		rows = r.rows(in+"    ", "", in+"    ", Bold, what)
	} else {
		rows = r.rows(in, title+"  ", in+"    ", Bold, what)
	}
	rows += r.requestDetails(a, shown)
	var why []string
	reason := shown.Why
	if reason != "" {
		reason = "why: " + reason
	}
	// Said below the text, because the first rows of a long one have scrolled away.
	length := ""
	if rows > longRequestRows {
		length = fmt.Sprintf("%d lines, read all of them", rows)
	}
	where := shown.Where
	if where != "" {
		where = "in " + where
	}
	for _, text := range []string{length, reason, where, recordOf(a.Content.ID)} {
		if text != "" {
			why = append(why, text)
		}
	}
	r.Line(in+"  ", Dim, wrapped(display.VisibleLine(strings.Join(why, " · ")), r.width(len(in)+2)))
	if a.Interrupted {
		r.Note(session, Yellow, "  OpenCode restarted and forgot this request. Approving it resumes the turn.")
	}
}

// card returns the card of a request.
func (r *Renderer) card(a *Request) permission.Card {
	return permission.CardOf(permission.CardSource{PermissionRequest: a.Content,
		ViaAPI: !strings.HasPrefix(a.Content.ID, openCodeID), Message: a.Message, Cwd: cmp.Or(a.Directory, r.cwd(a.Content)), Why: a.Why, Files: a.Files,
		Arguments: r.arguments(a.Content)})
}

// arguments returns the arguments of the call that a request is for, if the request names only the tool.
func (r *Renderer) arguments(content events.PermissionRequest) string {
	if !content.NamesOnlyTool() {
		return ""
	}
	return string(r.inputs[content.SessionID+"/"+content.Tool.CallID])
}

// Keeps reports whether the request is to keep a protected name that a command created.
func (a *Request) Keeps() bool { return a.Content.Permission == events.KindKeep }

// requestDetails shows the rest of a card. It returns the number of rows.
func (r *Renderer) requestDetails(a *Request, shown permission.Card) (rows int) {
	session := a.Content.SessionID
	in := r.indent(session) + "  "
	for _, d := range shown.Details {
		rows += r.rows(in, "", in, Plain, display.VisibleLine(d.Name)+": "+display.VisibleLine(d.Value))
	}
	rows += r.diffLines(session, shown.Diff)
	for _, f := range shown.Files {
		rows += r.rows(in, "", in, Cyan, display.VisibleLine(f.Name)+":")
		rows += r.rows(in+"  ", "", in+"  ", Plain, f.Text)
	}
	if a.Content.NamesOnlyTool() && !shown.Whole {
		rows++
		r.Note(session, Yellow, "  The arguments of this call are not all known here.")
	}
	for _, sentence := range shown.Risks {
		rows++
		r.Note(session, Yellow, "  %s", display.VisibleLine(sentence))
	}
	return rows
}

// rows shows text that a person decides on, and returns the number of rows. The first one begins with a title. No row
// looks like one of ours: what does not fit into the width goes on behind a mark, and a long run of blanks is shown by
// its length.
func (r *Renderer) rows(prefix, title, more string, st Style, text string) (rows int) {
	text = strings.ReplaceAll(display.ShortenBlanks(display.Exact(text), maxBlanks), "\t", "    ")
	width := r.width(max(display.TextWidth(prefix+title), display.TextWidth(more)+display.Width('┊')+1))
	before := prefix + r.Paint(Yellow, title)
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		for _, row := range cutToWidth(line, width) {
			r.Line(before, st, row)
			before = more + r.Paint(Dim, "┊ ")
			rows++
		}
		before = more
	}
	return rows
}

// maxBlanks is the longest run of blanks or of empty lines that is shown as it is. The indentation of code is shorter.
const maxBlanks = 40

// cutToWidth cuts a line into rows of at most so many columns; 0 is any. There is at least one row.
func cutToWidth(line string, width int) (rows []string) {
	begin, used := 0, 0
	for at, c := range line {
		columns := display.Width(c)
		if width > 0 && used+columns > width && used > 0 {
			rows, begin, used = append(rows, line[begin:at]), at, 0
		}
		used += columns
	}
	return append(rows, line[begin:])
}

// openCodeID begins the ids of OpenCode's requests.
const openCodeID = "per_"

// recordOf is the id under which "pocketcoder policy why" and clients know a request.
func recordOf(request string) string {
	if strings.HasPrefix(request, openCodeID) {
		return store.RecordID(request)
	}
	return request // a request over the API is its own record
}

// cwd is where the tool call would work.
func (r *Renderer) cwd(content events.PermissionRequest) string {
	if dir := argument(r.inputs[content.SessionID+"/"+content.Tool.CallID], "workdir"); dir != "" {
		return dir
	}
	return r.directory[content.SessionID]
}

// diff shows a unified diff.
func (r *Renderer) diff(session, text string) {
	r.diffLines(session, display.Diff(strings.TrimRight(text, "\n")))
}

// diffLines shows the lines of a diff. It returns the number of rows.
func (r *Renderer) diffLines(session string, lines []display.DiffLine) (rows int) {
	in := r.indent(session) + "    "
	for _, line := range lines {
		st := map[byte]Style{'@': Cyan, '+': green, '-': Red}[line.Kind]
		rows += r.rows(in, "", in, st, strings.TrimSuffix(line.Text, "\n"))
	}
	return rows
}

func (r *Renderer) requestOfCall(session, call string) *Request {
	for _, a := range r.requests {
		if a.Content.SessionID == session && a.Content.Tool.CallID == call {
			return a
		}
	}
	return nil
}

// requestName returns a short name of a request.
func (r *Renderer) requestName(id string) string {
	if a := r.requests[id]; a != nil {
		return a.Content.Permission + " " + display.OneLine(a.Content.Text(), 80)
	}
	return id
}

func (r *Renderer) decided(e events.Event, d events.PermissionDecided) {
	a := r.requests[d.Permission]
	if a == nil {
		a = r.AddRequest(events.PermissionRequest{ID: d.Permission, SessionID: d.Session, Permission: d.Type,
			Patterns: []string{d.Command}}, e.Seq)
		a.Shown = true
	}
	if e.Actor != events.ActorPolicy && d.ApprovalOf == "" {
		r.ShowRequest(a)
	}
	mark, st := "✓", Dim
	if a.denied = d.Decision == events.Denied; a.denied {
		mark, st = "✗", Red
	}
	text := fmt.Sprintf("%s %s: %s by %s", mark, r.requestName(d.Permission), d.Decision, r.Actor(e.Actor))
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
	r.showOutcome(d.Permission, st, text+" · "+recordOf(d.Permission))
	if d.Edited != "" {
		r.diff(a.Content.SessionID, edits(d.Command, d.Edited))
	}
}

// applied shows what the sandbox did after the decision about a quarantined name.
func (r *Renderer) applied(d events.PermissionApplied) {
	name, session := r.requestName(d.Permission), ""
	a := r.requests[d.Permission]
	if a != nil {
		session = a.Content.SessionID
	}
	switch {
	case d.Error != "":
		r.Note(session, Red, "%s failed: %s", name, d.Error)
	case a != nil && a.denied:
		r.Note(session, Dim, "%s: it was deleted", name)
	default:
		r.Note(session, Dim, "%s: it is back in the workspace", name)
	}
}

// edits returns the changes of an edited command, as a diff of its lines.
func edits(original, edited string) string {
	return "-" + strings.ReplaceAll(original, "\n", "\n-") + "\n+" + strings.ReplaceAll(edited, "\n", "\n+")
}

// replied shows an answer that was given in OpenCode itself.
func (r *Renderer) replied(p Payload) {
	if a := r.requests[p.RequestID]; a != nil && !a.Closed {
		r.ShowRequest(a)
		r.showOutcome(p.RequestID, Yellow, fmt.Sprintf("%s was answered in OpenCode: %s", r.requestName(p.RequestID),
			p.Reply))
	}
}

func (r *Renderer) showOutcome(id string, st Style, text string) {
	session := ""
	if a := r.requests[id]; a != nil {
		session, a.Closed = a.Content.SessionID, true
	}
	r.Note(session, st, "%s", text)
}

// Question is one of the questions that the model asked together. Its JSON is a row of the read model.
type Question struct {
	ID           string   `json:"ai_engine_question_id"` // que_…, of all of them
	Index        int      `json:"index"`
	Session      string   `json:"session_id"`
	Header       string   `json:"header"`
	Text         string   `json:"question"`
	Labels       []string `json:"choices"`
	Descriptions []string `json:"descriptions"` // one for each label
	Multiple     bool     `json:"multiple"`
	Custom       bool     `json:"custom"` // own words are an answer too
	Interrupted  bool     `json:"interrupted"`
}

// Questions returns the questions that the model asked together.
func Questions(content events.QuestionRequest) []Question {
	var all []Question
	for i, q := range content.Questions {
		open := Question{ID: content.ID, Index: i, Session: content.SessionID, Header: q.Header, Text: q.Question,
			Multiple: q.Multiple, Custom: q.Free()}
		for _, o := range q.Options {
			open.Labels, open.Descriptions = append(open.Labels, o.Label), append(open.Descriptions, o.Description)
		}
		all = append(all, open)
	}
	return all
}

// ShowQuestion shows a question with its numbered answers.
func (r *Renderer) ShowQuestion(q Question) {
	text := strings.TrimSpace(q.Text)
	if q.Multiple {
		text += " (several answers may be given)"
	}
	r.Note(q.Session, Yellow, "? %s", text)
	if q.Interrupted {
		r.Note(q.Session, Yellow, "  (interrupted: OpenCode forgot it when it restarted; answering it resumes the turn)")
	}
	for i, label := range q.Labels {
		r.Note(q.Session, Plain, "%s", strings.TrimRight(fmt.Sprintf("  %d) %s  %s", i+1, label, q.Descriptions[i]), " "))
	}
}

func (q Question) PromptText() string {
	text := "a number"
	if q.Multiple {
		text = "numbers"
	}
	switch {
	case len(q.Labels) == 0:
		text = "your own words"
	case q.Custom:
		text += " or your own words"
	}
	return text + ", - dismisses: "
}

func (r *Renderer) questionAnswered(e events.Event, d events.QuestionAnswered) {
	r.answered[d.Question] = true
	text := "answered: " + strings.Join(d.Answers, ", ")
	if d.Rejected {
		text = "dismissed"
	}
	r.Note("", Dim, "✓ question %s by %s", text, r.Actor(e.Actor))
}

func (r *Renderer) questionReplied(p Payload) {
	if r.answered[p.RequestID] {
		return
	}
	if p.Answers == nil {
		r.Note(p.SessionID, Yellow, "the question was dismissed in OpenCode")
	}
	for _, answers := range p.Answers {
		r.Note(p.SessionID, Yellow, "the question was answered in OpenCode: %s", strings.Join(answers, ", "))
	}
}
