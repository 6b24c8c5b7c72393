// Package project stores the projects of an installation and their members, and decides who sees a project and who may
// work in it.
//
// A project is a directory that people work in. What a chat has is visible to accounts with access to its project: to
// the owner of the chat, and to the others if the chat is shared. Administrators have access to every project.
//
// Promises: a decision is made from the log. The operator of the machine chooses any directory, and administrators one
// below Places.Below. Only administrators and owners of a project change it and its members. An account that leaves a
// project has no access to its own chats there, until it is a member again.
//
// It must not know chats, engines, or how files are served.
package project

import (
	"context"
	"errors"
	"slices"
	"strings"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/record"
)

// The config collections of projects and of their members.
const (
	Collection = "projects"
	Members    = "project_members"
)

// The roles of an account in a project.
const (
	None   = ""       // no access
	Viewer = "viewer" // sees the project and its shared chats
	Member = "member" // also has chats in it
	Owner  = "owner"  // also changes the project and its members
)

// Project is a record of Collection.
type Project struct {
	ID         string `json:"-"`
	Name       string `json:"name"`
	Directory  string `json:"directory"`            // absolute
	Repository string `json:"repository,omitempty"` // URL of its remote origin; empty for none
	Everyone   string `json:"everyone,omitempty"`   // role of accounts that are no members
	Agent      string `json:"agent,omitempty"`      // record of ai_agents for new chats; empty for OpenCode's own agent
	Model      string `json:"model,omitempty"`      // "provider/model" of chats without a selection; empty for none
}

// membership is a record of Members.
type membership struct {
	Project string `json:"project"`
	User    string `json:"user"`
	Role    string `json:"role"`
}

// Projects reads the projects, and decides what accounts may do in them. It is safe for concurrent use.
type Projects struct {
	Records  *record.Records
	Accounts *account.Accounts
}

// Get returns a project, and whether there is one. It does not return a removed project.
func (p *Projects) Get(ctx context.Context, id string) (Project, bool, error) {
	found, ok, err := record.One[Project](ctx, p.Records, Collection, id)
	found.ID = id
	return found, ok, err
}

// all returns the projects, by name.
func (p *Projects) all(ctx context.Context) ([]Project, error) {
	list, err := record.List(ctx, p.Records, Collection, func(r record.StoredRecord[Project]) Project {
		r.Value.ID = r.ID
		return r.Value
	})
	slices.SortFunc(list, func(a, b Project) int { return strings.Compare(a.Name, b.Name) })
	return list, err
}

// Directories returns the directories of all projects. They may be those of another machine.
func Directories(ctx context.Context, h *record.Records) ([]string, error) {
	return record.List(ctx, h, Collection, func(r record.StoredRecord[Project]) string { return r.Value.Directory })
}

// RoleOf returns the role of an account in a project. Administrators, and the operator who has no account, are owners
// of every project. A disabled account has no role.
func (p *Projects) RoleOf(ctx context.Context, user, project string) (string, error) {
	if admin, err := p.isAdmin(ctx, user); admin || handlers.CodeOf(err) == handlers.NotFound {
		return map[bool]string{true: Owner, false: None}[admin], nil
	} else if err != nil {
		return None, err
	}
	found, ok, err := p.Get(ctx, project)
	if err != nil || !ok {
		return None, err
	}
	members, err := record.All[membership](ctx, p.Records, Members)
	return roleIn(found, user, members), err
}

// isAdmin reports whether an account is an administrator, or the operator. It refuses an account that may not log in.
func (p *Projects) isAdmin(ctx context.Context, user string) (bool, error) {
	if user == "" {
		return true, nil
	}
	found, err := p.Accounts.Find(ctx, user)
	return err == nil && found.Role == account.Admin, err
}

func roleIn(project Project, user string, members []record.StoredRecord[membership]) string {
	for _, m := range members {
		if m.Value.Project == project.ID && m.Value.User == user {
			return m.Value.Role
		}
	}
	return project.Everyone
}

