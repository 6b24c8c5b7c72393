package cli

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
)

// internalFlag begins the help of a flag that only our own programs use. -h hides it.
const internalFlag = "internal: "

// FormerFlag accepts a flag by the name that it had before, too.
func FormerFlag(fs *flag.FlagSet, former, name string) {
	fs.Var(fs.Lookup(name).Value, former, internalFlag+"former name of --"+name)
}

type flagGroup struct {
	name  string
	flags []string
}

// output is what a flag set writes to: stderr, but stdout with the help that a person asks for.
type output struct {
	io.Writer
	help io.Writer
}

// NewFlags returns the flag set of a command. -h prints the usage text and the flags on stdout.
func NewFlags(env Environment, name, text string) *flag.FlagSet {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(output{env.Stderr, env.Stdout})
	setUsage(fs, text)
	return fs
}

// setUsage sets the text that -h prints before the flags.
func setUsage(fs *flag.FlagSet, text string) {
	fs.Usage = func() {
		fmt.Fprint(fs.Output(), text)
		printFlags(fs, "\nFlags:\n", func(*flag.Flag) bool { return true })
	}
}

// parseFlags parses the flags before the first argument. Package flag would print the help on stderr, also below each
// error.
func parseFlags(fs *flag.FlagSet, args []string) error {
	usage, to := fs.Usage, fs.Output()
	fs.Usage = func() {}
	fs.SetOutput(io.Discard)
	err := fs.Parse(args)
	fs.Usage = usage
	fs.SetOutput(to)
	switch out, ok := to.(output); {
	case err == nil:
		return nil
	case !errors.Is(err, flag.ErrHelp):
		return wrongArguments(fs, "%v; see pocketcoder %s -h", err, fs.Name())
	case ok:
		fs.SetOutput(out.help)
		usage()
		fs.SetOutput(to)
	}
	return err
}

// setFromEnvironment sets flags from environment variables, such as cpu-time from POCKETCODER_CPU_TIME.
func setFromEnvironment(fs *flag.FlagSet, env Environment, names ...string) error {
	for _, name := range names {
		variable := "POCKETCODER_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		if value := env.Getenv(variable); value != "" {
			if err := fs.Set(name, value); err != nil {
				return fmt.Errorf("%s: %w", variable, err)
			}
		}
	}
	return nil
}

// groupFlags makes -h print the first group only, and -h all every group. A flag without a group is in the last one.
func groupFlags(fs *flag.FlagSet, text string, all bool, groups []flagGroup) {
	fs.Usage = func() {
		fmt.Fprint(fs.Output(), text)
		shown := map[string]bool{}
		for i, g := range groups {
			if i > 0 && !all {
				break
			}
			printFlags(fs, "\n"+g.name+":\n", func(f *flag.Flag) bool {
				in := !shown[f.Name] && slices.Contains(g.flags, f.Name) || i == len(groups)-1 && !shown[f.Name]
				shown[f.Name] = shown[f.Name] || in
				return in
			})
		}
		if !all {
			var others []string
			for _, g := range groups[1:] {
				others = append(others, strings.ToLower(g.name))
			}
			fmt.Fprintf(fs.Output(), "\nMore flags (%s): pocketcoder %s -h all\n", strings.Join(others, ", "), fs.Name())
		}
	}
}

// helpAll removes the word "all" after -h from the arguments, and reports whether it was there.
func helpAll(args []string) (rest []string, all bool) {
	i := slices.IndexFunc(args, func(a string) bool {
		return slices.Contains([]string{"-h", "--h", "-help", "--help"}, a)
	})
	if i < 0 || i+1 >= len(args) || args[i+1] != "all" {
		return args, false
	}
	return slices.Delete(slices.Clone(args), i+1, i+2), true
}

// printFlags prints the selected flags below a title, without internal ones.
func printFlags(fs *flag.FlagSet, title string, in func(*flag.Flag) bool) {
	shown, any := flag.NewFlagSet("", flag.ContinueOnError), false
	shown.SetOutput(fs.Output())
	fs.VisitAll(func(f *flag.Flag) {
		if in(f) && !strings.HasPrefix(f.Usage, internalFlag) {
			shown.Var(f.Value, f.Name, f.Usage)
			shown.Lookup(f.Name).DefValue = f.DefValue
			any = true
		}
	})
	if any {
		fmt.Fprint(fs.Output(), title)
		shown.PrintDefaults()
	}
}
