package admin

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"

	"pocketcoder/cmd/cli"
	"pocketcoder/cmd/client"
	"pocketcoder/cmd/datadir"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/record"
)

// verb is a subcommand, such as add in "user add": the number of its arguments, and its function.
type verb struct {
	least, most int
	run         func(context.Context, []string) error
}

// runVerb parses the arguments of a command, connects to the running system, and runs the verb that the first argument
// names.
func runVerb(ctx context.Context, env cli.Environment, fs *flag.FlagSet, args []string, data *string,
	verbs map[string]verb, connected func(*client.System)) error {
	rest, err := cli.Parse(fs, args, 3)
	if err != nil {
		return err
	}
	if len(rest) == 0 {
		fs.Usage()
		return cli.ErrUsage
	}
	v, ok := verbs[rest[0]]
	if !ok {
		return cli.WrongUsage(env, "%s: there is no %q; want %s", fs.Name(), rest[0],
			strings.Join(slices.Sorted(maps.Keys(verbs)), ", "))
	}
	if n := len(rest) - 1; n < v.least || n > v.most {
		return cli.WrongUsage(env, "%s %s: wrong number of arguments; see pocketcoder %[1]s -h", fs.Name(), rest[0])
	}
	s, err := client.Connect(ctx, datadir.Dir(*data))
	if err != nil {
		return err
	}
	defer s.Close()
	connected(s)
	err = v.run(ctx, rest[1:])
	return cli.InvalidUsage(env, fs.Name(), err)
}

// owner returns the account with an email, or the only account that a person can log in with.
func owner(ctx context.Context, s *client.System, email string) (account.Account, error) {
	if email != "" {
		return findAccount(ctx, s, email)
	}
	all, err := accounts(ctx, s)
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

// ownedBy returns a list of records with owners, and the emails of the accounts by id.
func ownedBy[T any](ctx context.Context, s *client.System,
	command string) (list []T, emails map[string]string, err error) {
	if emails, err = s.Emails(ctx); err != nil {
		return nil, nil, err
	}
	list, err = client.Call[[]T](ctx, s, command, struct{}{})
	return list, emails, err
}

func removeRecord(ctx context.Context, s *client.System, collection, id string) error {
	return s.Do(ctx, "record.delete", record.Delete{Command: client.NewCommand(), Collection: collection, Record: id})
}
