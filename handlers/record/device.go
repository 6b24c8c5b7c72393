package record

import (
	"context"
	"net/url"
	"slices"
	"strings"

	"pocketcoder/events"
	"pocketcoder/handlers"
)

// DeviceCollection is the config collection of the devices that get notifications.
const DeviceCollection = "devices"

// ServiceUnifiedPush is the push service of ntfy and of UnifiedPush distributors: the token is a URL.
const ServiceUnifiedPush = "unifiedpush"

// Device is a device as commands list it. It leaves out the push token, because the token is enough to read the
// notifications.
type Device struct {
	ID      string `json:"id"`
	User    string `json:"user"` // id of the account
	Name    string `json:"name"`
	Service string `json:"push_service"`
	Host    string `json:"host,omitempty"` // of the push service, where the token is a URL
	Active  bool   `json:"is_active"`
}

// AddDevice registers an ntfy topic or UnifiedPush endpoint for an account.
type AddDevice struct {
	handlers.Command
	User string `json:"user"` // id of the account
	Name string `json:"name"`
	URL  string `json:"url"`
}

// AddDevice renames a device whose URL the account has already, and activates it again.
func (h *Records) AddDevice(ctx context.Context, c AddDevice) (id string, seq uint64, err error) {
	if _, err := events.ParseID(c.User); err != nil {
		return "", 0, handlers.RefuseField(handlers.Invalid, "user", "user: %v", err)
	}
	if strings.TrimSpace(c.Name) == "" {
		return "", 0, handlers.RefuseField(handlers.Invalid, "name", "A device needs a name, such as \"My phone\".")
	}
	if u, err := url.Parse(c.URL); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" ||
		strings.Trim(u.Path, "/") == "" {
		return "", 0, handlers.RefuseField(handlers.Invalid, "url",
			"The URL must be that of an ntfy topic or a UnifiedPush endpoint, such as https://ntfy.sh/SECRET-TOPIC.")
	}
	return h.Save(ctx, Save{
		Command: c.Command, Collection: DeviceCollection, New: true,
		Set: Fields(map[string]any{"user": c.User, "name": strings.TrimSpace(c.Name), "push_service": ServiceUnifiedPush, "push_token": c.URL, "is_active": true}),
	})
}

// Devices lists the devices of all accounts, by account and name.
func (h *Records) Devices(ctx context.Context) ([]Device, error) {
	type stored struct {
		Device
		Token string `json:"push_token"`
	}
	all, err := All[stored](ctx, h, DeviceCollection)
	if err != nil {
		return nil, err
	}
	list := []Device{}
	for _, record := range all {
		d := record.Value
		d.ID = record.ID
		if u, err := url.Parse(d.Token); err == nil && d.Service == ServiceUnifiedPush {
			d.Host = u.Host
		}
		list = append(list, d.Device)
	}
	slices.SortStableFunc(list, func(a, b Device) int {
		return strings.Compare(a.User+"\x00"+a.Name, b.User+"\x00"+b.Name)
	})
	return list, nil
}
