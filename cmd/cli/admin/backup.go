package admin

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"pocketcoder/cmd/backup"
	"pocketcoder/cmd/cli"
	"pocketcoder/cmd/datadir"
)

const backupUsage = `pocketcoder backup DIR: copy the log to a directory, while the system runs or is stopped.

  pocketcoder backup ~/backup                                events and large contents
  pocketcoder backup ~/backup --passphrase-file pass.txt     also secrets and keys, encrypted
  pocketcoder backup ~/backup                                again: adds what is new
  pocketcoder restore ~/backup --data ~/restored             make a data directory of it

A backup holds every event, and every large content that an event names. With a passphrase it also holds the secrets (password
hashes, sessions, provider keys) and the keys (the files of keys/ in the data directory). The passphrase comes from
--passphrase-file, from POCKETCODER_BACKUP_PASSPHRASE or from the terminal. Without it, restored accounts need new passwords.

Not in a backup: the workspace, OpenCode's own sessions, the home directory of commands, the SSH host key, and the read models.
Events hold what people and models wrote, and are not encrypted.

After an interruption, run it again: it resumes where it stopped. Files that were written never change.

Exit status: 0; 1 when it failed, 2 for wrong usage.
`

const restoreUsage = `pocketcoder restore DIR: make a data directory from a backup.

  pocketcoder restore ~/backup --data ~/restored
  pocketcoder restore ~/backup --data ~/restored --passphrase-file pass.txt
  pocketcoder up --data ~/restored

It checks every file of the backup, writes to an empty or new directory only, and reads back what it has stored. A restore that
was interrupted leaves a directory that "up" refuses. Run the restore again.

Without secrets, restored accounts need new passwords: pocketcoder user passwd EMAIL.

Exit status: 0; 1 when it failed, 2 for wrong usage.
`

func Backup(ctx context.Context, env cli.Environment, args []string) error {
	fs := cli.NewFlags(env, "backup", backupUsage)
	data := cli.DataFlag(fs, env)
	external := fs.String("nats", "", "`URL` of the external NATS server, for a system that does not run")
	asJSON := fs.Bool("json", false, "print JSON")
	file := passphraseFlag(fs)
	dir, err := cli.ParseOne(fs, args, "name the directory of the backup")
	if err != nil {
		return err
	}
	to := datadir.Absolute(dir)
	o := backup.Options{Data: datadir.Dir(datadir.Absolute(*data)), NATS: *external, To: to}
	if o.Passphrase, err = passphrase(ctx, env, *file, true, !backup.HasSecrets(to)); err != nil {
		return err
	}
	steps := &steps{env: env}
	o.Progress = steps.show
	began := time.Now()
	result, err := backup.Write(ctx, o)
	steps.end()
	if err != nil {
		return err
	}
	if *asJSON {
		return cli.PrintJSON(env.Stdout, result)
	}
	_, err = fmt.Fprintf(env.Stdout, "backed up %s to %s: %d events, %d of them new, %.1f MiB in %s\n",
		o.Data, to, result.Events, result.NewEvents, float64(result.NewBytes)/(1<<20),
		time.Since(began).Round(time.Millisecond))
	if err == nil && !result.Secrets {
		_, err = fmt.Fprintln(env.Stderr, "secrets and keys were left out; a passphrase puts them in, encrypted: --passphrase-file")
	}
	return err
}

func Restore(ctx context.Context, env cli.Environment, args []string) error {
	fs := cli.NewFlags(env, "restore", restoreUsage)
	data := cli.DataFlag(fs, env)
	without := fs.Bool("without-secrets", false, "leave secrets and keys out")
	asJSON := fs.Bool("json", false, "print JSON")
	file := passphraseFlag(fs)
	dir, err := cli.ParseOne(fs, args, "name the directory of the backup")
	if err != nil {
		return err
	}
	steps := &steps{env: env}
	o := backup.RestoreOptions{
		From: datadir.Absolute(dir), Data: datadir.Dir(datadir.Absolute(*data)), WithoutSecrets: *without, Progress: steps.show,
	}
	o.Command = fmt.Sprintf("pocketcoder restore %s --data %s", o.From, o.Data)
	if backup.HasSecrets(o.From) && !*without {
		if o.Passphrase, err = passphrase(ctx, env, *file, false, false); err != nil {
			return err
		}
	}
	began := time.Now()
	result, err := backup.Restore(ctx, o)
	steps.end()
	if err != nil {
		return err
	}
	if *asJSON {
		return cli.PrintJSON(env.Stdout, result)
	}
	_, err = fmt.Fprintf(env.Stdout, "restored %d events to %s in %s\nstart it with: pocketcoder up --data %[2]s\n",
		result.Events, o.Data, time.Since(began).Round(time.Millisecond))
	if err == nil && !result.Secrets {
		_, err = fmt.Fprintln(env.Stderr, "without secrets: give accounts new passwords with: pocketcoder user passwd EMAIL")
	}
	return err
}

func passphraseFlag(fs *flag.FlagSet) *string {
	return fs.String("passphrase-file", "", "`file` with the passphrase for secrets and keys (or POCKETCODER_BACKUP_PASSPHRASE, or the terminal)")
}

// passphrase returns the passphrase from a file, the environment or the terminal, or "" if there is none.
func passphrase(ctx context.Context, env cli.Environment, file string, optional, isNew bool) (string, error) {
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("--passphrase-file: %w", err)
		}
		p := strings.TrimRight(string(text), "\r\n")
		if p == "" {
			return "", fmt.Errorf("--passphrase-file: %s is empty", file)
		}
		return p, nil
	}
	if p := env.Getenv("POCKETCODER_BACKUP_PASSPHRASE"); p != "" {
		return p, nil
	}
	terminal, ok := env.Stdin.(*os.File)
	if !ok || !term.IsTerminal(int(terminal.Fd())) {
		return "", nil
	}
	prompt := "Passphrase: "
	if optional {
		prompt = "Passphrase for secrets and keys (empty leaves them out): "
	}
	first, err := readHidden(ctx, terminal, env.Stderr, prompt)
	if err != nil || first == "" || !isNew {
		return first, err
	}
	second, err := readHidden(ctx, terminal, env.Stderr, "Repeat the passphrase: ")
	if err == nil && first != second {
		err = errors.New("the two passphrases differ")
	}
	return first, err
}

// steps shows the progress of a long command on stderr: a line that is redrawn on a terminal, else a new line every few
// seconds.
type steps struct {
	env   cli.Environment
	name  string
	shown time.Time
	drawn bool
}

// How often a step is shown.
const (
	onTerminal = 100 * time.Millisecond
	inLog      = 5 * time.Second
)

func (s *steps) show(name string, done, total uint64) {
	if name != s.name {
		s.end()
		s.name, s.shown = name, time.Now()
	}
	every := inLog
	if s.env.Interactive {
		every = onTerminal
	}
	if time.Since(s.shown) < every && !(s.drawn && done == total) {
		return
	}
	s.shown = time.Now()
	if !s.env.Interactive {
		fmt.Fprintf(s.env.Stderr, "%s: %d of %d\n", name, done, total)
		return
	}
	filled := int(min(done, total) * barWidth / max(total, 1))
	fmt.Fprintf(s.env.Stderr, "\r%s [%s%s] %d/%d", name, strings.Repeat("=", filled),
		strings.Repeat(" ", barWidth-filled), done, total)
	s.drawn = true
}

func (s *steps) end() {
	if s.drawn {
		fmt.Fprintln(s.env.Stderr)
	}
	s.drawn = false
}
