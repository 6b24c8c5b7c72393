package settings

import (
	"cmp"
	"context"
	"net/http"
	"path/filepath"

	"github.com/pocketbase/dbx"

	"pocketcoder/handlers/project"
	"pocketcoder/projections/timeline"
	"pocketcoder/web/api"
	"pocketcoder/web/pages/site"
	"pocketcoder/web/query"
)

// maxListed is the number of members, accounts and chats that the page of projects looks at.
const maxListed = 1000

// projectsView is what the page of projects shows besides the records.
type projectsView struct {
	roles   map[string]string // of the account, by project
	members map[string][]projectMember
	atWork  map[string]int // chats that the account sees, by project
	below   string         // where the account may choose directories; empty for nowhere
	admin   bool           // the account is an administrator
}

type projectMember struct{ name, role string }

// projectsFor reads what the page of projects shows besides the records.
func (s Settings) projectsFor(ctx context.Context, caller api.Caller) (v *projectsView, err error) {
	v = &projectsView{members: map[string][]projectMember{}, admin: caller.Is("admin")}
	if v.admin {
		v.below = s.ProjectsBelow
	}
	if _, v.roles, err = s.Chats.Chats.Projects.Roles(ctx, caller.Account); err != nil {
		return nil, err
	}
	return v, s.API.SlowView(ctx, caller.Key(), func(db dbx.Builder, _ uint64) error {
		accounts, err := s.List(ctx, db, caller, "users", query.Query{PerPage: maxListed, Sort: "created"})
		if err != nil {
			return err
		}
		names := map[string]string{}
		for _, r := range accounts {
			names[r.ID()] = nameOf(r)
		}
		members, err := s.List(ctx, db, caller, project.Members, query.Query{PerPage: maxListed, Sort: "created"})
		if err != nil {
			return err
		}
		for _, r := range members {
			of, user := r.Text("project"), r.Text("user")
			v.members[of] = append(v.members[of], projectMember{cmp.Or(names[user], user), r.Text("role")})
		}
		chats, err := s.Visible(ctx, db, caller, "chats", query.Query{PerPage: maxListed, Sort: "-last_active",
			Filter: `parent = ""`})
		if err != nil {
			return err
		}
		v.atWork, err = timeline.CountAtWork(ctx, db, chats)
		return err
	})
}

// roleIn describes the role of the account in a project.
func (v projectsView) roleIn(id string) string {
	if v.admin {
		return "administrator"
	}
	return cmp.Or(v.roles[id], "agent: sees all chats")
}

// addProject makes a project of a directory. A relative one lies below the directory for projects.
func (s Settings) addProject(_ http.ResponseWriter, r *http.Request, caller api.Caller) (string, error) {
	directory := site.Field(r, "directory")
	if !filepath.IsAbs(directory) {
		directory = filepath.Join(s.ProjectsBelow, directory)
	}
	_, err := s.Records.Create(r.Context(), caller, project.Collection, map[string]any{
		"name": cmp.Or(site.Field(r, "name"), filepath.Base(directory)), "directory": directory})
	return pagePath(project.Collection), err
}
