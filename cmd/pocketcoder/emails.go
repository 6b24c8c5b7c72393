package main

import (
	"context"

	"pocketcoder/handlers/account"
	"pocketcoder/ops/natsconf"
)

// emails are those of the accounts, by id.
func (s *system) emails(ctx context.Context) (map[string]string, error) {
	accounts, err := give[[]account.Account](ctx, s, "user.list", struct{}{})
	emails := map[string]string{}
	for _, a := range accounts {
		emails[a.ID] = a.Email
	}
	return emails, err
}

// emailOf looks up accounts by id. It asks for them once, and again for an account that is new.
func (s *system) emailOf(ctx context.Context) func(user string) string {
	var known map[string]string
	return func(user string) string {
		if _, ok := known[user]; !ok && user != string(natsconf.Operator) {
			if known, _ = s.emails(ctx); known == nil { // without them the ids are shown
				known = map[string]string{}
			}
			known[user] += "" // asked for
		}
		return known[user]
	}
}
