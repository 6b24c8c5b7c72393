package client

import (
	"context"

	"pocketcoder/handlers/account"
	"pocketcoder/ops/natsconf"
)

// Emails are those of the accounts, by id.
func (s *System) Emails(ctx context.Context) (map[string]string, error) {
	accounts, err := Call[[]account.Account](ctx, s, "user.list", struct{}{})
	emails := map[string]string{}
	for _, a := range accounts {
		emails[a.ID] = a.Email
	}
	return emails, err
}

// EmailOf looks up accounts by id. It asks for them once, and again for an account that is new.
func (s *System) EmailOf(ctx context.Context) func(user string) string {
	var known map[string]string
	return func(user string) string {
		if _, ok := known[user]; !ok && user != string(natsconf.Operator) {
			if known, _ = s.Emails(ctx); known == nil { // without them the ids are shown
				known = map[string]string{}
			}
			known[user] += "" // asked for
		}
		return known[user]
	}
}
