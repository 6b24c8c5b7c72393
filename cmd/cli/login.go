package cli

import (
	"context"
	"fmt"

	"pocketcoder/cmd/client"
	"pocketcoder/handlers/policy/display"
)

const loginUsage = `pocketcoder login URL: let this program act for your account at a server.

  pocketcoder login https://code.example.org
  pocketcoder chats --server https://code.example.org
  export POCKETCODER_SERVER=https://code.example.org    for all commands

It shows a code. Open the page that it names, log in there, type the code, and confirm it within ten minutes. The token
is stored in $XDG_CONFIG_HOME/pocketcoder (~/.config/pocketcoder), and only you can read it. The login is listed on your
account page, where you can end it; an administrator can end it with "pocketcoder user revoke". It ends by itself if it
is not used for 14 days. It does not end when you log out in the browser. A script can pass a token in
POCKETCODER_TOKEN instead.

Exit status: 0; 1 when it failed, 2 for wrong usage.
`

// Login is the command login.
func Login(ctx context.Context, env Environment, args []string) error {
	fs := NewFlags(env, "login", loginUsage)
	server, err := ParseOne(fs, args, "which server? for example https://code.example.org")
	if err != nil {
		return err
	}
	if server, err = client.CheckServer(server); err != nil {
		return WrongUsage(env, "login: %v", err)
	}
	at := client.Address{Server: server, Config: configDirectory(env)}
	email, err := client.Login(ctx, at, func(code, page string) {
		fmt.Fprintf(env.Stdout, "Open this page and type the code %s there:\n\n  %s\n\n", display.OneLine(code, 40),
			display.OneLine(page, 300))
	})
	if err != nil {
		return fmt.Errorf("login: %w", err)
	}
	_, err = fmt.Fprintf(env.Stdout, "You are logged in at %s as %s.\n", server, display.OneLine(email, 100))
	return err
}
