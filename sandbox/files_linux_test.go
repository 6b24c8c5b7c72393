package sandbox

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
	"pocketcoder/sandbox/wire"
)

// changes lists what changed since a command began.
func changes(t *testing.T, w *Worker, since int64) (found map[string]wire.Change, more int) {
	t.Helper()
	is := is.New(t)
	var out bytes.Buffer
	result := w.Handle(t.Context(), wire.Request{Op: wire.Changes, Since: since}, &out, io.Discard)
	is.Equal(result.Reason, wire.Exited)
	found = map[string]wire.Change{}
	for lines := json.NewDecoder(&out); lines.More(); {
		var c wire.Change
		is.NoErr(lines.Decode(&c))
		if c.Path != "" {
			found[c.Path] = c
		}
		more += c.More
	}
	return found, more
}

// settle waits until the clock of file times has advanced.
func (w *Worker) settle(t *testing.T) {
	t.Helper()
	probe := filepath.Join(t.TempDir(), "probe")
	first := int64(0)
	expect.Eventually(t, "the file system's clock moves on", func() bool {
		os.WriteFile(probe, nil, 0o600)
		info, _ := os.Stat(probe)
		if first == 0 {
			first = changeTime(info)
		}
		return changeTime(info) > first+2*int64(10*time.Millisecond)
	})
}

func TestChangedFilesOfACommandAreFound(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t)
	outside := filepath.Join(t.TempDir(), "outside")
	is.NoErr(os.WriteFile(outside, nil, 0o600))
	for _, dir := range []string{".git", "a/b", "many"} {
		is.NoErr(os.MkdirAll(filepath.Join(w.workspace, dir), 0o755))
	}
	for _, name := range []string{"old", "touched", "a/old", "a/moved"} {
		is.NoErr(os.WriteFile(filepath.Join(w.workspace, name), []byte(name), 0o644))
	}
	w.settle(t)
	result, _, _ := run(t, w, `printf new > a/b/'n e w
'; echo x >> touched; touch -d 2001-01-01 back; mv a/moved a/b/moved; mkfifo fifo; ln -s old link; ln -s `+outside+` out; ln -s .. a/up
		: > .git/index; truncate -s 300M sparse; printf '' > empty; mkdir a/.git; : > a/.git/x; printf x > gone; rm gone; printf x > "$(printf 'not\377text')"`)
	is.Equal(result.ExitCode, 0)
	found, more := changes(t, w, result.Began)
	is.Equal(slices.Sorted(maps.Keys(found)), []string{"a/b/moved", "a/b/n e w\n", "back", "empty", "sparse", "touched"})
	is.Equal(more, 1) // its name is not valid UTF-8
	sum := sha256.Sum256([]byte("new"))
	is.Equal(found["a/b/n e w\n"], wire.Change{Path: "a/b/n e w\n", Size: 3, SHA256: hex.EncodeToString(sum[:])})
	is.Equal(found["sparse"], wire.Change{Path: "sparse", Size: 300 << 20}) // too large to read
	is.True(found["empty"].SHA256 != "")

	w.settle(t)
	result, _, _ = run(t, w, "cat old > /dev/null; mkdir new")
	found, more = changes(t, w, result.Began)
	is.Equal(len(found)+more, 0)
	result, _, _ = run(t, w, fmt.Sprintf("cd many; for i in $(seq %d); do : > $i; done", wire.MaxChanges+7))
	found, more = changes(t, w, result.Began)
	is.Equal(len(found), wire.MaxChanges)
	is.Equal(more, 7)
}

func TestReadServesOnlyFilesOfTheWorkspace(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t)
	secret := filepath.Join(t.TempDir(), "secret")
	is.NoErr(os.WriteFile(secret, []byte("secret"), 0o600))
	is.NoErr(os.Mkdir(filepath.Join(w.workspace, "dir"), 0o755))
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
	is.NoErr(os.WriteFile(filepath.Join(w.workspace, "dir", "large"), large, 0o600))
	for link, to := range map[string]string{"in": "dir/large", "out": secret, "up": "..", "dir/up": "../..",
		"absolute": filepath.Join(w.workspace, "dir/large")} {
		is.NoErr(os.Symlink(to, filepath.Join(w.workspace, link)))
	}
	is.NoErr(syscall.Mkfifo(filepath.Join(w.workspace, "fifo"), 0o600))
	for name, want := range map[string]string{
		"dir/large": "", "in": "",
		"out": "escapes", "up/secret": "escapes", "dir/up/x": "escapes", "absolute": "escapes", "../secret": "escapes", secret: "escapes",
		"dir": "not a regular file", "fifo": "not a regular file", "none": "no such file", ".": "not a regular file",
	} {
		var out bytes.Buffer
		result := w.Handle(t.Context(), wire.Request{Op: wire.Read, Path: name}, &out, io.Discard)
		if want == "" {
			is.Equal(result.Reason, wire.Exited)
			is.True(bytes.Equal(out.Bytes(), large))
			continue
		}
		is.Equal(result.Reason, wire.Refused)
		if out.Len() > 0 || !strings.Contains(result.Error, want) || !strings.Contains(result.Error, name) {
			t.Errorf("%s: %s %s", name, result.Error, out.String())
		}
	}
}

func TestUnknownOpsAndWorkspacesAreRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t)
	for want, r := range map[string]wire.Request{
		"op \"dig\" is unknown":       {Op: "dig"},
		"is not this worker's":        {Op: wire.Read, Path: "x", Workspace: "/elsewhere"},
		"port 70000":                  {Op: wire.Dial, Exec: "x", Port: 70000},
		"port 80 of exec x: it is no": {Op: wire.Dial, Exec: "x", Port: 80},
	} {
		result := w.Handle(t.Context(), r, io.Discard, io.Discard)
		is.Equal(result.Reason, wire.Refused)
		if !strings.Contains(result.Error, want) {
			t.Errorf("want %q, got %q", want, result.Error)
		}
	}
	result := w.Handle(t.Context(), w.request("exit 3"), io.Discard, io.Discard)
	is.Equal(result.ExitCode, 3)
}

func TestDeepTreeIsCountedNotFollowed(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t)
	result := w.Exec(t.Context(), w.request("mkdir -p $(printf 'd/%.0s' $(seq 300)); for i in $(seq 300); do cd d; echo x > f; done; cd "+w.workspace+"; echo y > top"), io.Discard, io.Discard)
	is.Equal(result.ExitCode, 0)
	found, more := changes(t, w, result.Began)
	is.Equal(len(found), 200+1)
	is.Equal(more, 1)
}
