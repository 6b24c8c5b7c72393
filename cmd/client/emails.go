package client

import (
	"context"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers/account"
)

// Accounts lists the accounts that the caller may see, the oldest first.
func (s *System) Accounts(ctx context.Context) ([]account.Account, error) {
	all, err := List[struct {
		account.Account
		Created string `json:"created"`
	}](ctx, s, "users", Select{Sort: "created,id"})
	list := []account.Account{}
	for _, a := range all {
		a.Account.Created, _ = time.Parse(events.TimeFormat, a.Created) // every record has such a time
		list = append(list, a.Account)
	}
	return list, err
}

// Emails are those of the accounts that the caller may see, by id.
func (s *System) Emails(ctx context.Context) (map[string]string, error) {
	accounts, err := s.Accounts(ctx)
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
		if _, ok := known[user]; !ok && user != account.OperatorID {
			if known, _ = s.Emails(ctx); known == nil { // without them the ids are shown
				known = map[string]string{}
			}
			known[user] += "" // asked for
		}
		return known[user]
	}
}