// works reports whether a role has chats of its own in a project.
func works(role string) bool { return role == Member || role == Owner }

// Roles returns the projects, by name, and the roles of an account in them, by project.
func (p *Projects) Roles(ctx context.Context, user string) (list []Project, roles map[string]string, err error) {
	if list, err = p.all(ctx); err != nil {
		return nil, nil, err
	}
	admin, err := p.isAdmin(ctx, user)
	if handlers.CodeOf(err) == handlers.NotFound {
		return list, nil, nil
	}
	members, memberErr := record.All[membership](ctx, p.Records, Members)
	roles = map[string]string{}
	for _, one := range list {
		if roles[one.ID] = roleIn(one, user, members); admin {
			roles[one.ID] = Owner
		}
	}
	return list, roles, errors.Join(err, memberErr)
}

// MayWork returns the projects in which an account may have chats, by name.
func (p *Projects) MayWork(ctx context.Context, user string) ([]Project, error) {
	list, roles, err := p.Roles(ctx, user)
	return slices.DeleteFunc(list, func(one Project) bool { return !works(roles[one.ID]) }), err
}

// MayAct reports whether an account may write in a chat and decide in it: an administrator, or the owner of the chat
// while it may work in the project.
func (p *Projects) MayAct(ctx context.Context, user string, chat handlers.ChatState) (bool, error) {
	admin, err := p.isAdmin(ctx, user)
	if handlers.CodeOf(err) == handlers.NotFound {
		return false, nil
	}
	if admin || err != nil || chat.Owner != user {
		return admin, err
	}
	role, err := p.RoleOf(ctx, user, chat.Project)
	return works(role), err
}

// Choose returns the project of a new chat of an account: the wanted one, the only one in which the account may work,
// that of its newest chat, or the first of the installation. It refuses a project in which the account may not work,
// and a choice that it cannot make.
func (p *Projects) Choose(ctx context.Context, user, wanted string,
	newest func(context.Context) (project string, err error)) (Project, error) {
	list, err := p.MayWork(ctx, user)
	if err != nil {
		return Project{}, err
	}
	find := func(id string) int { return slices.IndexFunc(list, func(one Project) bool { return one.ID == id }) }
	switch {
	case wanted != "" && find(wanted) < 0:
		return Project{}, handlers.RefuseField(handlers.Invalid, "project",
			"There is no project %.80q in which the account may work.", wanted)
	case wanted != "":
		return list[find(wanted)], nil
	case len(list) == 0:
		return Project{}, handlers.RefuseField(handlers.Invalid, "project",
			"The account may not work in any project. An administrator can make it a member of one.")
	case len(list) == 1:
		return list[0], nil
	}
	last, err := newest(ctx)
	if err != nil {
		return Project{}, err
	}
	for _, id := range []string{last, events.DefaultEngine} {
		if i := find(id); i >= 0 {
			return list[i], nil
		}
	}
	names := make([]string, len(list))
	for i, one := range list {
		names[i] = one.Name
	}
	return Project{}, handlers.RefuseField(handlers.Invalid, "project", "Name the project of the chat: %s.",
		strings.Join(names, ", "))
}

// Ensure stores the project of an engine of this installation. Its directory may have changed since; all else of an
// existing project stays.
func Ensure(ctx context.Context, h *record.Records, engine Project) (seq uint64, err error) {
	have, found, err := record.One[Project](ctx, h, Collection, engine.ID)
	if err != nil || found && have.Directory == engine.Directory {
		return 0, err
	}
	set := map[string]any{"directory": engine.Directory}
	if !found {
		set["name"], set["repository"], set["everyone"] = engine.Name, engine.Repository, engine.Everyone
	}
	_, seq, err = h.Save(ctx, record.Save{Command: handlers.Command{Actor: events.ActorSystem}, Collection: Collection,
		Record: engine.ID, New: !found, Set: record.Fields(set)})
	return seq, err
}
