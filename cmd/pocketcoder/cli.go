package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"

	"pocketcoder/handlers"
)

// environment is what surrounds a run of the program.
type environment struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
	interactive    bool // stdin and stdout are a terminal
}

// exitCode ends the program with that status and no message: what there was to say was said.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// errUsage is what wrong arguments end with; the flag set has said what was wrong.
var errUsage = errors.New("wrong usage")

// parse reads the arguments; flags may stand before, between and behind the others, which are returned.
func parse(fs *flag.FlagSet, args []string, most int) ([]string, error) {
	var rest []string
	for {
		if err := fs.Parse(args); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				return nil, err
			}
			return nil, errUsage
		}
		if fs.NArg() == 0 {
			break
		}
		rest, args = append(rest, fs.Arg(0)), fs.Args()[1:]
	}
	if data := fs.Lookup("data"); data != nil && data.Value.String() == "" {
		fmt.Fprintf(fs.Output(), "%s: HOME is not set; name the data directory with --data or POCKETCODER_DATA\n", fs.Name())
		return nil, errUsage
	}
	if len(rest) > most {
		fmt.Fprintf(fs.Output(), "%s: unexpected argument %q\n", fs.Name(), rest[most])
		return nil, errUsage
	}
	return rest, nil
}

// or gives the value of an environment variable, or a default.
func or(env environment, name, otherwise string) string {
	if v := env.getenv(name); v != "" {
		return v
	}
	return otherwise
}

// dataFlag is --data, which every subcommand takes.
func dataFlag(fs *flag.FlagSet, env environment) *string {
	standard := ""
	switch data, home := env.getenv("XDG_DATA_HOME"), env.getenv("HOME"); {
	case data != "":
		standard = filepath.Join(data, "pocketcoder")
	case home != "":
		standard = filepath.Join(home, ".local", "share", "pocketcoder")
	}
	return fs.String("data", or(env, "POCKETCODER_DATA", standard), "data `directory` (POCKETCODER_DATA)")
}

// wrongUsage says what was wrong with the arguments.
func wrongUsage(env environment, format string, args ...any) error {
	fmt.Fprintf(env.stderr, format+"\n", args...)
	return errUsage
}

// printJSON writes a value as indented JSON.
func printJSON(w io.Writer, v any) error {
	body, err := indented(v)
	if err != nil {
		return err
	}
	_, err = w.Write(body)
	return err
}

// indented is a value as JSON for a person, with a newline at its end.
func indented(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(v)
	return b.Bytes(), err
}

// invalidUsage turns the refusal of what makes no sense into wrong usage.
func invalidUsage(env environment, command string, err error) error {
	if r := (handlers.Refused{}); errors.As(err, &r) && r.Code == handlers.Invalid {
		return wrongUsage(env, "%s: %s", command, r.Text)
	}
	return err
}

// hasColours reports whether output has colours: on a terminal, unless NO_COLOR is set (no-color.org).
func hasColours(env environment) bool { return env.interactive && env.getenv("NO_COLOR") == "" }

// rendererOf returns a renderer that shows events on stdout.
func rendererOf(env environment) *renderer {
	return newRenderer(newScreen(env.stdout, env.interactive, hasColours(env)))
}
