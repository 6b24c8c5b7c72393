package push

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/mcpserver"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/project"
	"pocketcoder/projections"
	"pocketcoder/projections/turnstate"
)

// Types of notifications, as notification_rules name them. The others are taskComplete, taskError and typeKey.
const (
	typePermission = "permission"
	typeQuestion   = "question"
	typeServer     = "mcp_request"
)

// identify returns the id of a notification. It depends only on what the notification is about, so it is the same for
// every person and after every restart. It has 32 characters, the limit of a Topic (RFC 8030, 5.4).
func identify(about ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(about, "\n")))
	return hex.EncodeToString(sum[:16])
}

func noticeID(n events.Notice) string { return identify(n.Chat, n.Permission, n.Question) }

func ofChat(chat string) events.Subject { return events.Subject{Scope: events.ScopeChat, ID: chat} }

// notifyRequest notifies the people of a chat of a pending permission request or question. cause is the id of the event
// that made it pending, "" if unknown.
func (p *Push) notifyRequest(ctx context.Context, cause string, n events.Notice) error {
	waiting, err := p.isPending(ctx, n)
	if err != nil || !waiting {
		return err
	}
	chat, _, err := p.Model.Chat(ctx, n.Chat)
	if err != nil {
		return err
	}
	owner := chat.User
	if n.Permission != "" {
		request, _, err := p.Model.PermissionIn(ctx, n.Chat, n.Permission)
		if err != nil {
			return err
		}
		if permission.ForAdministrators(request.Permission, json.RawMessage(request.Metadata)) {
			owner = "" // the owner may not decide it
		}
		arguments, err := p.Model.ToolArguments(ctx, request)
		if err != nil {
			return err
		}
		p.describeRequest(&n, request, arguments, chat.Title)
	} else if err := p.describeQuestion(ctx, &n, chat.Title); err != nil {
		return err
	}
	people, err := p.peopleOf(ctx, owner, chat.Project)
	if err != nil {
		return err
	}
	return p.notify(ctx, ofChat(n.Chat), noticeID(n), people, n, cause)
}

func (p *Push) describeQuestion(ctx context.Context, n *events.Notice, title string) error {
	all, err := p.questions(ctx, *n)
	if err != nil {
		return err
	}
	var choices []string
	_ = json.Unmarshal([]byte(all[0].Choices), &choices) // a JSON list
	n.Type, n.Title = typeQuestion, p.titleOf(title, "a question")
	n.Message, _ = p.shownLines(all[0].Question, maxShown/2)
	if line, _ := p.shown(strings.Join(choices, " / "), maxShown/2); line != "" {
		n.Message += "\n" + line
	}
	if more := len(all) - 1; more > 0 {
		n.Message += fmt.Sprintf("\nand %d more", more)
	}
	return nil
}

// titleOf returns a title that begins with the chat's title.
func (p *Push) titleOf(chat, what string) string {
	chat, _ = p.shown(cmp.Or(strings.TrimSpace(chat), "PocketCoder"), maxTitle-len(what))
	return chat + ": " + what
}

// notifyEnded notifies the people of a chat of the end of a turn. It ignores turns of subagents and turns that a person
// stopped.
func (p *Push) notifyEnded(ctx context.Context, e events.Event) error {
	if time.Since(e.Time) > maxTurnAge {
		return nil
	}
	turn, found, err := p.Model.LastTurn(ctx, e.Subject.ID)
	if err != nil || !found {
		return err
	}
	n := events.Notice{Chat: e.Subject.ID}
	switch turn.Ending {
	case "", turnstate.EndStopped:
		return nil
	case turnstate.EndDenied:
		n.Type, n.Title = taskComplete, p.titleOf(turn.Title, "stopped: denied")
		n.Message, _ = p.shown(cmp.Or(turn.DeniedRequest, turn.Ending.Sentence()), maxShown)
	case turnstate.EndComplete:
		n.Type, n.Title = taskComplete, p.titleOf(turn.Title, "done")
		n.Message, _ = p.shownLines(cmp.Or(lastParagraph(turn.Answer), "The turn is over."), maxShown)
	case turnstate.EndCut, turnstate.EndEmpty:
		n.Type, n.Title = taskError, p.titleOf(turn.Title, "not finished")
		n.Message, _ = p.shownLines(turn.Ending.Sentence(), maxShown)
	default:
		n.Type, n.Title = taskError, p.titleOf(turn.Title, "it went wrong")
		_, message := projections.ErrorOf(string(turn.Error))
		n.Message, _ = p.shownLines(cmp.Or(message, turn.Ending.Sentence()), maxShown)
	}
	chat, _, err := p.Model.Chat(ctx, n.Chat)
	if err != nil {
		return err
	}
	people, err := p.peopleOf(ctx, chat.User, chat.Project)
	if err != nil {
		return err
	}
	return p.notify(ctx, ofChat(n.Chat), identify("turn", n.Chat, turn.Message), people, n, e.ID)
}

