package project

import (
	"context"
	"path/filepath"
	"strings"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers"
	"pocketcoder/handlers/record"
)

// The conditions of access to projects and members. Everyone with access to a project sees its members.
const (
	ownerIn = `.user ?= @request.auth.id && `
	byOwner = `(project_members_via_project` + ownerIn + `project_members_via_project.role ?= "owner")`
)

var (
	sees      = record.Rule(`@request.auth.projects ?= id || ` + record.IsStaff)
	owns      = record.Rule(byOwner + ` || ` + record.IsAdmin)
	seesIn    = record.Rule(record.SeesProject + ` || ` + record.IsStaff)
	ownsIn    = record.Rule(record.OwnsProject + ` || ` + record.IsAdmin)
	roleNames = map[string]string{Viewer: "viewer: reads shared chats", Member: "member: also has chats in the project",
		Owner: "owner: also changes the project and its members"}
)

// Type returns the type of the records of projects.
func (p Places) Type() record.Type {
	return record.Type{Name: Collection, Command: "project", Title: "Projects",
		About:  "directories in which people work, and who may",
		Access: record.Rules(sees, sees, record.Admins, owns, record.Admins),
		Unique: []string{"name"}, Prepare: prepare, Complete: p.complete, CheckDelete: checkDelete, Fields: fields}
}

var fields = []record.Field{
	{Name: "name", Kind: record.Text, Label: "Name", Required: true},
	{Name: "directory", Kind: record.Text, Label: "Directory", Required: true, Shown: true},
	{Name: "repository", Kind: record.Text, Label: "Repository", Shown: true},
	{Name: "everyone", Kind: record.Select, Label: "Accounts that are no members", Values: []string{Viewer, Member},
		Choices: map[string]string{None: "have no access", Viewer: roleNames[Viewer], Member: roleNames[Member]}},
	{Name: "agent", Kind: record.Relation, Label: "Agent of new chats", Relation: "ai_agents",
		Choices: map[string]string{"": "OpenCode's own agent"}},
	{Name: "model", Kind: record.Text, Label: "Model of chats without a selection", Example: "anthropic/claude-sonnet-4-5"},
}

// MemberType is the type of the records of members.
var MemberType = record.Type{Name: Members, Command: "project", Title: "Members of projects",
	About:  "who has access to which project",
	Access: record.Rules(seesIn, seesIn, ownsIn, ownsIn, ownsIn), Unique: []string{"project", "user"},
	Defaults: map[string]any{"role": Member}, Prepare: checkRelated, Complete: completeMember, CheckDelete: checkRemoval,
	Fields: []record.Field{
		{Name: "project", Kind: record.Relation, Label: "Project", Relation: Collection, Required: true},
		{Name: "user", Kind: record.Relation, Label: "Account", Relation: "users", Required: true},
		{Name: "email", Kind: record.Email, Label: "Email of the account", Argument: true,
			About: "Names the account of a new member, in place of user: an owner of a project does not see other accounts."},
		{Name: "role", Kind: record.Select, Label: "Role", Values: []string{Viewer, Member, Owner}, Choices: roleNames,
			Required: true},
	}}

// refuseAccess refuses a change of a project by an account that is neither an administrator nor an owner.
func refuseAccess() error {
	return handlers.Refuse(handlers.Conflict, "Only administrators and owners of the project may change it and its members.")
}

// prepare reads the role of the account that changes a project, and the repository of a new one that names none.
func prepare(ctx context.Context, h *record.Records, c *record.Save) error {
	set := record.Values(c.Set)
	directory := set.Text("directory")
	if c.New && c.Actor != events.ActorSystem && set.Text("repository") == "" && filepath.IsAbs(directory) {
		if remote := remoteOf(ctx, directory); remote != "" {
			c.Fixed = record.Fields(map[string]any{"repository": remote})
		}
	}
	members, err := record.All[membership](ctx, h, Members)
	c.Found = roleIn(Project{ID: c.Record}, c.Account(), members)
	return err
}

func (p Places) complete(c record.Change) error {
	switch {
	case !c.Admin() && c.Found != Owner:
		return refuseAccess()
	case !c.New && c.Changes("directory", "repository") && c.Actor != events.ActorSystem:
		return record.Invalid("directory", "The directory and the repository of a project cannot change.")
	case c.Changes("model") && c.Text("model") != "" && strings.Index(c.Text("model"), "/") < 1:
		return record.Invalid("model", "Must be provider/model, not %.60q.", c.Text("model"))
	case !c.Changes("directory"):
		return nil
	}
	return p.checkDirectory(c)
}

