package console

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/console/payload"
	"pocketcoder/cmd/console/render"
	"pocketcoder/cmd/printable"
	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/chat"
	permissions "pocketcoder/handlers/permission"
	"pocketcoder/projections"
	"pocketcoder/projections/questions"
)

// ask is what waits for a person: a permission, or one of the questions asked together.
type ask struct {
	permission *render.Request
	question   render.Question

	editing bool                     // the next line is the command that shall run instead
	always  *permissions.AllowAlways // the next line says whether this becomes a rule
	shown   permissions.Proposal     // of it
}

// name tells one prompt from every other: an answer to one is none to another.
func (a ask) name() string {
	switch {
	case a.permission == nil:
		return fmt.Sprintf("%s/%d", a.question.ID, a.question.Index)
	case a.editing:
		return a.permission.Ask.ID + "/edit"
	case a.always != nil:
		return strings.Join([]string{a.permission.Ask.ID, "rule", a.always.Pattern, a.always.Scope, a.always.For}, "/")
	}
	return a.permission.Ask.ID
}

func (a ask) summary() string {
	if a.permission == nil {
		return printable.OneLine(a.question.Text, 200)
	}
	return a.permission.Ask.Permission + " " + printable.OneLine(render.Subject(a.permission.Ask), 200)
}

func (a ask) is(id string, index int) bool {
	if a.permission != nil {
		return a.permission.Ask.ID == id
	}
	return a.question.ID == id && (index < 0 || a.question.Index == index)
}

// joinPending finds what waits already.
func (c *conversation) joinPending(ctx context.Context, after uint64) error {
	var permissions []projections.Permission
	args := map[string]any{"chat": c.Chat, "status": projections.PermissionDraft, "after": after}
	if err := c.Query(ctx, "permissions", args, &permissions); err != nil {
		return err
	}
	for _, p := range permissions {
		a := c.show.AddRequest(p.Ask(), uint64(p.AskedSeq))
		a.Hash = p.Request
		a.Interrupted, a.Referred, a.Why, a.Directory = p.Interrupted, p.Referred || p.Interrupted, p.ReferredReason, p.Cwd
		if p.Source == projections.SourceAPI {
			a.Message = p.Message
		}
	}
	c.addDue()
	var open []render.Question
	args["status"] = questions.Asked
	if err := c.Query(ctx, "questions", args, &open); err != nil {
		return err
	}
	for _, q := range open {
		c.waiting = append(c.waiting, ask{question: q})
	}
	return nil
}

// addDue takes up the permission asks that the policy has left to a person.
func (c *conversation) addDue() {
	for _, a := range c.show.Due() {
		if !slices.ContainsFunc(c.waiting, func(w ask) bool { return w.permission == a }) {
			c.waiting = append(c.waiting, ask{permission: a})
		}
	}
}

func (c *conversation) addQuestions(e events.Event) error {
	if e.Seq <= c.joined {
		return nil
	}
	question, err := events.QuestionAskOf(e)
	if err != nil {
		return err
	}
	for _, q := range render.Questions(question) {
		if !slices.ContainsFunc(c.waiting, func(w ask) bool { return w.is(q.ID, q.Index) }) {
			c.waiting = append(c.waiting, ask{question: q})
		}
	}
	return nil
}

// settle takes out what nobody waits for any more, whoever settled it.
func (c *conversation) settle(e events.Event) {
	switch d, _ := events.Decode(e); d := d.(type) {
	case events.PermissionDecided:
		c.remove(d.Permission, -1)
	case events.PermissionExpired:
		c.remove(d.Permission, -1)
	case events.QuestionAnswered:
		index := d.Index
		if d.Rejected {
			index = -1
		}
		c.remove(d.Question, index)
	case events.QuestionInterrupted:
		for i := range c.waiting {
			c.waiting[i].question.Interrupted = c.waiting[i].question.Interrupted || c.waiting[i].is(d.Question, -1)
		}
	case events.QuestionExpired:
		c.remove(d.Question, -1)
	case events.OpenCode:
		switch d.Type {
		case events.PermissionReplied, events.QuestionReplied, events.QuestionRejected:
			c.remove(payload.Read(d).RequestID, -1)
		}
	}
}

func (c *conversation) remove(id string, index int) {
	if len(c.waiting) > 0 && c.waiting[0].is(id, index) {
		c.prompted = false
	}
	c.waiting = slices.DeleteFunc(c.waiting, func(a ask) bool { return a.is(id, index) })
}

// promptWriter is the screen's writer of prompts.
const promptWriter = "prompt"

// next answers what --approve answers, and shows what a person has to answer, or that it is their turn.
func (c *conversation) next(ctx context.Context) error {
	for c.caughtUp && c.Approve != ApproveAsk && len(c.waiting) > 0 {
		if a := c.waiting[0]; a.permission == nil && c.Approve == ApproveAll {
			break // no approval answers a question
		}
		if err := c.answerAlone(ctx, c.waiting[0]); err != nil {
			return err
		}
	}
	switch {
	case c.terminal != nil:
		c.promptTerminal()
	case c.show.Writing == promptWriter || !c.caughtUp:
	case len(c.waiting) == 0:
		if c.Interactive && !c.Once && !c.working {
			c.show.Flow(promptWriter, "", render.Cyan, "› ")
		}
	default:
		c.show.Flow(promptWriter, "", render.Bold, c.showWaiting(c.waiting[0]))
	}
	return nil
}

