package admin

import (
	"context"
	"net/http"
	"strings"
	"time"

	"pocketcoder/cmd/cli"
	"pocketcoder/cmd/client"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/policy/display"
)

const userUsage = `pocketcoder user: manage the accounts of the running system, their passwords and logins.

  pocketcoder user add EMAIL                   a new account; --role user, agent or admin
  pocketcoder user list
  pocketcoder user passwd EMAIL                set the password; ends every session of the account
  pocketcoder user role EMAIL ROLE             set the role; ends its sessions too
  pocketcoder user disable EMAIL               the account cannot log in, and its sessions end
  pocketcoder user enable EMAIL
  pocketcoder user sessions EMAIL              list the sessions of the account
  pocketcoder user revoke EMAIL [SESSION]      end one session, or all

Roles:

  user     uses the chats of this account
  agent    a program: reads all chats and requests permissions, but approves nothing
  admin    sees and does everything; the last admin cannot be disabled

At a terminal, the command asks for the password twice. A script passes it as one line on stdin, or uses --generate:

  pocketcoder user add alice@example.org --name Alice --generate
  pass show alice | pocketcoder user passwd alice@example.org

Exit status: 0; 1 when it failed, 2 for wrong usage.
`

// userCommand holds the flags of the command user and its connection.
type userCommand struct {
	env cli.Environment
	*client.System
	name, role string
	generate   bool
	asJSON     bool
}

func User(ctx context.Context, env cli.Environment, args []string) error {
	fs := cli.NewFlags(env, "user", userUsage)
	at := cli.ServerFlags(fs, env)
	u := userCommand{env: env}
	fs.StringVar(&u.name, "name", "", "add: the person's `name`")
	fs.StringVar(&u.role, "role", account.User, "add: `role`: user, agent or admin")
	fs.BoolVar(&u.generate, "generate", false, "add, passwd: make a password and print it")
	fs.BoolVar(&u.asJSON, "json", false, "list, sessions: print a JSON list")
	return cli.RunVerb(ctx, env, fs, args, at, map[string]cli.Verb{
		"add": cli.Takes(1, 1, u.add), "list": cli.Takes(0, 0, u.list), "passwd": cli.Takes(1, 1, u.passwd), "role": cli.Takes(2, 2, u.setRole),
		"disable": cli.Takes(1, 1, u.setDisabled(true)), "enable": cli.Takes(1, 1, u.setDisabled(false)), "sessions": cli.Takes(1, 1, u.sessions), "revoke": cli.Takes(1, 2, u.revoke),
	}, func(s *client.System) { u.System = s })
}

func (u *userCommand) add(ctx context.Context, args []string) error {
	password, err := u.password(ctx)
	if err != nil {
		return err
	}
	_, err = u.Create(ctx, account.Users, map[string]string{"email": args[0], "name": u.name, "role": u.role,
		"password": password})
	return u.printGenerated(password, err)
}

func (u *userCommand) passwd(ctx context.Context, args []string) error {
	a, err := cli.FindAccount(ctx, u.System, args[0])
	if err != nil {
		return err
	}
	password, err := u.password(ctx)
	if err != nil {
		return err
	}
	return u.printGenerated(password, u.Update(ctx, account.Users, a.ID, map[string]string{"password": password}))
}

func (u *userCommand) setRole(ctx context.Context, args []string) error {
	return u.update(ctx, args[0], map[string]any{"role": args[1]})
}

func (u *userCommand) setDisabled(disabled bool) func(context.Context, []string) error {
	return func(ctx context.Context, args []string) error {
		return u.update(ctx, args[0], map[string]any{"disabled": disabled})
	}
}

func (u *userCommand) update(ctx context.Context, email string, fields map[string]any) error {
	a, err := cli.FindAccount(ctx, u.System, email)
	if err != nil {
		return err
	}
	return u.Update(ctx, account.Users, a.ID, fields)
}

func (u *userCommand) revoke(ctx context.Context, args []string) error {
	a, err := cli.FindAccount(ctx, u.System, args[0])
	if err != nil {
		return err
	}
	return u.Send(ctx, http.MethodDelete, sessionsOf(a)+strings.Join(append([]string{""}, args[1:]...), "/"), nil, nil)
}

func sessionsOf(a account.Account) string { return "/api/pocketcoder/users/" + a.ID + "/sessions" }

func (u *userCommand) list(ctx context.Context, _ []string) error {
	all, err := u.Accounts(ctx)
	if err != nil {
		return err
	}
	const empty = "no accounts yet; make the first with: pocketcoder user add EMAIL --role admin"
	return cli.PrintList(u.env, u.asJSON, all, empty, "EMAIL\tROLE\tSTATE\tCREATED\tID\tNAME",
		func(a account.Account) []string {
			state := "enabled"
			if a.Disabled {
				state = "disabled"
			}
			return []string{display.OneLine(a.Email, 60), a.Role, state,
				minute(a.Created), a.ID, display.OneLine(a.Name, 40)}
		})
}

func (u *userCommand) sessions(ctx context.Context, args []string) error {
	a, err := cli.FindAccount(ctx, u.System, args[0])
	if err != nil {
		return err
	}
	all, err := client.Read[[]account.Session](ctx, u.System, sessionsOf(a))
	if err != nil {
		return err
	}
	empty := display.OneLine(a.Email, 60) + " is logged in nowhere"
	return cli.PrintList(u.env, u.asJSON, all, empty, "SESSION\tOPENED\tREFRESHED\tEXPIRES\tADDRESS\tDEVICE",
		func(s account.Session) []string {
			return []string{s.ID, minute(s.Opened), minute(s.Refreshed), minute(s.Expires), display.OneLine(s.Address, 40),
				display.OneLine(s.Device, 60)}
		})
}

// minute shows a time in this machine's time zone.
func minute(t time.Time) string { return t.Local().Format("2006-01-02 15:04") }
