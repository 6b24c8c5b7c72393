package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"pocketcoder/cmd/cli"
	"pocketcoder/cmd/client"
	"pocketcoder/cmd/datadir"
	"pocketcoder/events/log"
	"pocketcoder/projections"
	"pocketcoder/projections/queries"
	"pocketcoder/projections/store"
)

const rebuildUsage = `pocketcoder admin rebuild: compute the read models again, from the first event of the log.

The running system computes new read models from the log alone, compares them with the old ones, and replaces the old ones.
It keeps serving meanwhile.

  pocketcoder admin rebuild
  pocketcoder admin rebuild --prepare    with the new program, while the old one serves: makes the upgrade a short restart

Exit status: 0 when the new read models equal the old ones byte for byte, or are prepared; 1 when they differ or it failed,
2 for wrong usage.
`

// progressTimeout is how long the command waits for the next progress report of a rebuild.
const progressTimeout = time.Minute

func runRebuild(ctx context.Context, env cli.Environment, args []string) error {
	fs := cli.NewFlags(env, "admin rebuild", rebuildUsage)
	data := cli.DataFlag(fs, env)
	prepare := fs.Bool("prepare", false, "before an upgrade: compute the read models of this version beside those of the running version")
	if _, err := cli.Parse(fs, args, 0); err != nil {
		return err
	}
	s, err := client.Connect(ctx, datadir.Dir(*data))
	if err != nil {
		return err
	}
	defer s.Close()
	if *prepare {
		return prepareModels(ctx, env, datadir.Dir(*data).ReadModels(), s.Log)
	}
	return rebuild(ctx, env, s.Conn)
}

// prepareModels computes the read models of this version beside those of the running version.
func prepareModels(ctx context.Context, env cli.Environment, dir string, l *log.Log) error {
	bar, started := progressBar{env: env}, time.Now()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	n, err := projections.Prepare(ctx, dir, l, bar.show)
	bar.end()
	if errors.Is(err, store.ErrPrepared) {
		fmt.Fprintln(env.Stdout, "the read models of this version exist already; there is nothing to prepare")
		return nil
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(env.Stdout, "%d events in %.2f s; stop the old version and start the new one\n", n,
		time.Since(started).Seconds())
	return nil
}

func rebuild(ctx context.Context, env cli.Environment, nc *nats.Conn) error {
	inbox := nc.NewInbox()
	answers, err := nc.SubscribeSync(inbox)
	if err != nil {
		return fmt.Errorf("rebuild: %w", err)
	}
	defer answers.Unsubscribe()
	if err := nc.PublishRequest("query.rebuild", inbox, nil); err != nil {
		return fmt.Errorf("rebuild: %w", err)
	}
	bar := progressBar{env: env}
	for {
		a, err := nextAnswer(ctx, answers)
		if err != nil {
			bar.end()
			return fmt.Errorf("rebuild: %w", err)
		}
		if a.Rebuilt == nil {
			bar.show(a.Done, a.Total)
			continue
		}
		bar.end()
		return report(env, *a.Rebuilt)
	}
}

func nextAnswer(ctx context.Context, answers *nats.Subscription) (a queries.RebuildAnswer, err error) {
	ctx, cancel := context.WithTimeout(ctx, progressTimeout)
	defer cancel()
	m, err := answers.NextMsgWithContext(ctx)
	if err != nil {
		return a, err
	}
	if m.Header.Get("Status") == "503" {
		return a, nats.ErrNoResponders
	}
	if text := m.Header.Get("Error"); text != "" {
		return a, errors.New(text)
	}
	return a, json.Unmarshal(m.Data, &a)
}

func report(env cli.Environment, r queries.RebuildResult) error {
	rate := 0.0
	if r.Seconds > 0 {
		rate = float64(r.Events) / r.Seconds
	}
	fmt.Fprintf(env.Stdout, "%d events in %.2f s: %.0f events/s\n", r.Events, r.Seconds, rate)
	fmt.Fprintf(env.Stdout, "before  %s\nafter   %s\n", r.Before, r.After)
	if r.Before != r.After {
		fmt.Fprintln(env.Stdout, "the new read models DIFFER from the old ones; the new ones are in use")
		return cli.ExitCode(1)
	}
	fmt.Fprintln(env.Stdout, "the read models are the same, byte for byte")
	return nil
}

// progressBar shows progress: a bar on a terminal, else a line for every tenth.
type progressBar struct {
	env   cli.Environment
	tenth uint64
	drawn bool
}

const barWidth = 40

func (b *progressBar) show(done, total uint64) {
	if total == 0 {
		return
	}
	done = min(done, total)
	if b.env.Interactive {
		filled := int(done * barWidth / total)
		fmt.Fprintf(b.env.Stdout, "\r[%s%s] %d/%d", strings.Repeat("=", filled), strings.Repeat(" ", barWidth-filled), done,
			total)
		b.drawn = true
		return
	}
	if tenth := done * 10 / total; tenth > b.tenth {
		b.tenth = tenth
		fmt.Fprintf(b.env.Stdout, "%d of %d events\n", done, total)
	}
}

func (b *progressBar) end() {
	if b.drawn {
		fmt.Fprintln(b.env.Stdout)
	}
}
