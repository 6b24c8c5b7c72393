package admin

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/mdp/qrterminal/v3"
	"golang.org/x/term"

	"pocketcoder/cmd/cli"
	"pocketcoder/cmd/client"
	"pocketcoder/cmd/program"
	"pocketcoder/handlers"
	"pocketcoder/handlers/channel"
	"pocketcoder/handlers/policy/display"
	"pocketcoder/web/api"
)

const deviceUsage = `
  pocketcoder device add "My phone"                                a new secret topic at https://ntfy.sh
  pocketcoder device add "My phone" https://ntfy.example.org/TOPIC a topic or a UnifiedPush endpoint of your own
  pocketcoder device test DEVICE                                   send a notification and wait for the result

Install the ntfy app (Android, iOS) or open the topic in a browser, and subscribe to the topic that "add" prints. Keep it
secret: with the topic, anyone can read the notifications and press their buttons.

With several accounts, add needs --user. Browsers subscribe to Web Push themselves, over the API.
`

// Device is the command device.
var Device = cli.Group{Name: "device", Usage: deviceUsage, Former: map[string]string{"remove": "delete"},
	Stored: func() any { return &[]listedDevice{} },
	Own: func(r *cli.Records, _ *flag.FlagSet) map[string]cli.Verb {
		d := deviceCommand{r}
		return map[string]cli.Verb{"add": cli.Takes(1, 2, d.add), "test": cli.Takes(1, 1, d.test)}
	}}

type deviceCommand struct{ *cli.Records }

// ntfyServer is the server of a new topic, unless the caller names a URL.
const ntfyServer = "https://ntfy.sh"

func (d deviceCommand) add(ctx context.Context, args []string) error {
	owner, err := cli.Owner(ctx, d.System, d.Given["user"])
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
	id, err := d.Create(ctx, channel.Devices, map[string]any{"user": owner.ID, "name": args[0],
		"push_service": channel.ServiceUnifiedPush, "push_token": address, "is_active": true})
	if err != nil {
		return err
	}
	fmt.Fprintf(d.Env.Stdout, "Device %s gets the notifications of %s.\n", id, display.OneLine(owner.Email, 60))
	if len(args) == 1 {
		fmt.Fprintf(d.Env.Stdout, "Subscribe to this topic in the ntfy app, or open it in a browser. Keep it secret:\n\n  %s\n\n", address)
		d.showQR(address)
	}
	_, err = fmt.Fprintf(d.Env.Stdout, "Try it: %s device test %s\n", program.Name(), id)
	return err
}

// showQR shows a topic as a QR code with an ntfy link, which ntfy's Android app opens.
func (d deviceCommand) showQR(address string) {
	u, err := url.Parse(address)
	file, ok := d.Env.Stdout.(*os.File)
	if err != nil || !ok || !term.IsTerminal(int(file.Fd())) {
		return
	}
	u.Scheme = "ntfy"
	qrterminal.GenerateWithConfig(u.String(), qrterminal.Config{Level: qrterminal.L, Writer: file, HalfBlocks: true,
		QuietZone: 2})
}

// storedDevice is a device with its push token.
type storedDevice struct {
	channel.Device
	Token string `json:"push_token"`
}

// host returns the server of the push service, "" if the token is no URL.
func (d storedDevice) host() string {
	u, err := url.Parse(d.Token)
	if err != nil || d.Service != channel.ServiceUnifiedPush {
		return ""
	}
	return u.Host
}

// listedDevice is a device with the host in place of the push token, which no list shows.
type listedDevice struct{ channel.Device }

func (d *listedDevice) UnmarshalJSON(b []byte) error {
	var s storedDevice
	err := json.Unmarshal(b, &s)
	d.Device, d.Host = s.Device, s.host()
	return err
}

func (d deviceCommand) test(ctx context.Context, args []string) error {
	one, err := client.View[storedDevice](ctx, d.System, channel.Devices, args[0])
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
		_, err = fmt.Fprintf(d.Env.Stdout, "%s accepted the notification; the device should show it now.\n",
			display.OneLine(host, 60))
		return err
	case result.Failed != "":
		return fmt.Errorf("the notification was not sent: %s", display.OneLine(result.Failed, 200))
	}
	return fmt.Errorf("%s has not accepted the notification yet; PocketCoder retries for some minutes",
		display.OneLine(host, 60))
}
