package cli

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"path/filepath"
	"strings"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/datadir"
	"pocketcoder/handlers"
	"pocketcoder/handlers/policy/display"
	"pocketcoder/handlers/project"
)

const projectUsage = `
  pocketcoder project add DIR [--name NAME]    let people work in a directory of the machine of the system
  pocketcoder project remove NAME              hide a project and its chats; its files stay; delete is the same
  pocketcoder project members NAME             list the members of a project
  pocketcoder project members NAME --add ann@example.org --role member
  pocketcoder project members NAME --remove ann@example.org

A viewer sees the project and the chats that are shared. A member also has chats in it. An owner also changes the project
and its members. Administrators may do all this in every project. --everyone is the role of all other accounts: viewer,
member, or "" for no access. NAME is the name of a project or its id. --add changes the role of an account that is a
member already.
`

// Projects is the command project.
var Projects = Group{Name: "project", Usage: projectUsage, Default: "list", NoCreate: true,
	Own: func(r *Records, fs *flag.FlagSet) map[string]Verb {
		c := projectCommand{Records: r}
		fs.StringVar(&c.add, "add", "", "members: `email` of the account to add")
		fs.StringVar(&c.remove, "remove", "", "members: `email` of the account to remove")
		fs.StringVar(&c.role, "role", project.Member, "members: with --add, the `role`: viewer, member or owner")
		return map[string]Verb{"add": {least: 1, most: 1, run: c.addDirectory}, "remove": r.takesOne(r.delete),
			"members": r.takesOne(c.members)}
	}}

type projectCommand struct {
	*Records
	add, remove, role string
}

// addDirectory makes a directory a project.
func (c *projectCommand) addDirectory(ctx context.Context, args []string) error {
	directory := datadir.Absolute(args[0])
	set, err := c.Fields(ctx)
	if err != nil {
		return err
	}
	fields := map[string]any{"name": filepath.Base(directory), "directory": directory}
	maps.Copy(fields, set)
	id, err := c.Create(ctx, project.Collection, fields)
	if err == nil {
		_, err = fmt.Fprintln(c.Env.Stdout, id)
	}
	return err
}

// projectOf returns the id of the project that a person names. Without a name it returns the project in whose directory
// the person is, if the system is on this machine, or "".
func projectOf(ctx context.Context, s *client.System, at client.Address, name string) (string, error) {
	all, err := client.List[listedProject](ctx, s, project.Collection, client.Select{Sort: "created,id",
		Fields: "id,name,directory"})
	if err != nil || name == "" && at.Server != "" {
		return "", err
	}
	if name == "" {
		here, err := filepath.EvalSymlinks(datadir.Absolute("."))
		if err != nil {
			return "", nil // the directory was removed: the person is in no project
		}
		for _, p := range all {
			directory, err := filepath.EvalSymlinks(p.Directory)
			if rel, relErr := filepath.Rel(directory, here); err == nil && relErr == nil && filepath.IsLocal(rel) {
				return p.ID, nil
			}
		}
		return "", nil
	}
	names := make([]string, len(all))
	for i, p := range all {
		if p.ID == name || p.Name == name {
			return p.ID, nil
		}
		names[i] = display.OneLine(p.Name, 60)
	}
	return "", handlers.Refuse(handlers.NotFound, "There is no project %q. There are: %s.", name,
		strings.Join(names, ", "))
}

type listedProject struct{ ID, Name, Directory string }

// member is a member of a project as a list shows it.
type member struct {
	ID   string `json:"id"`
	User string `json:"user"`
	Role string `json:"role"`
}

func (c *projectCommand) members(ctx context.Context, args []string) error {
	_, found, err := c.find(ctx, args[0])
	if err != nil {
		return err
	}
	of := found.Text("id")
	all, err := client.List[member](ctx, c.System, project.Members,
		client.Select{Filter: fmt.Sprintf("project = %q", of), Sort: "created,id", Fields: "id,user,role"})
	if err != nil {
		return err
	}
	switch {
	case c.add != "" && c.remove != "":
		return handlers.Refuse(handlers.Invalid, "--add and --remove exclude each other")
	case c.add != "":
		return c.setRole(ctx, of, all)
	case c.remove != "":
		one, known := c.memberOf(ctx, all, c.remove)
		if !known {
			return handlers.Refuse(handlers.NotFound, "%s is not a member of the project", display.OneLine(c.remove, 60))
		}
		return c.Delete(ctx, project.Members, one.ID)
	}
	emails := c.namesOf(ctx, "users")
	return PrintList(c.Env, c.AsJSON, all, "no members; add one with: pocketcoder project members NAME --add EMAIL",
		"ACCOUNT\tROLE", func(m member) []string { return []string{cmp.Or(emails[m.User], m.User), m.Role} })
}

// memberOf returns the member that a person names by the email or the id of the account.
func (c *projectCommand) memberOf(ctx context.Context, all []member, name string) (member, bool) {
	id, _ := c.related(ctx, "users", name) // "" for an account that the caller does not see, so it is no member
	for _, m := range all {
		if m.User == cmp.Or(id, name) {
			return m, true
		}
	}
	return member{}, false
}

// setRole adds an account to a project, or changes its role there.
func (c *projectCommand) setRole(ctx context.Context, of string, all []member) error {
	if one, known := c.memberOf(ctx, all, c.add); known {
		return c.Update(ctx, project.Members, one.ID, map[string]any{"role": c.role})
	}
	_, err := c.Create(ctx, project.Members, map[string]any{"project": of, "email": c.add, "role": c.role})
	return err
}
