package console

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/console/render"
	"pocketcoder/events"
	"pocketcoder/handlers"
	permissions "pocketcoder/handlers/permission"
	"pocketcoder/handlers/policy/display"
	"pocketcoder/projections"
)

// pendingItem is a permission request or a question that waits for a person.
type pendingItem struct {
	permission *render.Request
	question   render.Question

	awaitsCommand bool                     // the next line is the command to run instead
	proposal      *permissions.AllowAlways // the rule that the next line accepts or refuses
	shown         permissions.Proposal     // of it
}

// name returns a unique name of the prompt. An answer applies only to the prompt with this name.
func (a pendingItem) name() string {
	switch {
	case a.permission == nil:
		return fmt.Sprintf("%s/%d", a.question.ID, a.question.Index)
	case a.awaitsCommand:
		return a.permission.Content.ID + "/edit"
	case a.proposal != nil:
		return strings.Join([]string{a.permission.Content.ID, "rule", a.proposal.Pattern, a.proposal.Scope, a.proposal.For}, "/")
	}
	return a.permission.Content.ID
}

func (a pendingItem) summary() string {
	if a.permission == nil {
		return display.OneLine(a.question.Text, 200)
	}
	return a.permission.Content.Permission + " " + display.OneLine(a.permission.Content.Text(), 200)
}

func (a pendingItem) is(id string, index int) bool {
	if a.permission != nil {
		return a.permission.Content.ID == id
	}
	return a.question.ID == id && (index < 0 || a.question.Index == index)
}

// joinPending reads the requests and questions that wait already.
func (c *conversation) joinPending(ctx context.Context) error {
	permissions, err := client.List[projections.Permission](ctx, c.System, "permissions",
		client.Select{Filter: fmt.Sprintf("chat = %q && status = %q", c.Chat, events.Draft), Sort: "position"})
	if err != nil {
		return err
	}
	for i, p := range permissions {
		a := c.show.AddRequest(p.Content(), uint64(i))
		a.Hash = p.Request
		a.Interrupted, a.Referred, a.Why, a.Directory = p.Interrupted, p.WaitsForPerson(), p.ReferredReason, p.Cwd
		a.Files, a.FilesHash = p.RequestFiles(), p.FilesHash
		if p.Source == projections.SourceAPI {
			a.Message = p.Message
		}
	}
	c.addReferred()
	open, err := client.List[render.Question](ctx, c.System, "questions",
		client.Select{Filter: fmt.Sprintf("chat = %q && status = %q", c.Chat, projections.QuestionAsked),
			Sort: "created,index"})
	if err != nil {
		return err
	}
	for _, q := range open {
		c.pending = append(c.pending, pendingItem{question: q})
	}
	return nil
}

// addReferred adds the permission requests that the policy has left to a person.
func (c *conversation) addReferred() {
	for _, a := range c.show.Due() {
		if a.Keeps() && c.Approve != ApproveAsk { // no option decides it, and the turn does not wait for it
			c.show.ShowRequest(a)
			continue
		}
		if !slices.ContainsFunc(c.pending, func(w pendingItem) bool { return w.permission == a }) {
			c.pending = append(c.pending, pendingItem{permission: a})
		}
	}
}

func (c *conversation) addQuestions(e events.Event) error {
	if e.Seq <= c.joined {
		return nil
	}
	question, err := events.QuestionRequestOf(e)
	if err != nil {
		return err
	}
	for _, q := range render.Questions(question) {
		if !slices.ContainsFunc(c.pending, func(w pendingItem) bool { return w.is(q.ID, q.Index) }) {
			c.pending = append(c.pending, pendingItem{question: q})
		}
	}
	return nil
}

// removeDecided removes requests and questions that were decided, by anybody.
func (c *conversation) removeDecided(e events.Event) {
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
		for i := range c.pending {
			c.pending[i].question.Interrupted = c.pending[i].question.Interrupted || c.pending[i].is(d.Question, -1)
		}
	case events.QuestionExpired:
		c.remove(d.Question, -1)
	case events.OpenCode:
		switch d.Type {
		case events.PermissionReplied, events.QuestionReplied, events.QuestionRejected:
			c.remove(render.ReadPayload(d).RequestID, -1)
		}
	}
}

func (c *conversation) remove(id string, index int) {
	if len(c.pending) > 0 && c.pending[0].is(id, index) {
		c.prompted = false
	}
	c.pending = slices.DeleteFunc(c.pending, func(a pendingItem) bool { return a.is(id, index) })
}

// promptWriter is the screen's writer of prompts.
const promptWriter = "prompt"

