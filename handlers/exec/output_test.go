package exec

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/events/secret"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/permission/permissiontest"
	"pocketcoder/ops/expect"
	"pocketcoder/sandbox/wire"
)

func TestOutputIsRecordedWhole(t *testing.T) {
	t.Parallel()
	s, _ := withWorker(t)
	for _, c := range []struct {
		name, command string
		bytes         int
		in            string
	}{
		{"nothing", "true", 0, "text"},
		{"text", "printf 'ä€\\n\\033[1m'", 10, "text"},
		{"not UTF-8", "printf 'a\\377\\000b'", 4, "base64"},
		{"begins like a secret", "printf 'key: sk-can'", 11, "text"},
		{"largest inline", "head -c 262144 /dev/zero | tr '\\0' x", 262144, "text"},
		{"one byte more", "head -c 262145 /dev/zero | tr '\\0' x", 262145, "blob"},
		{"300 KiB", "head -c 307200 /dev/urandom", 300 << 10, "blob"},
		{"5 MiB", "head -c 5242880 /dev/urandom", 5 << 20, "blob"},
		{"more than is shown live", "head -c 12582912 /dev/urandom", 12 << 20, "blob"},
	} {
		t.Run(c.name, func(t *testing.T) {
			is := is.New(t)
			r := s.authorized(c.command + "; echo end >&2")
			result, stdout, stderr := s.shell(t.Context(), r)
			is.Equal(result.ExitCode, 0)
			is.Equal(stderr, "end\n")
			is.Equal(len(stdout), c.bytes)
			d := s.finished(s.execOf(r.Call))
			is.Equal(d.Stdout.Bytes, int64(c.bytes))
			is.Equal(d.Stderr, events.Output{Bytes: 4, Text: "end\n"})
			is.True(bytes.Equal(s.output(d.Stdout), []byte(stdout))) // byte for byte what the shell got
			is.Equal(d.Stdout.Blob != nil, c.in == "blob")
			is.Equal(d.Stdout.Base64 != nil, c.in == "base64")
			if b := d.Stdout.Blob; b != nil {
				sum := sha256.Sum256([]byte(stdout))
				is.Equal(b.Size, int64(c.bytes))
				is.Equal(b.SHA256, hex.EncodeToString(sum[:]))
				is.Equal(d.Stdout.Text, "")
			}
		})
	}
}

func TestSecretsAreRedactedInRecordedOutput(t *testing.T) {
	t.Parallel()
	s, _ := withWorker(t)
	half := len(handlerstest.Canary) / 2
	split := fmt.Sprintf("printf %s; sleep 0.1; printf %s; ", handlerstest.Canary[:half], handlerstest.Canary[half:])
	fill := func(n int) string { return fmt.Sprintf("head -c %d /dev/zero | tr '\\0' '\\n'; ", n) }
	for name, command := range map[string]string{
		"in one piece":      "echo " + handlerstest.Canary,
		"split":             "printf '<'; " + split + "printf '>'",
		"last":              split,
		"on stderr":         "(" + split + ") >&2",
		"not UTF-8":         "printf '\\377'; " + split,
		"at the spill":      fill(log.MaxInline-half) + split + fill(10),
		"deep in a blob":    fill(2<<20) + split + fill(2<<20),
		"across the chunks": fill(wire.ChunkSize-half) + "echo " + handlerstest.Canary,
		"base64":            "printf %s " + handlerstest.Canary + " | base64",
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			// The text of the command does not contain the secret.
			r := s.authorized(strings.ReplaceAll(command, handlerstest.Canary,
				handlerstest.Canary[:half]+"''"+handlerstest.Canary[half:]))
			_, stdout, stderr := s.shell(t.Context(), r)
			if name != "base64" {
				expect.Contains(t, stdout+stderr, handlerstest.Canary) // the model receives the secret
			}
			d := s.finished(s.execOf(r.Call))
			recorded := string(s.output(d.Stdout)) + string(s.output(d.Stderr))
			expect.Lacks(t, recorded, handlerstest.Canary[:half])
			expect.Lacks(t, recorded, "c2stY2FuYXJ5") // its base64
			is.Equal(strings.Count(recorded, "[redacted]"), 1)
			is.Equal(d.Stdout.Bytes+d.Stderr.Bytes, int64(len(recorded)))
			if d.Stdout.Blob == nil {
				is.Equal(utf8.Valid([]byte(recorded)), d.Stdout.Base64 == nil)
			}
		})
	}
}

