package backup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/nats-io/nats.go"

	"pocketcoder/cmd/datadir"
	"pocketcoder/events/archive"
	"pocketcoder/events/atomicfile"
	"pocketcoder/events/log"
	"pocketcoder/events/recovery"
	"pocketcoder/ops/natsconf"
)

type RestoreOptions struct {
	From           string // directory of the backup
	Data           datadir.Dir
	Passphrase     string
	WithoutSecrets bool   // leave secrets and keys out even if the backup holds them
	Command        string // that repeats the restore
	Progress       Progress
}

// restoreOf names an unfinished restore in datadir.Unfinished.
const restoreOf = "restore"

// Restore makes a data directory from a backup.
func Restore(ctx context.Context, o RestoreOptions) (Result, error) {
	r, err := restore(ctx, o)
	if err != nil {
		return r, fmt.Errorf("restore %s to %s: %w", o.From, o.Data, err)
	}
	return r, nil
}

func restore(ctx context.Context, o RestoreOptions) (r Result, err error) {
	m, err := readManifest(o.From)
	if err != nil {
		return r, err
	}
	if m.Complete == nil {
		return r, errors.New("the first run of this backup is unfinished; run it again: pocketcoder backup " + o.From)
	}
	held, err := m.openSecrets(o)
	if err != nil {
		return r, err
	}
	if err := m.checkParts(o); err != nil {
		return r, err
	}
	release, err := begin(o)
	if err != nil {
		return r, err
	}
	defer release()
	if err := m.store(ctx, o, held); err != nil {
		return r, err
	}
	last := m.Complete.Last[log.EventsStream]
	if err := recovery.NoteRestored(string(o.Data), last); err != nil {
		return r, err
	}
	if err := o.Data.Finish("nats", "keys"); err != nil {
		return r, err
	}
	return Result{Directory: string(o.Data), Events: last, Secrets: held != nil}, nil
}

func (m *manifest) openSecrets(o RestoreOptions) (*secrets, error) {
	switch {
	case m.Complete.Secrets == nil || o.WithoutSecrets:
		return nil, nil
	case o.Passphrase == "":
		return nil, errors.New("this backup holds secrets and keys: name the passphrase, or leave them out with --without-secrets")
	}
	return readSecrets(o.From, *m.Complete.Secrets, o.Passphrase)
}

// checkParts reads all files that the restore needs.
func (m *manifest) checkParts(o RestoreOptions) error {
	var total, done uint64
	for _, name := range streams {
		state, _ := m.Streams[name].upTo(m.Complete.Last[name])
		total += state.Messages
	}
	for _, name := range streams {
		_, parts := m.Streams[name].upTo(m.Complete.Last[name])
		for _, p := range parts {
			err := p.check(filepath.Join(o.From, p.File), func(archive.Entry) error {
				done++
				o.Progress("check", done, total)
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// begin locks an empty data directory, or that of an unfinished restore, which it empties.
func begin(o RestoreOptions) (release func(), err error) {
	unfinished, err := o.Data.Unfinished()
	if err != nil {
		return nil, err
	}
	if unfinished == nil || unfinished.What != restoreOf {
		entries, err := os.ReadDir(string(o.Data))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			if e.Name() != "lost+found" {
				return nil, fmt.Errorf("the directory holds %q, and a restore overwrites nothing; name an empty directory, or a new one, with --data", e.Name())
			}
		}
	}
	if err := o.Data.Begin(datadir.UnfinishedCommand{What: restoreOf, Command: o.Command}); err != nil {
		return nil, err
	}
	if release, err = o.Data.OpenUnfinished(); err != nil {
		return nil, err
	}
	for _, part := range []string{"nats", "keys"} {
		if err := os.RemoveAll(o.Data.Path(part)); err != nil {
			release()
			return nil, err
		}
	}
	return release, nil
}

// store writes keys and streams, and reads the streams back.
func (m *manifest) store(ctx context.Context, o RestoreOptions, held *secrets) error {
	if held != nil {
		if err := held.writeKeys(o.Data.Path("keys")); err != nil {
			return err
		}
	}
	keys, err := natsconf.LoadKeys(o.Data.Path("keys"))
	if err != nil {
		return err
	}
	server, nc, err := OpenStore(ctx, o.Data.Path("nats"), keys, true)
	if err != nil {
		return err
	}
	defer server.Close()
	defer nc.Close()
	for _, name := range streams {
		if err := m.storeStream(ctx, o, server, archive.Stream{Conn: nc, Name: name}); err != nil {
			return err
		}
	}
	if held == nil {
		return nil
	}
	return held.store(ctx, server, nc)
}

func (m *manifest) storeStream(ctx context.Context, o RestoreOptions, server *natsconf.Server, s archive.Stream) error {
	account, err := server.App()
	if err != nil {
		return err
	}
	copied := m.Streams[s.Name]
	state, parts := copied.upTo(m.Complete.Last[s.Name])
	step, done := steps[s.Name], uint64(0)
	err = archive.Restore(account, archive.Info{Config: copied.Config, State: state}, nil,
		func(add func(archive.Entry) error) error {
			for _, p := range parts {
				err := p.check(filepath.Join(o.From, p.File), func(e archive.Entry) error {
					done++
					o.Progress(step, done, state.Messages)
					return errors.Join(ctx.Err(), add(e))
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
	if err != nil {
		return err
	}
	info, err := s.Info(ctx)
	if err != nil {
		return err
	}
	if info.State.Last != state.Last || info.State.Messages != state.Messages {
		return fmt.Errorf("read back stream %s: it has %d messages up to %d, not %d up to %d", s.Name, info.State.Messages,
			info.State.Last, state.Messages, state.Last)
	}
	done = 0
	for _, p := range parts {
		got, err := s.Digest(ctx, p.From, p.To, func(archive.Entry) {
			done++
			o.Progress("read back "+step, done, state.Messages)
		})
		if err == nil && got != p.SHA256 {
			err = fmt.Errorf("read back messages %d to %d of stream %s: they are not those of the backup", p.From, p.To, s.Name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *secrets) writeKeys(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for name, body := range s.Keys {
		if name != filepath.Base(name) {
			return fmt.Errorf("the backup names a key %q", name)
		}
		if err := atomicfile.Write(filepath.Join(dir, name), body); err != nil {
			return err
		}
	}
	return nil
}

// store stores the secrets, and reads them back.
func (s *secrets) store(ctx context.Context, server *natsconf.Server, nc *nats.Conn) error {
	account, err := server.App()
	if err != nil {
		return err
	}
	want := archive.NewDigest()
	err = archive.Restore(account, s.Bucket, nil, func(add func(archive.Entry) error) error {
		for _, e := range s.values {
			if err := errors.Join(want.Add(e), add(e)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	got, err := archive.Stream{Conn: nc, Name: secretsStream}.Digest(ctx, s.Bucket.State.First, s.Bucket.State.Last,
		func(archive.Entry) {})
	if err == nil && got != want.String() {
		err = errors.New("read back secrets: they are not those of the backup")
	}
	return err
}
