package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"

	"pocketcoder/cmd/datadir"
	"pocketcoder/events"
	"pocketcoder/events/archive"
	"pocketcoder/events/log"
	"pocketcoder/events/log/blob"
	"pocketcoder/events/recovery"
	"pocketcoder/events/secret"
	"pocketcoder/ops/expect"
	"pocketcoder/ops/natsconf"
)

const (
	canary     = "$argon2id$canary"
	passphrase = "correct horse battery staple"
)

func init() { workFactor = 10 }

// installation is a data directory with a log that is served.
type installation struct {
	datadir.Dir
	t      testing.TB
	log    *log.Log
	nc     *nats.Conn
	server *natsconf.Server
}

// running makes an installation that looks as if "up" ran on it, with events, blobs and secrets.
func running(t testing.TB) *installation {
	t.Helper()
	i := &installation{Dir: datadir.Dir(filepath.Join(expect.MemoryDir(t), "data")), t: t}
	release, err := i.Open()
	if err != nil {
		t.Fatal(err)
	}
	release()
	i.serve()
	i.append(700)
	i.appendLarge("first")
	if _, err := i.log.Blobs.Put(t.Context(), "exec1.stdout",
		strings.NewReader(strings.Repeat("output ", 60_000))); err != nil {
		t.Fatal(err)
	}
	secrets, err := secret.Open(t.Context(), i.nc, 1)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 5 {
		err = errors.Join(err, secrets.Put(t.Context(), fmt.Sprint("password.alice", n), []byte(canary)),
			secrets.Put(t.Context(), "session.now", fmt.Append(nil, n)))
	}
	if err := errors.Join(err, secrets.Delete(t.Context(), "password.alice0")); err != nil {
		t.Fatal(err)
	}
	return i
}

// serve starts a server on the installation, as "up" does.
func (i *installation) serve() {
	i.t.Helper()
	is := is.New(i.t)
	keys, err := natsconf.LoadKeys(i.Path("keys"))
	is.NoErr(err)
	i.server, err = natsconf.Start(i.t.Context(), natsconf.Config{
		Name: "test", Listen: "127.0.0.1:0", StoreDir: i.Path("nats"), Keys: keys.Public, Pools: []string{"default"}, Bulk: true,
	})
	is.NoErr(err)
	i.t.Cleanup(i.server.Close)
	is.NoErr(i.Announce(datadir.Running{PID: os.Getpid(), NATS: i.server.ClientURL()}))
	options, err := keys.Options(natsconf.Core, "test")
	is.NoErr(err)
	i.nc, err = nats.Connect(i.server.ClientURL(), options...)
	is.NoErr(err)
	i.t.Cleanup(i.nc.Close)
	i.log, err = log.Open(i.t.Context(), i.nc, log.DefaultOptions, secret.NewRedactor())
	is.NoErr(err)
}

// stop ends the server.
func (i *installation) stop() {
	i.nc.Close()
	i.server.Close()
	os.Remove(i.Path("running.json"))
}

func (i *installation) append(n int) {
	i.t.Helper()
	var list []events.Event
	for k := range n {
		e, err := events.New("c1", events.ActorSystem, events.MessageSubmitted{Message: fmt.Sprint("message ", k)})
		is.New(i.t).NoErr(err)
		list = append(list, e)
	}
	_, err := i.log.AppendAll(i.t.Context(), list)
	is.New(i.t).NoErr(err)
}

func (i *installation) appendLarge(text string) {
	i.t.Helper()
	e, err := events.New("c1", events.ActorSystem,
		events.MessageSubmitted{Message: strings.Repeat(text, log.MaxInline/len(text)+1)})
	is.New(i.t).NoErr(err)
	_, err = i.log.Append(i.t.Context(), e)
	is.New(i.t).NoErr(err)
}

// digest is that of events.
func (i *installation) digest(to uint64) string {
	i.t.Helper()
	d, err := archive.Stream{Conn: i.nc, Name: log.EventsStream}.Digest(i.t.Context(), 1, to, func(archive.Entry) {})
	is.New(i.t).NoErr(err)
	return d
}

func quiet(string, uint64, uint64) {}

func (i *installation) options(to string) Options {
	return Options{Data: i.Dir, To: to, Passphrase: passphrase, Progress: quiet}
}

