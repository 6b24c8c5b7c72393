package record

import (
	"strings"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
)

// Access are the rules that an account must meet, in PocketBase's filter language. Nil admits only superusers, "" every
// caller. The API evaluates them over the read models.
type Access struct{ List, View, Create, Update, Delete *string }

// Rules takes the rules in this order: list, view, create, update, delete.
func Rules(list, view, create, update, remove *string) Access {
	return Access{List: list, View: view, Create: create, Update: update, Delete: remove}
}

// Rule is an expression that must hold for a record.
func Rule(s string) *string { return &s }

// The conditions that the caller is an administrator, or is an administrator or an agent.
const (
	IsAdmin = `@request.auth.role = "admin"`
	IsStaff = `(@request.auth.role = "admin" || @request.auth.role = "agent")`
)

// The rules of several types. Never admits only superusers, whom no rule restricts.
var (
	Never      *string
	Accounts   = Rule(`@request.auth.id != ""`)
	Admins     = Rule(IsAdmin)
	Staff      = Rule(IsStaff)
	Own        = Rule(`user = @request.auth.id`)
	OwnOrAdmin = Rule(`user = @request.auth.id || ` + IsAdmin)
)

// SeesChat is the condition that the caller may read a chat: it has access to the project, and owns the chat or reads a
// shared one. path leads from the record to the chat, such as "chat."; it is empty for a chat itself.
func SeesChat(path string) string {
	return `(@request.auth.readers ?= ` + path + `reader && @request.auth.projects ?= ` + path + `project)`
}

// OwnsChat is the condition that the caller owns a chat, and may still work in its project.
func OwnsChat(path string) string {
	return `(` + path + `user = @request.auth.id && @request.auth.workProjects ?= ` + path + `project)`
}

// DecidesInChat is the condition that the caller may decide about a record of a chat that it sees: a person who only
// reads a shared chat may not.
const DecidesInChat = `(@request.auth.role != "user" || chat.user = @request.auth.id)`

// ProjectOfChat is the condition that a record concerns no chat, or a chat in a project to which the caller has access.
const ProjectOfChat = `(chat = "" || @request.auth.projects ?= chat.project)`

// OwnsProject is the condition that the caller is an owner of the project of a record.
const OwnsProject = `(project.project_members_via_project.user ?= @request.auth.id && ` +
	`project.project_members_via_project.role ?= "owner")`

// SeesProject is the condition that the caller has access to the project of a record.
const SeesProject = `@request.auth.projects ?= project`

// The rules of records of an account that may concern a chat.
var (
	OwnInProject        = Rule(`user = @request.auth.id && ` + ProjectOfChat)
	OwnInProjectOrAdmin = Rule(`(` + *OwnInProject + `) || ` + IsAdmin)
	OwnInProjectOrStaff = Rule(`(` + *OwnInProject + `) || ` + IsStaff)
)

// Verbs are what may be done to records.
type Verbs struct{ Create, Update, Delete bool }

// bySystem reports whether PocketCoder itself gives a command.
func bySystem(actor string) bool { return actor == "" || actor == events.ActorSystem }

// refuseAccess refuses what an account, the operator or a tool of the model may not do. The operator may do what some
// account may do. An assistant may do what the type says. verb is create, update or delete.
func (t Type) refuseAccess(c handlers.Command, role, verb string) error {
	_, byAccount := strings.CutPrefix(c.Actor, events.UserActor(""))
	rule, assistants := t.Create, t.Assistants.Create
	switch verb {
	case "update":
		rule, assistants = t.Update, t.Assistants.Update
	case "delete":
		rule, assistants = t.Delete, t.Assistants.Delete
	}
	switch {
	case rule == nil:
		return handlers.RefuseField(handlers.Invalid, "collection", "collection: only PocketCoder itself may %s records of %s.",
			verb, t.Name)
	case role == account.Agent && !byAccount && !assistants:
		return handlers.RefuseField(handlers.Invalid, "collection", "collection: an assistant may not %s records of %s.", verb,
			t.Name)
	}
	return nil
}