// promptTerminal shows what waits, or that a message can be typed. What was suggested is typed below it.
func (c *conversation) promptTerminal() {
	if c.answerPrompt() != c.promptedFor { // output was held for a request that does not wait any more
		c.covered = c.terminal.Release() || c.covered
	}
	c.promptedFor = c.answerPrompt()
	if !c.caughtUp || len(c.waiting) == 0 {
		c.covered = false
		c.terminal.Prompt(c.show.Paint(render.Cyan, "› "), "")
		return
	}
	switch a := c.waiting[0]; {
	case !c.covered, a.editing:
	case a.always != nil:
		c.covered = false
		c.show.Proposal(*a.always, a.shown)
	default:
		c.covered, c.prompted = false, false
		if a.permission != nil {
			a.permission.Shown = false
		}
	}
	text := c.showWaiting(c.waiting[0])
	c.terminal.Prompt(c.show.Paint(render.Bold, text), c.answerPrompt())
	if c.suggestion != "" {
		c.terminal.Suggest(c.suggestion)
		c.suggestion = ""
	}
}

// showWaiting shows what waits, whole the first time, and returns the prompt for the answer.
func (c *conversation) showWaiting(a ask) (prompt string) {
	switch {
	case a.permission != nil:
		c.show.ShowRequest(a.permission)
		prompt = a.promptText()
	case !c.prompted:
		c.show.ShowQuestion(a.question)
		fallthrough
	default:
		prompt = a.question.PromptText()
	}
	c.prompted = true
	return prompt
}

func (c *conversation) answerAlone(ctx context.Context, a ask) error {
	switch {
	case a.permission == nil:
		return c.give(ctx, a, "question.answer", chat.AnswerQuestion{Command: client.NewCommand(), Chat: c.Chat,
			Question: a.question.ID, Rejected: true})
	case c.Approve == ApproveAll:
		return c.decide(ctx, a, permissions.Decide{Decision: events.Authorized})
	}
	return c.decide(ctx, a, permissions.Decide{Decision: events.Denied,
		Reason: "everything is denied in this conversation"})
}

// answer takes a person's words for the first that waits.
func (c *conversation) answer(ctx context.Context, words string) error {
	if !c.Interactive {
		c.show.Flow(promptWriter, "", render.Plain, printable.Visible(words)+"\n")
	}
	a := &c.waiting[0]
	if a.permission == nil {
		answers, rejected, problem := parseAnswer(a.question, words)
		if problem != "" {
			c.show.Note("", render.Dim, "(%s; - dismisses the question)", problem)
			return nil
		}
		return c.give(ctx, *a, "question.answer", chat.AnswerQuestion{
			Command: client.NewCommand(), Chat: c.Chat, Question: a.question.ID, Index: a.question.Index, Answers: answers, Rejected: rejected,
		})
	}
	return c.answerPermission(ctx, a, words)
}

// parseAnswer reads the numbers of labels, a label, or free text where the question takes it. It returns what is wrong
// with another answer.
func parseAnswer(q render.Question, words string) (answers []string, rejected bool, problem string) {
	if words == "-" {
		return nil, true, ""
	}
	if words == "" {
		return nil, false, "an answer is needed"
	}
	if len(q.Labels) == 0 || slices.Contains(q.Labels, words) {
		return []string{words}, false, ""
	}
	outside := false
	for _, field := range strings.FieldsFunc(words, func(r rune) bool { return r == ' ' || r == ',' }) {
		n, err := strconv.Atoi(field)
		switch {
		case err != nil && q.Custom:
			return []string{words}, false, ""
		case err != nil, n < 1, n > len(q.Labels):
			outside = true
		default:
			answers = append(answers, q.Labels[n-1])
		}
	}
	if outside {
		return nil, false, fmt.Sprintf("choose 1 to %d", len(q.Labels))
	}
	if len(answers) > 1 && !q.Multiple {
		return nil, false, "one answer, please"
	}
	return answers, false, ""
}

// give sends an answer. That somebody else was first is no error: their event says so.
func (c *conversation) give(ctx context.Context, a ask, name string, command any) error {
	err := c.Do(ctx, name, command)
	r := handlers.Refused{}
	if errors.As(err, &r) {
		c.show.Note("", render.Dim, "(%s)", r.Text)
		err = nil
	}
	switch answer, _ := command.(chat.AnswerQuestion); {
	case r.Code == handlers.Invalid, r.Code == handlers.Unavailable: // it still waits for an answer
	case a.permission != nil:
		a.permission.Settled = true
		if d, ok := command.(permissions.Decide); ok && err == nil && r.Code == "" && d.Decision == events.Denied {
			c.turn.Deny(a.permission.Ask.Permission) // other events of the turn's end may come before that of the decision
		}
		c.remove(a.permission.Ask.ID, -1)
	case answer.Rejected:
		c.remove(a.question.ID, -1)
	default:
		c.remove(a.question.ID, a.question.Index)
		last := !slices.ContainsFunc(c.waiting, func(w ask) bool { return w.is(a.question.ID, -1) })
		c.working = c.working || a.question.Interrupted && last && r.Code == "" // the turn is resumed
	}
	return err
}
