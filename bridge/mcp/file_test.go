package mcp_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/log/blob"
	"pocketcoder/events/secret"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/policy"
	"pocketcoder/handlers/recordtype"
	"pocketcoder/ops/expect"
)

// openSending returns a fixture whose session works in a directory, with a rule against reading private files.
func openSending(t *testing.T) (f *delegating, directory string) {
	t.Helper()
	f, directory = openDelegating(t), t.TempDir()
	rules := append([]policy.Rule{{Permission: "read", Pattern: "private/**", Action: policy.Deny}}, policy.Defaults...)
	gate := permission.Gate{Permissions: &permission.Permissions{Log: f.log},
		Records: recordtype.Open(f.log, recordtype.Machine{}),
		Rules:   rules, Session: func(string) (permission.Session, bool) {
			return permission.Session{Chat: "c1", Directory: directory}, true
		},
		Call: func(ctx context.Context, session string, tool events.Call, _ time.Duration) (permission.Call, bool) {
			found, ok, err := f.Model.ToolCall(ctx, session, tool.MessageID, tool.CallID)
			return permission.Call{Agent: found.Agent}, ok && err == nil
		}}
	f.JudgeRead = gate.JudgeRead
	e, err := events.New("c1", events.ActorSystem, events.SessionBound{Session: "ses_1", Directory: directory})
	is := is.New(t)
	is.NoErr(err)
	_, err = f.log.Append(t.Context(), e)
	is.NoErr(err)
	return f, directory
}

// write writes files below a directory.
func write(t *testing.T, directory string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(directory, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAFileIsSentAsItWas(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	f, directory := openSending(t)
	write(t, directory, map[string]string{"out/plan.txt": "the plan", "full": strings.Repeat("x", chat.MaxSentFile)})
	is.NoErr(os.Symlink("out/plan.txt", filepath.Join(directory, "link")))
	for path, caption := range map[string]string{"out/plan.txt": " a caption ", "link": "", "out/../full": "",
		filepath.Join(directory, "out/plan.txt"): ""} {
		text, failed := f.call("send_file", "", map[string]any{"path": path, "caption": caption})
		expect.Contains(t, text, "was sent")
		is.True(!failed)
	}
	is.NoErr(os.RemoveAll(filepath.Join(directory, "out"))) // the log has the content
	var sent []events.FileSent
	_, err := f.log.Fold(t.Context(), events.ChatSubject("c1", "file.sent"), 0, func(e events.Event) error {
		d, err := events.Decode(e)
		sent = append(sent, d.(events.FileSent))
		return err
	})
	is.NoErr(err)
	is.Equal(len(sent), 4)
	is.NoErr(f.Model.CatchUp(t.Context()))
	for _, d := range sent {
		a, found, err := f.Model.Artifact(t.Context(), d.File)
		is.NoErr(err)
		is.True(found)
		is.Equal([]string{a.Chat, a.Path, a.Blob, a.Caption}, []string{"c1", d.Path, d.Content.Name, d.Caption})
		if d.Caption == "a caption" {
			is.Equal([]any{d.Path, d.Mime, d.Content.Size}, []any{"out/plan.txt", "text/plain; charset=utf-8", int64(8)})
			shown, _, err := f.Model.Message(t.Context(), messageOf(t, f, d))
			is.NoErr(err)
			expect.Contains(t, string(shown.Parts), fmt.Sprintf(`{"id":"%s_%s","type":"file","filename":"plan.txt",`+
				`"mime":"text/plain; charset=utf-8","url":"/api/artifacts/%s/content","text":"a caption"}`, d.Part, d.File, d.File))
		}
	}
}

// messageOf returns the id of the message with a file.
func messageOf(t *testing.T, f *delegating, d events.FileSent) string {
	t.Helper()
	all, err := f.Model.Messages(t.Context(), "c1")
	is.New(t).NoErr(err)
	for _, m := range all {
		if m.EngineMessage == d.MessageID {
			return m.ID
		}
	}
	t.Fatalf("no message %s", d.MessageID)
	return ""
}

func TestWhatIsNotToBeReadIsNotSent(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	f, directory := openSending(t)
	outside := t.TempDir()
	write(t, outside, map[string]string{"key": "another's"})
	write(t, directory, map[string]string{"private/a": "a", ".env": "KEY=1", "empty": "", "plain": "plain",
		"secret.txt": "it is known-secret-1.", "large": strings.Repeat("x", chat.MaxSentFile+1)})
	is.NoErr(syscall.Mkfifo(filepath.Join(directory, "pipe"), 0o600))
	for link, target := range map[string]string{"out": outside, "key": filepath.Join(outside, "key"), "up": "..",
		"env": ".env", "alias": "private/a"} {
		is.NoErr(os.Symlink(target, filepath.Join(directory, link)))
	}
	f.log.Conceal(secret.System, "test", "known-secret-1")
	for path, want := range map[string]string{
		"out/key": "Only files in", "key": "Only files in", "up/x": "Only files in", filepath.Join(outside, "key"): "Only files in",
		"../key": "Only files in", "": "is not a regular file", ".": "is not a regular file", "gone": "There is no file",
		".env": "may hold secrets", "env": "may hold secrets", "private/a": "private/**", "alias": "private/**",
		"empty": "is empty", "large": "larger than 7 MiB", "pipe": "is a FIFO", "secret.txt": "contains a secret",
	} {
		text, failed := f.call("send_file", "", map[string]any{"path": path})
		is.True(failed)
		expect.Contains(t, text, want)
	}
	text, failed := f.call("send_file", "", map[string]any{"path": "plain", "caption": strings.Repeat("ä", 501)})
	is.True(failed)
	expect.Contains(t, text, "at most 1000 bytes")
	newest, err := f.log.Newest(t.Context(), events.ChatSubject("c1", "file.sent"))
	is.NoErr(err)
	is.Equal(newest, uint64(0))
}

func TestAChatSendsALimitedNumberOfFiles(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	f, directory := openSending(t)
	write(t, directory, map[string]string{"a": "a", "refused": "refused"})
	for range 20 {
		_, failed := f.call("send_file", "", map[string]any{"path": "a"})
		is.True(!failed)
	}
	text, failed := f.call("send_file", "", map[string]any{"path": "refused"})
	is.True(failed)
	expect.Contains(t, text, "20 files were sent in this chat within an hour")
	_, err := f.log.Blobs.Open(t.Context(), blob.HashName([]byte("refused")))
	is.True(errors.Is(err, blob.ErrNotFound)) // it would be stored for ever
}