// restored restores a backup to a new directory and serves it.
func restored(t testing.TB, from string) *installation {
	t.Helper()
	i := &installation{Dir: datadir.Dir(filepath.Join(expect.MemoryDir(t), "restored")), t: t}
	_, err := Restore(t.Context(), RestoreOptions{From: from, Data: i.Dir, Passphrase: passphrase, Progress: quiet})
	is.New(t).NoErr(err)
	release, err := i.Open() // "up" takes it
	is.New(t).NoErr(err)
	release()
	i.serve()
	return i
}

// contents are the files below a directory.
func contents(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	is.New(t).NoErr(fs.WalkDir(os.DirFS(dir), ".", func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			body, readErr := os.ReadFile(filepath.Join(dir, path))
			all[path], err = string(body), readErr
		}
		return err
	}))
	return all
}

func TestABackupOfABusySystemIsRestoredByteForByte(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	fault := expect.CountFault(t, "events backed up", "restored")
	i, to := running(t), filepath.Join(expect.MemoryDir(t), "backup")
	o := i.options(to)
	o.maxPart = 64 << 10
	write := func() Result {
		var begin sync.Once
		var writing sync.WaitGroup
		o.Progress = func(string, uint64, uint64) {
			begin.Do(func() { // the backup knows its last event, and others follow
				i.append(50)
				writing.Go(func() {
					for n := range 20 {
						i.append(50)
						i.appendLarge(fmt.Sprint("while the backup runs ", n))
					}
				})
			})
		}
		result, err := Write(t.Context(), o)
		is.NoErr(err)
		writing.Wait()
		return result
	}
	first := write()
	is.True(first.Secrets)
	is.Equal(first.Events, uint64(701))
	is.Equal(first.NewEvents, first.Events)
	before := contents(t, to)
	second := write()
	is.Equal(second.Events, uint64(701+50+20*51))
	is.Equal(second.NewEvents, second.Events-first.Events)
	after := contents(t, to)
	for name, body := range before {
		if strings.HasSuffix(name, ".s2") {
			is.True(after[name] == body) // what was written never changes
		}
	}
	seed := contents(t, i.Path("keys"))["core.nk"]
	for _, body := range after {
		is.True(!strings.Contains(body, canary) && !strings.Contains(body, strings.TrimSpace(seed)))
	}

	r := restored(t, to)
	last, err := r.log.Last(t.Context())
	is.NoErr(err)
	is.Equal(last, second.Events)
	guard, err := recovery.Open(string(r.Dir), slog.New(slog.DiscardHandler))
	is.NoErr(err)
	is.Equal(guard.Uncertain(), last+1) // nothing says what happened since
	is.Equal(r.digest(last), i.digest(last))
	n, large := uint64(0), 0
	_, err = r.log.Fold(t.Context(), events.AllEvents, 0, func(e events.Event) error {
		if n++; len(e.Data) > log.MaxInline {
			large++
		}
		return e.Malformed // no blob is missing
	})
	is.NoErr(err)
	is.Equal(n, last)
	is.True(large > 1)
	secrets, err := secret.Open(t.Context(), r.nc, 1)
	is.NoErr(err)
	for key, want := range map[string]string{"password.alice0": "", "password.alice1": canary, "session.now": "4"} {
		value, _, err := secrets.Get(t.Context(), key)
		is.NoErr(err)
		is.Equal(string(value), want) // key
	}
	bucket, err := archive.Stream{Conn: r.nc, Name: secretsStream}.Info(t.Context())
	is.NoErr(err)
	is.Equal(bucket.State.Messages, uint64(5)) // without the mark of what was deleted
	is.Equal(contents(t, r.Path("keys")), contents(t, i.Path("keys")))
	r.append(1)
	next, err := r.log.Last(t.Context())
	is.NoErr(err)
	is.Equal(next, last+1)
	third, err := Write(t.Context(), r.options(to)) // the restored system goes on with the same backup
	is.NoErr(err)
	is.Equal(third.NewEvents, uint64(1))
	fault.Tried()
	fault.Saw(int(second.Events), int(n))
}

func TestASystemWithoutEventsIsRestoredToo(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	i, to := &installation{Dir: datadir.Dir(filepath.Join(expect.MemoryDir(t), "data")), t: t}, expect.MemoryDir(t)
	release, err := i.Open()
	is.NoErr(err)
	release()
	i.serve()
	_, err = secret.Open(t.Context(), i.nc, 1)
	is.NoErr(err)
	_, err = Write(t.Context(), i.options(to))
	is.NoErr(err)
	r := restored(t, to)
	r.append(1)
	last, err := r.log.Last(t.Context())
	is.NoErr(err)
	is.Equal(last, uint64(1))
}

