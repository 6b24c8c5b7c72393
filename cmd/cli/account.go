package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"pocketcoder/cmd/client"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/policy/display"
)

// FindAccount returns the account with an email.
func FindAccount(ctx context.Context, s *client.System, email string) (account.Account, error) {
	all, err := s.Accounts(ctx)
	if err != nil {
		return account.Account{}, err
	}
	i := slices.IndexFunc(all, func(a account.Account) bool {
		return strings.EqualFold(a.Email, strings.TrimSpace(email))
	})
	if i < 0 {
		return account.Account{}, fmt.Errorf("there is no account %s", display.Exact(email))
	}
	return all[i], nil
}

// Owner returns the account with an email, or the only account that a person can log in with.
func Owner(ctx context.Context, s *client.System, email string) (account.Account, error) {
	if email != "" {
		return FindAccount(ctx, s, email)
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
