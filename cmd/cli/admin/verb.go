package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"pocketcoder/cmd/client"
	"pocketcoder/handlers/account"
)

// owner returns the account with an email, or the only account that a person can log in with.
func owner(ctx context.Context, s *client.System, email string) (account.Account, error) {
	if email != "" {
		return findAccount(ctx, s, email)
	}
	all, err := s.Accounts(ctx)
	if err != nil {
		return account.Account{}, err
	}
	people := slices.DeleteFunc(all, func(a account.Account) bool { return a.Disabled || a.Role == account.Agent })
	switch len(people) {
	case 0:
		return account.Account{}, errors.New("there is no account yet; make the first with: pocketcoder user add EMAIL --role admin")
	case 1:
		return people[0], nil
	}
	return account.Account{}, fmt.Errorf("there are %d accounts; name one with --user EMAIL", len(people))
}

// ownedBy returns the records of a collection with owners, and the emails of the accounts by id.
func ownedBy[T any](ctx context.Context, s *client.System, collection,
	sort string) (list []T, emails map[string]string, err error) {
	if emails, err = s.Emails(ctx); err != nil {
		return nil, nil, err
	}
	list, err = client.List[T](ctx, s, collection, client.Select{Sort: sort})
	return list, emails, err
}