// next answers requests as --approve says. It shows the next request for the person, or the prompt for a message.
func (c *conversation) next(ctx context.Context) error {
	for c.caughtUp && c.Approve != ApproveAsk && len(c.pending) > 0 {
		if a := c.pending[0]; a.permission == nil && c.Approve == ApproveAll {
			break // no approval answers a question
		}
		if err := c.answerAlone(ctx, c.pending[0]); err != nil {
			return err
		}
	}
	switch {
	case c.terminal != nil:
		c.promptTerminal()
	case c.show.Writing == promptWriter || !c.caughtUp:
	case len(c.pending) == 0:
		if c.Interactive && !c.Once && !c.working {
			c.show.Flow(promptWriter, "", render.Cyan, "› ")
		}
	default:
		c.show.Flow(promptWriter, "", render.Bold, c.showWaiting(c.pending[0]))
	}
	return nil
}

// promptTerminal shows the next request, or the prompt for a message. It puts a suggested text into the line.
func (c *conversation) promptTerminal() {
	if c.answerPrompt() != c.promptedFor { // output was held for a request that is decided now
		c.covered = c.terminal.Release() || c.covered
	}
	c.promptedFor = c.answerPrompt()
	c.terminal.SetCompletions(c.completions())
	if !c.caughtUp || len(c.pending) == 0 {
		c.covered = false
		c.terminal.Prompt(c.show.Paint(render.Cyan, "› "), "")
		return
	}
	switch a := c.pending[0]; {
	case !c.covered, a.awaitsCommand:
	case a.proposal != nil:
		c.covered = false
		c.show.Proposal(*a.proposal, a.shown)
	default:
		c.covered, c.prompted = false, false
		if a.permission != nil {
			a.permission.Shown = false
		}
	}
	text := c.showWaiting(c.pending[0])
	c.terminal.Prompt(c.show.Paint(render.Bold, text), c.answerPrompt())
	if c.suggestion != "" {
		c.terminal.Suggest(c.suggestion)
		c.suggestion = ""
	}
}

// showWaiting shows a request or question, in full the first time, and returns the prompt for the answer.
func (c *conversation) showWaiting(a pendingItem) (prompt string) {
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

func (c *conversation) answerAlone(ctx context.Context, a pendingItem) error {
	switch {
	case a.permission == nil:
		return c.sendAnswer(ctx, a, nil)
	case c.Approve == ApproveAll:
		return c.decide(ctx, a, client.Decision{Status: events.Authorized})
	}
	return c.decide(ctx, a, client.Decision{Status: events.Denied,
		Reason: "everything is denied in this conversation"})
}

// answer applies a person's input to the first pending item.
func (c *conversation) answer(ctx context.Context, words string) error {
	if !c.Interactive {
		c.show.Flow(promptWriter, "", render.Plain, display.Exact(words)+"\n")
	}
	a := &c.pending[0]
	if a.permission == nil {
		answers, rejected, problem := parseAnswer(a.question, words)
		if problem != "" {
			c.show.Note("", render.Dim, "(%s; - dismisses the question)", problem)
			return nil
		}
		if rejected {
			answers = nil
		}
		return c.sendAnswer(ctx, *a, answers)
	}
	return c.answerPermission(ctx, a, words)
}

// parseAnswer reads the numbers of labels, a label, or free text where the question takes it. It returns the reason if
// the answer is invalid.
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

// sendAnswer answers a question, or rejects it and those that were asked with it if answers is nil.
func (c *conversation) sendAnswer(ctx context.Context, a pendingItem, answers []string) error {
	err := c.AnswerQuestion(ctx, a.question.ID, a.question.Index, answers)
	code, err := c.showRefusal(err)
	switch {
	case code == handlers.Invalid, code == handlers.Unavailable: // the question still waits
	case answers == nil:
		c.remove(a.question.ID, -1)
	default:
		c.remove(a.question.ID, a.question.Index)
		last := !slices.ContainsFunc(c.pending, func(w pendingItem) bool { return w.is(a.question.ID, -1) })
		c.working = c.working || a.question.Interrupted && last && code == "" // the turn is resumed
	}
	return err
}

// decided removes a request that was decided with the result err.
func (c *conversation) decided(a pendingItem, err error) error {
	code, err := c.showRefusal(err)
	if code != handlers.Invalid && code != handlers.Unavailable { // otherwise it still waits
		a.permission.Closed = true
		c.remove(a.permission.Content.ID, -1)
	}
	return err
}

// showRefusal shows why an answer was refused, and returns the code. A conflict with an earlier answer is no error: the
// event of that answer is shown.
func (c *conversation) showRefusal(err error) (handlers.Code, error) {
	r := handlers.Refused{}
	if !errors.As(err, &r) {
		return "", err
	}
	c.show.Note("", render.Dim, "(%s)", r.Text)
	return r.Code, nil
}
