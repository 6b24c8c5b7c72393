package cli

import (
	"context"
	"flag"
	"maps"

	"pocketcoder/cmd/client"
)

// Verb is a subcommand, such as add in "user add".
type Verb struct {
	least, most int                  // number of its arguments
	check       func([]string) error // of the arguments, without the system; nil for none
	run         func(context.Context, []string) error
	former      bool // a former name, which no list of verbs has
}

// Takes returns the verb that calls run with least to most arguments.
func Takes(least, most int, run func(ctx context.Context, args []string) error) Verb {
	return Verb{least: least, most: most, run: run}
}

// Former returns a verb under a name that it had before. Scripts may still use it.
func Former(v Verb) Verb {
	v.former = true
	return v
}

// RunVerb parses the arguments of a command, connects to the running system, and runs the verb that the first argument
// names.
func RunVerb(ctx context.Context, env Environment, fs *flag.FlagSet, args []string, at *client.Address,
	verbs map[string]Verb, connected func(*client.System)) error {
	most := 0
	for _, v := range verbs {
		most = max(most, v.most)
	}
	rest, err := Parse(fs, args, 1+most)
	if err != nil {
		return err
	}
	if len(rest) == 0 {
		fs.Usage()
		return ErrUsage
	}
	v, ok := verbs[rest[0]]
	if !ok {
		shown := maps.Clone(verbs)
		maps.DeleteFunc(shown, func(_ string, v Verb) bool { return v.former })
		return NoVerb(env, fs.Name(), rest[0], shown)
	}
	if v.run == nil {
		return WrongUsage(env, "%s: flags of %s follow it: pocketcoder %[1]s %[2]s …", fs.Name(), rest[0])
	}
	if n := len(rest) - 1; n < v.least || n > v.most {
		return WrongUsage(env, "%s %s: wrong number of arguments; see pocketcoder %[1]s -h", fs.Name(), rest[0])
	}
	if v.check != nil {
		if err := v.check(rest[1:]); err != nil {
			return WrongUsage(env, "%s %s: %v", fs.Name(), rest[0], err)
		}
	}
	s, err := client.Connect(ctx, *at)
	if err != nil {
		return err
	}
	defer s.Close()
	connected(s)
	return invalidUsage(env, fs.Name(), v.run(ctx, rest[1:]))
}
