package admin

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/mdp/qrterminal/v3"
	"golang.org/x/term"

	"pocketcoder/cmd/cli"
	"pocketcoder/cmd/client"
	"pocketcoder/cmd/printable"
	"pocketcoder/cmd/program"
	"pocketcoder/handlers"
	"pocketcoder/handlers/device"
	"pocketcoder/web/api"
)

const deviceUsage = `pocketcoder device: manage the phones that get notifications.

  pocketcoder device add "My phone"                                a new secret topic at https://ntfy.sh
  pocketcoder device add "My phone" https://ntfy.example.org/TOPIC a topic or a UnifiedPush endpoint of your own
  pocketcoder device list
  pocketcoder device test DEVICE                                   send a notification and wait for the result
  pocketcoder device remove DEVICE

Install the ntfy app (Android, iOS) or open the topic in a browser, and subscribe to the topic that "add" prints. Keep it
secret: with the topic, anyone can read the notifications and press their buttons.

With several accounts, add needs --user. Browsers subscribe to Web Push themselves, over the API.

Exit status: 0; 1 when it failed, 2 for wrong usage.
`

type deviceCommand struct {
	*client.System
	env    cli.Environment
	user   string // an email
	asJSON bool
}

func Device(ctx context.Context, env cli.Environment, args []string) error {
	d := deviceCommand{env: env}
	fs := cli.NewFlags(env, "device", deviceUsage)
	at := cli.ServerFlags(fs, env)
	fs.StringVar(&d.user, "user", "", "add: `email` of the account that gets the notifications")
	fs.BoolVar(&d.asJSON, "json", false, "list: print a JSON list")
	return cli.RunVerb(ctx, env, fs, args, at, map[string]cli.Verb{
		"add": cli.Takes(1, 2, d.add), "list": cli.Takes(0, 0, d.list), "test": cli.Takes(1, 1, d.test), "remove": cli.Takes(1, 1, d.remove),
	}, func(s *client.System) { d.System = s })
}

// ntfyServer is the server of a new topic, unless the caller names a URL.
const ntfyServer = "https://ntfy.sh"

func (d *deviceCommand) add(ctx context.Context, args []string) error {
	owner, err := owner(ctx, d.System, d.user)
	if err != nil {
		return err
	}
	address := ntfyServer + "/pocketcoder-" + strings.ToLower(rand.Text())
	if len(args) > 1 {
		address = args[1]
	}
	if u, err := url.Parse(address); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" ||
		strings.Trim(u.Path, "/") == "" {
		return errors.New("the URL must be that of an ntfy topic or a UnifiedPush endpoint, such as https://ntfy.sh/SECRET-TOPIC")
	}
	if strings.TrimSpace(args[0]) == "" {
		return errors.New(`a device needs a name, such as "My phone"`)
	}
	id, err := d.Create(ctx, device.Collection, map[string]any{"user": owner.ID, "name": args[0],
		"push_service": device.ServiceUnifiedPush, "push_token": address, "is_active": true})
	if err != nil {
		return err
	}
	fmt.Fprintf(d.env.Stdout, "Device %s gets the notifications of %s.\n", id, printable.OneLine(owner.Email, 60))
	if len(args) == 1 {
		fmt.Fprintf(d.env.Stdout, "Subscribe to this topic in the ntfy app, or open it in a browser. Keep it secret:\n\n  %s\n\n", address)
		d.showQR(address)
	}
	_, err = fmt.Fprintf(d.env.Stdout, "Try it: %s device test %s\n", program.Name(), id)
	return err
}

// showQR shows a topic as a QR code with an ntfy link, which ntfy's Android app opens.
func (d *deviceCommand) showQR(address string) {
	u, err := url.Parse(address)
	file, ok := d.env.Stdout.(*os.File)
	if err != nil || !ok || !term.IsTerminal(int(file.Fd())) {
		return
	}
	u.Scheme = "ntfy"
	qrterminal.GenerateWithConfig(u.String(), qrterminal.Config{Level: qrterminal.L, Writer: file, HalfBlocks: true,
		QuietZone: 2})
}

// storedDevice is a device as it is stored.
type storedDevice struct {
	device.Device
	Token string `json:"push_token"`
}

// host returns the host of the push service, empty if its token is no URL.
func (d storedDevice) host() string {
	u, err := url.Parse(d.Token)
	if err != nil || d.Service != device.ServiceUnifiedPush {
		return ""
	}
	return u.Host
}

func (d *deviceCommand) list(ctx context.Context, _ []string) error {
	stored, emails, err := ownedBy[storedDevice](ctx, d.System, device.Collection, "user,name,id")
	if err != nil {
		return err
	}
	all := []device.Device{}
	for _, one := range stored {
		one.Host = one.host()
		all = append(all, one.Device)
	}
	empty := fmt.Sprintf("no devices; add one with: %s device add \"My phone\"", program.Name())
	return cli.PrintList(d.env, d.asJSON, all, empty, "ID\tNAME\tACCOUNT\tSERVICE\tHOST\tSTATE",
		func(one device.Device) []string {
			return []string{
				one.ID, printable.OneLine(one.Name, 40), printable.OneLine(emails[one.User], 60),
				printable.OneLine(one.Service, 20), printable.OneLine(one.Host, 60), activity(one.Active),
			}
		})
}

func activity(active bool) string {
	if active {
		return "active"
	}
	return "inactive"
}

func (d *deviceCommand) test(ctx context.Context, args []string) error {
	one, err := client.View[storedDevice](ctx, d.System, device.Collection, args[0])
	var result api.PushAnswer
	if err == nil {
		err = d.Send(ctx, http.MethodPost, "/api/pocketcoder/push/test", map[string]any{"device": args[0], "wait": true},
			&result)
	}
	if handlers.CodeOf(err) == handlers.NotFound {
		err = fmt.Errorf("there is no active device %s", args[0])
	}
	host := cmp.Or(one.host(), one.Service)
	switch {
	case err != nil:
		return err
	case result.Sent:
		_, err = fmt.Fprintf(d.env.Stdout, "%s accepted the notification; the device should show it now.\n",
			printable.OneLine(host, 60))
		return err
	case result.Failed != "":
		return fmt.Errorf("the notification was not sent: %s", printable.OneLine(result.Failed, 200))
	}
	return fmt.Errorf("%s has not accepted the notification yet; PocketCoder retries for some minutes",
		printable.OneLine(host, 60))
}

func (d *deviceCommand) remove(ctx context.Context, args []string) error {
	return d.Delete(ctx, device.Collection, args[0])
}
