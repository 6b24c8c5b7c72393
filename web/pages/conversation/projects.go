package conversation

import (
	"cmp"
	"context"
	"slices"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/handlers/project"
	"pocketcoder/web/api"
	"pocketcoder/web/pages/site"
	"pocketcoder/web/query"
)

// maxProjects is the number of projects that the pages of this package know by name.
const maxProjects = 1000

// projects are projects that an account sees, by name.
type projects []struct{ id, name string }

// name returns the name of a project, "" if the account does not see it.
func (p projects) name(id string) string {
	for _, one := range p {
		if one.id == id {
			return one.name
		}
	}
	return ""
}

func (c Conversation) projectsOf(ctx context.Context, db dbx.Builder, caller api.Caller) (all projects, err error) {
	found, err := c.List(ctx, db, caller, project.Collection, query.Query{Sort: "name", Fields: "id,name",
		PerPage: maxProjects})
	for _, r := range found {
		all = append(all, struct{ id, name string }{r.ID(), cmp.Or(r.Text("name"), r.ID())})
	}
	return all, err
}

// addChoices adds the projects of a new chat to the list, if there are several. It selects the project by which the
// list is narrowed, or else the one that a chat is in when it names none.
func (c Conversation) addChoices(ctx context.Context, caller api.Caller, l *chatList) error {
	all, newest, err := c.Chats.Chats.ProjectsFor(ctx, caller.Account)
	if err != nil || len(all) < 2 {
		return err
	}
	for _, one := range all {
		l.choices = append(l.choices, site.Option{Value: one.ID, Text: one.Name})
	}
	for _, id := range []string{events.DefaultEngine, newest, l.project} {
		if slices.ContainsFunc(all, func(one project.Project) bool { return one.ID == id }) {
			l.chosen = id
		}
	}
	return nil
}
