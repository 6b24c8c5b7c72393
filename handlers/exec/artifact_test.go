package exec

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/ops/expect"
	"pocketcoder/ops/natsconf"
	"pocketcoder/sandbox/wire"
)

// changed waits for exec.changed of an execution, and returns its files by path.
func (s *system) changed(exec string) (files map[string]events.Artifact, more int) {
	s.t.Helper()
	_, d := handlerstest.Await(s.t, s.Log, func(d events.ExecChanged) bool { return d.Exec == exec })
	files = map[string]events.Artifact{}
	for _, f := range d.Files {
		files[f.Path] = f
	}
	is.New(s.t).Equal(len(files), len(d.Files)) // no file twice
	return files, d.More
}

func sha256Of(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

func TestChangedFilesAreListedAndSmallOnesStored(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := withWorker(t)
	large := strings.Repeat("x", maxArtifact+1)
	is.NoErr(os.WriteFile(filepath.Join(s.workspace, "old"), []byte("before"), 0o644))
	is.NoErr(os.WriteFile(filepath.Join(s.workspace, "left"), []byte("left alone"), 0o644))
	is.NoErr(os.Mkdir(filepath.Join(s.workspace, ".git"), 0o755))
	left, err := os.Stat(filepath.Join(s.workspace, "left"))
	is.NoErr(err)
	// the kernel's times of changes are that rough, or better
	expect.Eventually(t, "it becomes true", func() bool { return time.Since(left.ModTime()) > time.Second/10 })
	first := s.authorized("mkdir -p 'out/ä b'; printf new > 'out/ä b/c'; printf after > old; : > empty; head -c 1048577 /dev/zero | tr '\\0' x > large; " +
		"printf 'key: " + handlerstest.Canary[:8] + "''" + handlerstest.Canary[8:] +
		"' > secret; echo x > .git/index; ln -s old link; mkfifo pipe")
	s.shell(t.Context(), first)
	files, more := s.changed(s.execOf(first.Call))
	is.Equal(more, 0)
	want := map[string]string{"out/ä b/c": "new", "old": "after", "empty": "", "large": large,
		"secret": "key: " + handlerstest.Canary}
	is.Equal(len(files), len(want)) // nothing else
	for path, content := range want {
		f := files[path]
		is.Equal([]any{f.Size, f.SHA256}, []any{int64(len(content)), sha256Of(content)})
		stored := path == "old" || path == "out/ä b/c"
		is.Equal(f.Blob != nil, stored)
		if stored {
			is.Equal(*f.Blob, events.Blob{Name: "sha256-" + f.SHA256, Size: f.Size, SHA256: f.SHA256})
			is.Equal(string(s.output(events.Output{Blob: f.Blob})), content)
		}
	}

	nothing, failing := s.authorized("true"), s.authorized("printf again > old; exit 1")
	s.shell(t.Context(), nothing)
	s.shell(t.Context(), failing)
	files, _ = s.changed(s.execOf(failing.Call))
	is.Equal(files["old"].SHA256, sha256Of("again"))
	_, data := handlerstest.History(t, s.Log, "c1")
	// a list may include the changes of the next command
	for _, d := range handlerstest.Of[events.ExecChanged](data) {
		is.True(len(d.Files) > 0) // an empty list is not recorded
	}
}

func TestFilesBeyondTheLimitAreCounted(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := withWorker(t)
	r := s.authorized("for i in $(seq 1205); do : > f$i; done")
	s.shell(t.Context(), r)
	files, more := s.changed(s.execOf(r.Call))
	is.Equal([]int{len(files), more}, []int{maxArtifacts, 205})
}

func TestStoredContentOfAnExecutionIsLimited(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := withWorker(t)
	r := s.authorized("for i in $(seq 20); do head -c 1048576 /dev/urandom > f$i; done")
	s.shell(t.Context(), r)
	files, _ := s.changed(s.execOf(r.Call))
	stored := 0
	for _, f := range files {
		if f.Blob != nil {
			stored++
		}
	}
	is.Equal([]int{len(files), stored}, []int{20, 16})
}

func TestAChangeListReadsAnyChunks(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	sum := strings.Repeat("0a", 32)
	lines := `{"path":"a","size":1,"sha256":"` + sum + `"}` + "\n" + `{"path":"../b"}` + "\n" + `{"path":"/c"}` + "\n" +
		`{"path":"d","size":-1}` + "\nnonsense\n" +
		`{"path":"g","sha256":"0a"}` + "\n" + `{"path":"` + strings.Repeat(`\u0001`, 2000*6) + `"}` + "\n" +
		`{"path":"e/f","size":2}` + "\n" + `{"more":7}` + "\n"
	for _, n := range []int{1, 2, 7, 40, 1000} {
		var l changeList
		for piece := range slices.Chunk([]byte(lines), n) {
			_, err := l.Write(piece)
			is.NoErr(err)
		}
		is.Equal(l.files, []wire.Change{{Path: "a", Size: 1, SHA256: sum}, {Path: "e/f", Size: 2}})
		is.Equal(l.more, 6+7)
		fmt.Fprintf(&l, `{"more":%d}`+"\n"+`{"more":%[1]d}`+"\n", math.MaxInt)
		is.Equal(l.more, math.MaxInt32)
	}
}

func TestAFileWithALongNameHidesNoOther(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := withWorker(t)
	r := s.authorized(`n=$(printf '%200s' | tr ' ' '\001'); (for i in $(seq 60); do mkdir $n && cd $n || exit 1; done; touch f); touch evil`)
	s.shell(t.Context(), r)
	files, more := s.changed(s.execOf(r.Call))
	_, named := files["evil"]
	is.Equal([]any{len(files), named, more}, []any{1, true, 1})
}

// listing starts a worker that lists these changes, and reads files with read.
func listing(t *testing.T, list []wire.Change, read func(path string, stdout io.Writer) error) *system {
	t.Helper()
	s := newSystem(t)
	nc := s.connect(natsconf.Worker)
	s.run(nc, func(ctx context.Context) error {
		return wire.Serve(ctx, nc, wire.RunSubject("local"),
			wire.Server{Handle: func(ctx context.Context, r wire.Request, stdout, _ io.Writer) wire.Result {
				if r.Op == wire.Read {
					if err := read(r.Path, stdout); err != nil {
						return wire.Result{ExitCode: 1, Error: err.Error()}
					}
					return wire.Result{}
				}
				for _, c := range list {
					_ = json.NewEncoder(stdout).Encode(c)
				}
				return wire.Result{}
			}})
	})
	return s
}

func TestAFileThatCannotBeStoredHidesNoOther(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx, cancel := context.WithCancel(t.Context())
	var list []wire.Change
	for _, path := range []string{"a", "b", "c"} {
		list = append(list, wire.Change{Path: path, Size: 1, SHA256: sha256Of(path)})
	}
	var read []string
	s := listing(t, list, func(path string, stdout io.Writer) error {
		if read = append(read, path); path == "b" {
			cancel() // the time is over
		}
		_, err := io.WriteString(stdout, path)
		return err
	})
	_, err := s.exec.recordChanges(ctx, endedExecution{chat: "c1", exec: "x1"})
	is.NoErr(err)
	files, more := s.changed("x1")
	is.Equal([]int{len(files), more}, []int{3, 0})
	is.True(files["a"].Blob != nil && files["b"].Blob == nil && files["c"].Blob == nil)
	is.Equal(read, []string{"a", "b"})
}

func TestOnlyStoredContentCountsForTheLimit(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var list []wire.Change
	for i := range maxArtifactsAll / maxArtifact {
		list = append(list, wire.Change{Path: fmt.Sprint("gone", i), Size: maxArtifact, SHA256: sha256Of("x")})
	}
	s := listing(t, append(list, wire.Change{Path: "there", Size: 1, SHA256: sha256Of("x")}),
		func(path string, stdout io.Writer) error {
			if path != "there" {
				return os.ErrNotExist
			}
			_, err := io.WriteString(stdout, "x")
			return err
		})
	_, err := s.exec.recordChanges(t.Context(), endedExecution{chat: "c1", exec: "x1"})
	is.NoErr(err)
	files, _ := s.changed("x1")
	is.True(files["there"].Blob != nil)
}

func TestQueuedChangesAreListedAtTheEnd(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	requested, answer := make(chan struct{}, 2), make(chan struct{})
	nc := s.connect(natsconf.Worker)
	s.run(nc, func(ctx context.Context) error {
		return wire.Serve(ctx, nc, wire.RunSubject("local"), wire.Server{
			Info: wire.WorkerInfo{Name: "here", Workspace: s.workspace}, Serves: func(string) bool { return true },
			Handle: func(ctx context.Context, r wire.Request, stdout, _ io.Writer) wire.Result {
				if r.Op == wire.Changes {
					requested <- struct{}{}
					select {
					case <-answer:
						fmt.Fprintln(stdout, `{"path":"a","size":0}`)
					case <-ctx.Done():
					}
				}
				return wire.Result{Began: 1}
			},
		})
	})
	first, second := s.authorized("touch a"), s.authorized("touch a again")
	s.shell(t.Context(), first)
	<-requested
	s.shell(t.Context(), second)
	s.finished(s.execOf(second.Call))
	stopped := make(chan struct{})
	go func() { defer close(stopped); s.stop() }()
	expect.Eventually(t, "it becomes true", func() bool {
		s.exec.running.mu.Lock()
		defer s.exec.running.mu.Unlock()
		return s.exec.running.stopping
	})
	close(answer)
	<-stopped
	_, data := handlerstest.History(t, s.Log, "c1")
	var found []string
	for _, d := range handlerstest.Of[events.ExecChanged](data) {
		found = append(found, d.Exec)
	}
	is.Equal(found, []string{s.execOf(first.Call), s.execOf(second.Call)})
}

func TestExecutionsThatWaitShareAListWithoutChanges(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var listed []int64
	s := newSystem(t)
	nc := s.connect(natsconf.Worker)
	s.run(nc, func(ctx context.Context) error {
		return wire.Serve(ctx, nc, wire.RunSubject("local"), wire.Server{
			Info: wire.WorkerInfo{Name: "here", Workspace: s.workspace}, Serves: func(string) bool { return true },
			Handle: func(_ context.Context, r wire.Request, stdout, _ io.Writer) wire.Result {
				if listed = append(listed, r.Since); r.Since <= 10 {
					fmt.Fprintln(stdout, `{"path":"a","size":0}`)
				}
				return wire.Result{}
			},
		})
	})
	x := Executions{Log: s.Log, Conn: s.exec.Conn, Pool: s.exec.Pool, Workspace: s.workspace, Logger: s.exec.Logger}
	for i, since := range []int64{40, 10, 30, 20} {
		x.finished.waiting() <- endedExecution{"c1", fmt.Sprint("x", i), since}
	}
	none := make(chan struct{})
	close(none)
	x.findChanges(t.Context(), none)
	is.Equal(listed, []int64{10, 20})
	files, _ := s.changed("x1")
	is.Equal(len(files), 1)
}