func TestAStoppedSystemAndAnExternalServerAreBackedUpToo(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	i, to := running(t), expect.MemoryDir(t)
	os.Remove(i.Path("running.json"))
	o := i.options(to)
	o.NATS = i.server.ClientURL()
	result, err := Write(t.Context(), o)
	is.NoErr(err)
	is.Equal(result.Events, uint64(701))
	i.append(1)
	i.stop()
	result, err = Write(t.Context(), i.options(to))
	is.NoErr(err)
	is.Equal(result.NewEvents, uint64(1))
	result, err = Write(t.Context(), i.options(to))
	is.NoErr(err)
	is.Equal(result.NewEvents, uint64(0))
	release, err := i.Open()
	is.NoErr(err)
	defer release()
	_, err = Write(t.Context(), i.options(to))
	is.True(err != nil) // another process has it
	expect.Contains(t, err.Error(), "it is in use by another process")
}

func TestWithoutAPassphraseSecretsAndKeysAreLeftOut(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	i, to := running(t), expect.MemoryDir(t)
	o := i.options(to)
	o.Passphrase = ""
	result, err := Write(t.Context(), o)
	is.NoErr(err)
	is.True(!result.Secrets)
	for name, body := range contents(t, to) {
		is.True(!strings.HasSuffix(name, ".age") && !strings.Contains(body, canary))
	}
	r := restored(t, to)
	is.True(contents(t, r.Path("keys"))["core.nk"] != contents(t, i.Path("keys"))["core.nk"]) // new ones

	_, err = Write(t.Context(), i.options(to)) // from now on with secrets
	is.NoErr(err)
	_, err = Write(t.Context(), o)
	is.True(err != nil)
	expect.Contains(t, err.Error(), "this backup holds secrets and keys, and without its passphrase they would be older than the events")
	o.Passphrase = "another"
	_, err = Write(t.Context(), o)
	is.True(errors.Is(err, errPassphrase))
	d := datadir.Dir(filepath.Join(t.TempDir(), "new"))
	for given, want := range map[string]string{"": "name the passphrase, or leave them out with --without-secrets",
		"another": "the passphrase does not open the secrets"} {
		_, err = Restore(t.Context(), RestoreOptions{From: to, Data: d, Passphrase: given, Progress: quiet})
		is.True(err != nil)
		expect.Contains(t, err.Error(), want)
	}
	_, err = os.Stat(string(d))
	is.True(errors.Is(err, fs.ErrNotExist)) // nothing was written
}

func TestADamagedBackupIsRefusedBeforeAnythingIsWritten(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	i, to := running(t), expect.MemoryDir(t)
	_, err := Write(t.Context(), i.options(to))
	is.NoErr(err)
	d := datadir.Dir(filepath.Join(t.TempDir(), "new"))
	for name, body := range contents(t, to) {
		for _, damaged := range []string{body[:len(body)-1], body[:len(body)/2] + string(body[len(body)/2]^1) +
			body[len(body)/2+1:], ""} {
			is.NoErr(os.WriteFile(filepath.Join(to, name), []byte(damaged), 0o600))
			if name == manifestName && strings.HasSuffix(damaged, "}") { // only its last newline is gone
				continue
			}
			_, err := Restore(t.Context(), RestoreOptions{From: to, Data: d, Passphrase: passphrase, Progress: quiet})
			is.True(err != nil) // name
		}
		is.NoErr(os.WriteFile(filepath.Join(to, name), []byte(body), 0o600))
	}
	_, err = os.Stat(string(d))
	is.True(errors.Is(err, fs.ErrNotExist))
	restored(t, to) // whole again
}

func TestAFileOfABackupThatIsNoRegularFileIsRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	i, to := running(t), t.TempDir()
	_, err := Write(t.Context(), i.options(to))
	is.NoErr(err)
	names, err := os.ReadDir(to)
	is.NoErr(err)
	is.True(len(names) >= 4) // the manifest, parts of two streams, and secrets
	other := filepath.Join(t.TempDir(), "other")
	for _, entry := range names {
		path := filepath.Join(to, entry.Name())
		is.NoErr(os.Rename(path, other))
		for _, replace := range []func() error{
			func() error { return syscall.Mkfifo(path, 0o600) },
			func() error { return os.Symlink("/dev/zero", path) },
		} {
			is.NoErr(replace())
			d := datadir.Dir(filepath.Join(t.TempDir(), "data"))
			_, err := Restore(t.Context(), RestoreOptions{From: to, Data: d, Passphrase: passphrase, Progress: quiet})
			expect.Contains(t, fmt.Sprint(err), entry.Name()+" is not a regular file")
			is.True(!exists(string(d)))
			is.NoErr(os.Remove(path))
		}
		is.NoErr(os.Rename(other, path))
	}
}

