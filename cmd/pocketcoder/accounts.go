package main

import (
	"context"
	"fmt"
	"net/url"

	"github.com/nats-io/nats.go"

	"pocketcoder/events/log"
	"pocketcoder/events/secret"
	"pocketcoder/handlers/account"
	"pocketcoder/web/records"
)

// openAccounts opens the secrets and the accounts, and makes the administrator that the environment names. The values
// of llm_keys that administrators stored are redacted in all events from now on.
func openAccounts(ctx context.Context, nc *nats.Conn, o upOptions, log *log.Log, say *progress) (*secret.Store, *account.Accounts, error) {
	secrets, err := secret.Open(ctx, nc, streamOptions(o).Replicas)
	if err != nil {
		return nil, nil, err
	}
	log.Conceal("admin", o.admin[1]) // before those of people: there is room for so many
	if err := records.ConcealKeys(ctx, log, secrets, o.workspace, string(o.data)); err != nil {
		return nil, nil, err
	}
	accounts, err := account.Open(ctx, log, secrets)
	if err != nil {
		return nil, nil, err
	}
	if o.admin[0] == "" {
		return secrets, accounts, nil
	}
	note, err := accounts.EnsureAdmin(ctx, o.admin[0], o.admin[1])
	if err != nil {
		return nil, nil, fmt.Errorf("make the administrator of POCKETCODER_ADMIN_EMAIL: %w", err)
	}
	if note != "" {
		say.note("accounts", "%s", note)
	}
	return secrets, accounts, nil
}

// offerSetup shows the one-time link when nobody could log in.
func (s *parts) offerSetup(ctx context.Context) {
	link, needed, err := s.accounts.Setup(ctx)
	if err != nil {
		s.o.logger.Error("make the setup link", "err", err)
		return
	}
	if needed {
		s.say.setup(s.reached, link)
	}
}

// hosts are the names besides those of loopback under which the web server is asked.
func (o upOptions) hosts() []string {
	if u, err := url.Parse(o.url); err == nil && u.Hostname() != "" {
		return []string{u.Hostname()}
	}
	return nil
}
