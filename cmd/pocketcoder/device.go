package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/mdp/qrterminal/v3"
	"golang.org/x/term"

	"pocketcoder/bridge/push"
	"pocketcoder/handlers"
)

const deviceUsage = `pocketcoder device: manage the phones that get notifications.

  pocketcoder device add "My phone"                                a new secret topic at https://ntfy.sh
  pocketcoder device add "My phone" https://ntfy.example.org/TOPIC a topic or a UnifiedPush endpoint of your own
  pocketcoder device list
  pocketcoder device test DEVICE                                   send a notification and wait for the result
  pocketcoder device remove DEVICE

Install the ntfy app (Android, iOS) or open the topic in a browser, and subscribe to the topic that "add" prints. Keep it
secret: with the topic, anybody can read the notifications and press their buttons.

With several accounts, add needs --user. Browsers subscribe to Web Push themselves, over the API.

Exit status: 0; 1 when it failed, 2 for wrong usage.
`

type deviceCommand struct {
	*system
	env    environment
	user   string // an email
	asJSON bool
}

func runDevice(ctx context.Context, env environment, args []string) error {
	d := deviceCommand{env: env}
	fs := newFlags(env, "device", deviceUsage)
	data := dataFlag(fs, env)
	fs.StringVar(&d.user, "user", "", "add: `email` of the account that gets the notifications")
	fs.BoolVar(&d.asJSON, "json", false, "list: print a JSON list")
	return runVerb(ctx, env, fs, args, data, map[string]verb{
		"add": {1, 2, d.add}, "list": {0, 0, d.list}, "test": {1, 1, d.test}, "remove": {1, 1, d.remove},
	}, func(s *system) { d.system = s })
}

// ntfyServer is where a topic is made when the caller names none.
const ntfyServer = "https://ntfy.sh"

func (d *deviceCommand) add(ctx context.Context, args []string) error {
	owner, err := owner(ctx, d.system, d.env, d.user)
	if err != nil {
		return err
	}
	address := ntfyServer + "/pocketcoder-" + strings.ToLower(rand.Text())
	if len(args) > 1 {
		address = args[1]
	}
	a, err := handlers.Give(ctx, d.nc, "device.add", handlers.AddDevice{Command: newCommand(), User: owner.ID, Name: args[0], URL: address})
	if err != nil {
		return err
	}
	fmt.Fprintf(d.env.stdout, "Device %s gets the notifications of %s.\n", a.ID, oneLine(owner.Email, 60))
	if len(args) == 1 {
		fmt.Fprintf(d.env.stdout, "Subscribe to this topic in the ntfy app, or open it in a browser. Keep it secret:\n\n  %s\n\n", address)
		d.showQR(address)
	}
	_, err = fmt.Fprintf(d.env.stdout, "Try it: %s device test %s\n", commandName(), a.ID)
	return err
}

// showQR shows a topic for the camera of a phone: ntfy's app for Android opens such links.
func (d *deviceCommand) showQR(address string) {
	u, err := url.Parse(address)
	file, ok := d.env.stdout.(*os.File)
	if err != nil || !ok || !term.IsTerminal(int(file.Fd())) {
		return
	}
	u.Scheme = "ntfy"
	qrterminal.GenerateWithConfig(u.String(), qrterminal.Config{Level: qrterminal.L, Writer: file, HalfBlocks: true, QuietZone: 2})
}

func (d *deviceCommand) list(ctx context.Context, _ []string) error {
	var all []handlers.Device
	emails, err := ownedBy(ctx, d.system, d.env, "device.list", &all)
	if err != nil {
		return err
	}
	if d.asJSON {
		return printJSON(d.env.stdout, all)
	}
	if len(all) == 0 {
		_, err := fmt.Fprintf(d.env.stdout, "no devices; add one with: %s device add \"My phone\"\n", commandName())
		return err
	}
	t := tabwriter.NewWriter(d.env.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ID\tNAME\tACCOUNT\tSERVICE\tHOST\tSTATE")
	for _, one := range all {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", one.ID, oneLine(one.Name, 40), oneLine(emails[one.User], 60), oneLine(one.Service, 20), oneLine(one.Host, 60), activity(one.Active))
	}
	return t.Flush()
}

func activity(active bool) string {
	if active {
		return "active"
	}
	return "inactive"
}

func (d *deviceCommand) test(ctx context.Context, args []string) error {
	a, err := handlers.Give(ctx, d.nc, "device.test", push.TestDevice{Command: newCommand(), Device: args[0]})
	if err != nil {
		return err
	}
	var result push.TestResult
	if err := json.Unmarshal(a.Result, &result); err != nil {
		return fmt.Errorf("read the result of the test: %w", err)
	}
	switch {
	case result.Sent:
		_, err = fmt.Fprintf(d.env.stdout, "%s accepted the notification; the device should show it now.\n", oneLine(result.Host, 60))
		return err
	case result.Failed != "":
		return fmt.Errorf("the notification was not sent: %s", oneLine(result.Failed, 200))
	}
	return fmt.Errorf("%s has not accepted the notification yet; PocketCoder retries for some minutes", oneLine(result.Host, 60))
}

func (d *deviceCommand) remove(ctx context.Context, args []string) error {
	return removeRecord(ctx, d.system, handlers.DeviceCollection, args[0])
}