func TestRestoreOverwritesNothing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	i, to := running(t), expect.MemoryDir(t)
	_, err := Write(t.Context(), i.options(to))
	is.NoErr(err)
	i.stop()
	before := contents(t, string(i.Dir))
	_, err = Restore(t.Context(), RestoreOptions{From: to, Data: i.Dir, Passphrase: passphrase, Progress: quiet})
	is.True(err != nil)
	expect.Contains(t, err.Error(), "a restore overwrites nothing; name an empty directory")
	is.Equal(len(contents(t, string(i.Dir))), len(before))
	for name, body := range contents(t, string(i.Dir)) {
		is.True(body == before[name]) // name
	}
}

func TestABackupIsOfOneSystem(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	i, other, to := running(t), running(t), expect.MemoryDir(t)
	_, err := Write(t.Context(), i.options(to))
	is.NoErr(err)
	other.append(1)
	before := contents(t, to)
	_, err = Write(t.Context(), other.options(to))
	is.True(err != nil)
	expect.Contains(t, err.Error(), "event #701 of the backup is not that of this system")
	is.Equal(contents(t, to), before)
	foreign := t.TempDir()
	is.NoErr(os.WriteFile(filepath.Join(foreign, "letter.txt"), nil, 0o600))
	_, err = Write(t.Context(), i.options(foreign))
	is.True(err != nil)
	expect.Contains(t, err.Error(), `the directory holds "letter.txt" and no backup`)
}

// A stream that lost its directory is created again, and its sequences begin at 1. A killed run leaves the old copy
// complete.
func TestAStreamThatBeganAnewIsCopiedWhole(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	i, to := running(t), filepath.Join(expect.MemoryDir(t), "backup")
	_, err := Write(t.Context(), i.options(to))
	is.NoErr(err)
	i.stop()
	is.NoErr(os.RemoveAll(i.Path("nats", "jetstream", "APP", "streams", "OBJ_BLOBS")))
	i.serve()
	stored, err := i.log.Blobs.Put(t.Context(), "exec2.stdout", strings.NewReader(strings.Repeat("other ", 200_000)))
	is.NoErr(err)
	before := contents(t, to)
	o := i.options(to)
	ctx, cancel := context.WithCancel(t.Context())
	o.Progress = func(step string, _, _ uint64) {
		if step == steps[blob.Stream] {
			cancel()
		}
	}
	_, err = Write(ctx, o)
	is.True(errors.Is(err, context.Canceled))
	for name, body := range before {
		is.Equal(contents(t, to)[name], body)
	}
	_, err = Write(t.Context(), i.options(to))
	is.NoErr(err)
	r := restored(t, to)
	content, err := r.log.Blobs.Open(t.Context(), stored.Name)
	is.NoErr(err)
	got, err := io.ReadAll(content)
	is.NoErr(errors.Join(err, content.Close()))
	is.Equal(len(got), 1_200_000)
	_, err = Write(t.Context(), i.options(to)) // the next run adds to the new copy
	is.NoErr(err)
	i.appendLarge("second")
	_, err = Write(t.Context(), i.options(to))
	is.NoErr(err)
	restored(t, to)
}

// The chunks of a content that is offloaded while a backup is written are gone; the backup then says where its file is.
func TestAContentThatIsOffloadedDuringABackupIsFound(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	i, to, dir := running(t), expect.MemoryDir(t), t.TempDir()
	large := strings.Repeat("f", 9<<20) // more than what is read at once
	for n := range 3 {
		_, err := i.log.Blobs.Put(t.Context(), fmt.Sprint("filler", n, ".stdout"), strings.NewReader(large))
		is.NoErr(err)
	}
	text := strings.Repeat("output\n", 60_000)
	stored, err := i.log.Blobs.Put(t.Context(), "exec9.stdout", strings.NewReader(text))
	is.NoErr(err)
	o := i.options(to)
	var offload sync.Once
	o.Progress = func(step string, _, _ uint64) {
		if step == steps[blob.Stream] {
			offload.Do(func() {
				moved, err := i.log.Blobs.Offload(t.Context(), stored.Name, dir)
				is.NoErr(err)
				is.True(moved)
			})
		}
	}
	_, err = Write(t.Context(), o)
	is.NoErr(err)
	content, err := restored(t, to).log.Blobs.Open(t.Context(), stored.Name)
	is.NoErr(err)
	got, err := io.ReadAll(content)
	is.NoErr(errors.Join(err, content.Close()))
	is.Equal(string(got) == text, true)
}

