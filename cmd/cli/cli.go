// Package cli holds the commands that start the system and those for using it: flags in, text or JSON out, one file
// for each command. It also holds what all commands share: their environment, how arguments are read, wrong usage and
// exit codes.
//
// Promises: wrong usage is explained on stderr and returned as ErrUsage. Every command takes -h.
//
// It must not know how the system is wired, nor how a conversation is shown.
package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/console/render"
	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/policy/display"
)

type Environment struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Getenv         func(string) string
	Interactive    bool // stdin and stdout are a terminal
}

// ExitCode is an error that ends the program with this exit code and no further message.
type ExitCode int

func (e ExitCode) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// ErrUsage is the error for wrong arguments. Its text is already on stderr.
var ErrUsage = errors.New("wrong usage")

// Parse parses the flags in args and returns the other arguments, at most most of them. Flags may come before, between
// and after them.
func Parse(fs *flag.FlagSet, args []string, most int) ([]string, error) {
	var rest []string
	for {
		if err := parseFlags(fs, args); err != nil {
			return nil, err
		}
		if fs.NArg() == 0 {
			break
		}
		rest, args = append(rest, fs.Arg(0)), fs.Args()[1:]
	}
	data, server := fs.Lookup("data"), fs.Lookup("server")
	elsewhere := server != nil && server.Value.String() != ""
	if data != nil && data.Value.String() == "" && !elsewhere {
		return nil, wrongArguments(fs, "HOME is not set; name the data directory with --data or POCKETCODER_DATA")
	}
	if len(rest) > most {
		return nil, wrongArguments(fs, "unexpected argument %q", rest[most])
	}
	return rest, nil
}

// ParseOne is Parse for a command with one argument. It prints missing on stderr if there is none.
func ParseOne(fs *flag.FlagSet, args []string, missing string) (string, error) {
	rest, err := Parse(fs, args, 1)
	if err != nil {
		return "", err
	}
	if len(rest) == 0 {
		return "", wrongArguments(fs, "%s", missing)
	}
	return rest[0], nil
}

// ParseID is ParseOne for an id.
func ParseID(fs *flag.FlagSet, args []string, missing string) (string, error) {
	text, err := ParseOne(fs, args, missing)
	if err != nil {
		return "", err
	}
	id, err := events.ParseID(text)
	if err != nil {
		return "", wrongArguments(fs, "%v", err)
	}
	return id, nil
}

// Variable returns the value of an environment variable, or a default.
func Variable(env Environment, name, otherwise string) string {
	if v := env.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

// DataFlag adds the flag of a command that works on the data directory itself.
func DataFlag(fs *flag.FlagSet, env Environment) *string {
	data := new(string)
	dataVar(fs, env, data)
	return data
}

func dataVar(fs *flag.FlagSet, env Environment, to *string) {
	standard := ""
	switch data, home := env.Getenv("XDG_DATA_HOME"), env.Getenv("HOME"); {
	case data != "":
		standard = filepath.Join(data, "pocketcoder")
	case home != "":
		standard = filepath.Join(home, ".local", "share", "pocketcoder")
	}
	fs.StringVar(to, "data", Variable(env, "POCKETCODER_DATA", standard), "data `directory` (POCKETCODER_DATA)")
}

// ServerFlags adds the flags that say which system a command uses.
func ServerFlags(fs *flag.FlagSet, env Environment) *client.Address {
	at := &client.Address{Token: env.Getenv("POCKETCODER_TOKEN"), Config: configDirectory(env)}
	dataVar(fs, env, (*string)(&at.Data))
	at.Server = env.Getenv("POCKETCODER_SERVER")
	if fs.Lookup("server") != nil { // of the command itself
		return at
	}
	fs.StringVar(&at.Server, "server", at.Server, "`URL` of a system elsewhere, such as "+
		"https://code.example.org, at which you are logged in (POCKETCODER_SERVER)")
	return at
}

// configDirectory returns the directory with the user's configuration of PocketCoder, "" if the environment names none.
func configDirectory(env Environment) string {
	config, home := env.Getenv("XDG_CONFIG_HOME"), env.Getenv("HOME")
	switch {
	case config != "":
		return filepath.Join(config, "pocketcoder")
	case home != "":
		return filepath.Join(home, ".config", "pocketcoder")
	}
	return ""
}

// WrongUsage prints what is wrong with the arguments on stderr, and returns ErrUsage.
func WrongUsage(env Environment, format string, args ...any) error {
	return printUsageError(env.Stderr, format, args...)
}

// wrongArguments is WrongUsage for a command whose flags are parsed.
func wrongArguments(fs *flag.FlagSet, format string, args ...any) error {
	return printUsageError(fs.Output(), fs.Name()+": "+format, args...)
}

func printUsageError(w io.Writer, format string, args ...any) error {
	fmt.Fprintf(w, "pocketcoder: "+format+"\n", args...)
	return ErrUsage
}

// NoVerb reports a verb that a command does not have.
func NoVerb[V any](env Environment, command, verb string, verbs map[string]V) error {
	return WrongUsage(env, "%s: there is no %q; want %s", command, verb,
		strings.Join(slices.Sorted(maps.Keys(verbs)), ", "))
}

func PrintJSON(w io.Writer, v any) error {
	body, err := Indented(v)
	if err != nil {
		return err
	}
	_, err = w.Write(body)
	return err
}

// PrintList prints a list on stdout: as JSON, or as a table (render.Table).
func PrintList[T any](env Environment, asJSON bool, items []T, empty, header string, row func(T) []string) error {
	if asJSON {
		return PrintJSON(env.Stdout, items)
	}
	return render.Table(env.Stdout, items, empty, header, row)
}

// Indented returns a value as indented JSON, with a newline at its end. No character of it acts on a terminal.
func Indented(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(v)
	return display.EscapeJSON(b.Bytes()), err
}

// invalidUsage turns a refusal with the code Invalid into wrong usage of a command. It returns any other error
// unchanged.
func invalidUsage(env Environment, command string, err error) error {
	if r := (handlers.Refused{}); errors.As(err, &r) && r.Code == handlers.Invalid {
		return WrongUsage(env, "%s: %s", command, r.Text)
	}
	return err
}

// hasColours reports whether output has colours: on a terminal, unless NO_COLOR is set (no-color.org).
func hasColours(env Environment) bool { return env.Interactive && env.Getenv("NO_COLOR") == "" }

// newRenderer returns a renderer that shows events on stdout.
func newRenderer(env Environment) *render.Renderer {
	return render.New(render.NewScreen(env.Stdout, env.Interactive, hasColours(env)))
}