// checkDelete refuses to remove the project of the engine, which would run for no project.
func checkDelete(d record.Deletion) error {
	if !d.Admin() {
		return handlers.Refuse(handlers.Conflict, "Only administrators may remove a project.")
	}
	if d.Record == events.DefaultEngine {
		return handlers.Refuse(handlers.Conflict, "The project %q is the one that PocketCoder was started in, so it cannot be removed.",
			d.Old.Text("name"))
	}
	return nil
}

// checkRelated refuses a member of a project, or of an account, that does not exist.
func checkRelated(ctx context.Context, h *record.Records, c *record.Save) error {
	set := record.Values(c.Set)
	if id := set.Text("project"); id != "" {
		if _, found, err := record.One[Project](ctx, h, Collection, id); err != nil || !found {
			return orRefused(err, "project", "There is no project %.80q.", id)
		}
	}
	if email := set.Text("email"); email != "" && c.New {
		id, err := accountOf(ctx, h.Log, email)
		if err != nil || id == "" {
			return orRefused(err, "email", "There is no account with the email %.80q.", email)
		}
		c.Fixed = record.Fields(map[string]any{"user": id})
		return nil
	}
	if id := set.Text("user"); id != "" {
		if exists, err := accountExists(ctx, h.Log, id); err != nil || !exists {
			return orRefused(err, "user", "There is no account %.80q.", id)
		}
	}
	return nil
}

func orRefused(err error, field, format string, args ...any) error {
	if err != nil {
		return err
	}
	return record.Invalid(field, format, args...)
}

// accountOf returns the account with an email that was not deleted, "" for none.
func accountOf(ctx context.Context, l *log.Log, email string) (id string, err error) {
	emails := map[string]string{}
	for _, kind := range []string{"account.*", events.Deleted{}.Kind()} {
		_, err := l.Fold(ctx, events.UserSubject("*", kind), 0, func(e events.Event) error {
			switch d, _ := events.Decode(e); d := d.(type) { // nil for one that cannot be decoded
			case events.AccountCreated:
				emails[e.Subject.ID] = d.Email
			case events.AccountUpdated:
				if d.Email != nil {
					emails[e.Subject.ID] = *d.Email
				}
			case events.Deleted:
				delete(emails, e.Subject.ID)
			}
			return nil
		})
		if err != nil {
			return "", err
		}
	}
	for of, known := range emails {
		if strings.EqualFold(known, email) {
			id = of
		}
	}
	return id, nil
}

// accountExists reports whether the log has an account that was not deleted.
func accountExists(ctx context.Context, l *log.Log, id string) (exists bool, err error) {
	if _, err := events.ParseID(id); err != nil {
		return false, nil
	}
	for _, kind := range []string{events.AccountCreated{}.Kind(), events.Deleted{}.Kind()} {
		_, err = l.Fold(ctx, events.UserSubject(id, kind), 0, func(e events.Event) error {
			exists = kind == events.AccountCreated{}.Kind()
			return nil
		})
		if err != nil {
			return false, err
		}
	}
	return exists, nil
}

func completeMember(c record.Change) error {
	for _, field := range []string{"project", "user"} {
		if c.Text(field) == "" {
			return record.Invalid(field, "Cannot be blank.")
		}
	}
	if !c.New && c.Changes("project", "user") {
		return record.Invalid("project", "The project and the account of a member cannot change.")
	}
	before := c.Others()
	if !c.New {
		before = append(before, c.Old)
	}
	if !c.Admin() && !ownsProject(before, c.Account(), c.Text("project")) {
		return refuseAccess()
	}
	return nil
}

func checkRemoval(d record.Deletion) error {
	if !d.Admin() && !ownsProject(append(d.Others(), d.Old), d.Account(), d.Old.Text("project")) {
		return refuseAccess()
	}
	return nil
}

// ownsProject reports whether an account is an owner among the members.
func ownsProject(members []record.Values, user, project string) bool {
	for _, m := range members {
		if m.Text("project") == project && m.Text("user") == user && m.Text("role") == Owner {
			return true
		}
	}
	return false
}
