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
	"pocketcoder/ops/natsconf"
	"pocketcoder/projections"
	"pocketcoder/projections/store"
	"pocketcoder/web/routes"
)

const rebuildUsage = `pocketcoder admin rebuild: compute the read models again, from the first event of the log.

The running system computes new read models from the log alone, compares them with the old ones, and replaces the old ones.
It keeps serving meanwhile.

  pocketcoder admin rebuild
  pocketcoder admin rebuild --prepare    with the new program, while the old one serves: makes the upgrade a short restart

Exit status: 0 when the new read models equal the old ones byte for byte, or are prepared; 1 when they differ or it failed,
2 for wrong usage.
`

func runRebuild(ctx context.Context, env cli.Environment, args []string) error {
	fs := cli.NewFlags(env, "admin rebuild", rebuildUsage)
	at := cli.ServerFlags(fs, env)
	prepare := fs.Bool("prepare", false, "before an upgrade: compute the read models of this version beside those of the running version")
	if _, err := cli.Parse(fs, args, 0); err != nil {
		return err
	}
	s, err := client.Connect(ctx, *at)
	if err != nil {
		return err
	}
	defer s.Close()
	if *prepare && at.Server != "" {
		return cli.WrongUsage(env, "admin rebuild: --prepare works on the data directory of this machine; it takes no --server")
	}
	if *prepare {
		nc, err := connectToLog(at.Data)
		if err != nil {
			return err
		}
		defer nc.Close()
		l, err := log.Attach(nc)
		if err != nil {
			return err
		}
		return prepareModels(ctx, env, at.Data.ReadModels(), l)
	}
	return rebuild(ctx, env, s)
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

// connectToLog connects to the log of the running system.
func connectToLog(data datadir.Dir) (*nats.Conn, error) {
	r, err := data.Running()
	if err != nil {
		return nil, err
	}
	keys, err := natsconf.LoadKeys(data.Path("keys"))
	if err != nil {
		return nil, err
	}
	options, err := keys.Options(natsconf.Core, "pocketcoder cli")
	if err != nil {
		return nil, err
	}
	nc, err := nats.Connect(r.NATS, options...)
	if err != nil {
		return nil, fmt.Errorf("connect to pid %d at %s: %w", r.PID, r.NATS, err)
	}
	return nc, nil
}

func rebuild(ctx context.Context, env cli.Environment, s *client.System) error {
	bar := progressBar{env: env}
	var r routes.Rebuilt
	err := s.Rebuild(ctx, func(body []byte) error {
		var at routes.Rebuilding
		err := json.Unmarshal(body, &at)
		bar.show(at.Done, at.Total)
		return err
	}, &r)
	bar.end()
	if err != nil {
		return fmt.Errorf("rebuild: %w", err)
	}
	return report(env, r)
}

func report(env cli.Environment, r routes.Rebuilt) error {
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