func TestASecretAddedWhileACommandRunsIsRedacted(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := &system{Handlers: permissiontest.New(eventstest.Log(t)), t: t}
	r := (&Executions{Log: s.Log}).newRecorder("c1", events.ExecRequested{Exec: "x1", Detached: true})
	stdout, stderr := r.tee("stdout", io.Discard), r.tee("stderr", io.Discard)
	fill := strings.Repeat(".", log.MaxInline+1)
	_, err := io.WriteString(stdout, fill) // it goes to a blob
	is.NoErr(err)
	s.Log.Conceal(secret.System, "late", handlerstest.Canary)
	for _, w := range []io.Writer{stdout, stderr} {
		_, err = io.WriteString(w, "key: "+handlerstest.Canary)
		is.NoErr(err)
	}
	d := r.finish(wire.Result{})
	is.True(string(s.output(d.Stdout)) == fill+"key: [redacted]")
	is.Equal(string(s.output(d.Stderr)), "key: [redacted]")
}

func TestOutputIsPublishedLive(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := withWorker(t)
	ctx, cancel := context.WithCancel(t.Context())
	seen := make(chan log.Delta, 1000)
	watching := make(chan error, 1)
	go func() {
		watching <- s.Log.FollowDeltas(ctx, events.ChatDeltaFilters("c1"), func(d log.Delta) { seen <- d })
	}()
	// The command prints until the test creates the file.
	r := s.authorized("until test -e seen; do echo tick; sleep 0.02; done; echo last >&2")
	done := make(chan wire.Result, 1)
	go func() {
		result, _, _ := s.shell(t.Context(), r)
		done <- result
	}()
	first := <-seen
	exec := s.execOf(r.Call)
	is.Equal(first.Subject, events.ExecDeltaSubject("c1", exec))
	is.Equal(first.Type, log.ExecOutput)
	is.Equal(first.Stream, "stdout")
	is.Equal(first.Offset%5, int64(0)) // bytes of stdout before it, in whole ticks
	_, err := s.touch("seen")
	is.NoErr(err)
	is.Equal((<-done).ExitCode, 0)
	s.finished()
	last := <-seen
	for last.Stream != "stderr" {
		last = <-seen
	}
	is.Equal(last, log.Delta{Subject: first.Subject, Type: log.ExecOutput, Stream: "stderr", Data: []byte("last\n")})
	cancel()
	<-watching
}

func TestACommandWithLargeOutputEndsOnAFullDisk(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := withWorker(t)
	s.exec.HasRoom = func() bool { return false }
	r := s.authorized("yes")
	result, _, _ := s.shell(t.Context(), r)
	is.Equal(result.Reason, wire.OutputSize)
	d := s.finished(s.execOf(r.Call))
	is.Equal(d.Reason, string(wire.OutputSize))
	is.Equal(int64(len(s.output(d.Stdout))), d.Stdout.Bytes) // the output so far is stored
	small := s.authorized("head -c 900000 /dev/zero")
	result, _, _ = s.shell(t.Context(), small)
	is.Equal(result.Reason, wire.Exited)
}

func TestACommandThatPrintsTooMuchIsEnded(t *testing.T) {
	t.Parallel()
	for name, command := range map[string]string{
		"for ever":            "yes",
		"on both":             "yes >&2 & yes",
		"ends well after all": "trap 'exit 0' TERM; yes & wait",
		"just more":           "head -c 1048577 /dev/zero",
		"in the background":   "detach yes",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			s, _ := withWorker(t)
			s.exec.output = 1 << 20
			r := s.authorized(command)
			result, stdout, stderr := s.shell(t.Context(), r)
			d := s.finished(s.execOf(r.Call))
			is.Equal(d.Reason, string(wire.OutputSize))
			is.True(d.ExitCode != 0)
			is.Equal(d.Stdout.Bytes+d.Stderr.Bytes, int64(1<<20)) // all up to there
			is.Equal(int64(len(s.output(d.Stdout))), d.Stdout.Bytes)
			if !strings.HasPrefix(command, "detach") {
				is.Equal(result.Reason, wire.OutputSize)
				is.Equal(int64(len(stdout)+len(stderr)), int64(1<<20))
			}
		})
	}
	s, _ := withWorker(t)
	s.exec.output = 1 << 20
	result, stdout, _ := s.shell(t.Context(), s.authorized("head -c 1048576 /dev/zero"))
	is := is.New(t)
	is.Equal([]any{result.Reason, result.ExitCode, len(stdout)}, []any{wire.Exited, 0, 1 << 20}) // exactly the limit
}