func TestABackupWithTheTextOfAnErasedChatIsNotContinued(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	i, to := running(t), expect.MemoryDir(t)
	_, err := Write(t.Context(), i.options(to))
	is.NoErr(err)
	e, err := events.New("c1", events.ActorSystem, events.ChatErased{})
	is.NoErr(err)
	_, err = i.log.Append(t.Context(), e)
	is.NoErr(err)
	before := contents(t, to)
	_, err = Write(t.Context(), i.options(to))
	is.True(err != nil)
	expect.Contains(t, err.Error(), "event #702 says that a chat was erased, and this backup was begun before and still holds its text")
	is.Equal(contents(t, to), before)
	_, err = Write(t.Context(), i.options(expect.MemoryDir(t))) // a new one has nothing to hide
	is.NoErr(err)
}

// A process that is killed at any step leaves a backup, or a data directory, that the next run completes.
func TestAKilledBackupAndRestoreAreCompletedByTheNextRun(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	fault := expect.CountFault(t, "completed by the next run")
	i, to := running(t), filepath.Join(expect.MemoryDir(t), "backup")
	want := i.digest(701)
	i.stop()
	d := datadir.Dir(filepath.Join(expect.MemoryDir(t), "restored"))
	var parts int
	steps := 0
	for _, step := range []string{"events", "large contents", "secrets"} {
		steps++
		killed(t, "backup", step, i.Dir, to)
		_, err := Restore(t.Context(), RestoreOptions{From: to, Data: d, Passphrase: passphrase, Progress: quiet})
		is.True(err != nil)
		expect.Contains(t, err.Error(), "the first run of this backup is unfinished")
		now := len(contents(t, to))
		is.True(now > parts) // the next run went on
		parts = now
		fault.Tried()
	}
	result, err := Write(t.Context(), i.options(to))
	is.NoErr(err)
	is.Equal(result.NewEvents, uint64(0)) // the killed runs stored them
	for name := range contents(t, to) {
		is.True(!strings.HasPrefix(name, ".new-"))
	}
	for _, step := range []string{"events", "read back events", "large contents", "read back large contents"} {
		steps++
		killed(t, "restore", step, d, to)
		_, err := d.Open()
		is.True(err != nil) // "up" does not take it
		expect.Contains(t, err.Error(), "the restore of it is unfinished; run it again: pocketcoder restore")
		fault.Tried()
	}
	_, err = Restore(t.Context(), RestoreOptions{From: to, Data: d, Passphrase: passphrase, Progress: quiet})
	is.NoErr(err)
	r := &installation{Dir: d, t: t}
	r.serve()
	is.Equal(r.digest(701), want)
	fault.Saw(steps)
}

// killed runs a backup or a restore in a process of its own, which is killed in the middle of a step.
func killed(t *testing.T, what, step string, d datadir.Dir, backup string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilledProcess$")
	cmd.Env = append(os.Environ(), "KILLED="+strings.Join([]string{what, step, string(d), backup}, ","))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Fatalf("%s was not killed in step %q: %v\n%s", what, step, err, &out)
	}
}

func TestKilledProcess(t *testing.T) {
	args := strings.Split(os.Getenv("KILLED"), ",")
	if len(args) != 4 {
		t.Skip("a process of another test")
	}
	progress := func(step string, done, total uint64) {
		if step == args[1] && done*2 >= total && done > 0 {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}
	d, to := datadir.Dir(args[2]), args[3]
	if args[0] == "backup" {
		_, err := Write(t.Context(), Options{Data: d, To: to, Passphrase: passphrase, Progress: progress, maxPart: 4 << 10})
		t.Fatal(err)
	}
	_, err := Restore(t.Context(), RestoreOptions{From: to, Data: d, Passphrase: passphrase, Progress: progress,
		Command: "pocketcoder restore " + to})
	t.Fatal(err)
}