func lastParagraph(text string) string {
	text = strings.TrimSpace(strings.ReplaceAll(text, "\r\n", "\n"))
	if i := strings.LastIndex(text, "\n\n"); i >= 0 {
		text = text[i+2:]
	}
	return text
}

// notifyServer notifies administrators of an MCP server that waits for approval. It withdraws the notification when the
// server does not wait any more.
func (p *Push) notifyServer(ctx context.Context, e events.Event) error {
	var now struct {
		Name, Status, Reason, Image, Command, URL string
		Hosts                                     []string
	}
	since := uint64(0) // sequence at which the server began to wait
	_, err := p.Log.Fold(ctx, events.ConfigSubject(mcpserver.Collection, e.Subject.ID, "*"), 0,
		func(one events.Event) error {
			d, err := events.Decode(one)
			if err != nil {
				return nil
			}
			before := now.Status
			now.Status = ""
			if saved, ok := d.(events.Saved); ok {
				_ = json.Unmarshal(saved.Fields, &now) // fields of other types are left empty
			}
			if now.Status == mcpserver.Pending && before != mcpserver.Pending {
				since = one.Seq
			}
			return nil
		})
	about := events.Subject{Scope: events.ScopeConfig, Collection: mcpserver.Collection, ID: e.Subject.ID}
	id := identify(mcpserver.Collection, e.Subject.ID, fmt.Sprint(since))
	switch {
	case err != nil || since == 0:
		return err
	case now.Status != mcpserver.Pending:
		return p.withdraw(ctx, e, id, events.Notice{Type: typeServer, Server: e.Subject.ID})
	}
	reached := ""
	if len(now.Hosts) > 0 {
		reached = "\nreaches " + strings.Join(now.Hosts, " ")
	}
	n := events.Notice{Type: typeServer, Server: e.Subject.ID}
	n.Title, _ = p.shown("May "+now.Name+" be used?", maxTitle)
	n.Message, _ = p.shownLines(strings.TrimSpace(now.Image+now.Command+now.URL+reached+"\n"+now.Reason), maxShown)
	people, err := p.peopleOf(ctx, "", "")
	if err != nil {
		return err
	}
	return p.notify(ctx, about, id, people, n, e.ID)
}

// isPending reports whether the request or question of a notice waits for a person. It returns true for other
// notices.
func (p *Push) isPending(ctx context.Context, n events.Notice) (bool, error) {
	switch {
	case n.Permission != "":
		request, found, err := p.Model.PermissionIn(ctx, n.Chat, n.Permission)
		return found && request.WaitsForPerson(), err
	case n.Question != "":
		all, err := p.questions(ctx, n)
		for _, q := range all {
			if q.WaitsForPerson() {
				return true, err
			}
		}
		return false, err
	case n.Server != "":
		record, found, err := p.configRecord(ctx, mcpserver.Collection, n.Server)
		return found && record.text("status") == mcpserver.Pending, err
	}
	return true, nil
}

func (p *Push) questions(ctx context.Context, n events.Notice) (together []projections.Question, err error) {
	all, err := p.Model.Questions(ctx, n.Chat, "")
	for _, q := range all {
		if q.EngineQuestion == n.Question {
			together = append(together, q)
		}
	}
	return together, err
}

// withdrawDecided withdraws the notifications of a request or question that is not pending any more.
func (p *Push) withdrawDecided(ctx context.Context, e events.Event, n events.Notice) error {
	waiting, err := p.isPending(ctx, n)
	if err != nil || waiting {
		return err
	}
	n.Type = typePermission
	if n.Question != "" {
		n.Type = typeQuestion
	}
	return p.withdraw(ctx, e, noticeID(n), n)
}

// peopleOf returns the accounts to notify about a chat in a project: the owner while it has access to the project, or
// all administrators if there is no owner.
func (p *Push) peopleOf(ctx context.Context, owner, inProject string) (people []string, err error) {
	all, err := p.Accounts.List(ctx)
	for _, a := range all {
		if !a.Disabled && (a.ID == owner || owner == "" && a.Role == account.Admin) {
			people = append(people, a.ID)
		}
	}
	if owner == "" || err != nil {
		return people, err
	}
	role, err := p.projects().RoleOf(ctx, owner, inProject)
	if role == project.None {
		return nil, err
	}
	return people, err
}
