package viewer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/datadir"
	"pocketcoder/ops/expect"
)

// opened is the viewer of a data directory of the test's own.
func opened(t *testing.T) Viewer {
	t.Helper()
	expect.Program(t, "tmux")
	v, err := Open(t.Context(), client.Address{Data: datadir.Dir(t.TempDir())})
	if err == nil {
		err = os.MkdirAll(filepath.Dir(v.socket()), 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Stop(v.data) })
	return v
}

func TestTmuxVersionsThatLetEscapesPassAreRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	for version, tooOld := range map[string]bool{"tmux 2.9": true, "tmux 3.2a": true, "tmux 3.3": false,
		"tmux 3.3a": false, "tmux next-3.6": false, "tmux 10.0": false, "tmux master": false} {
		is.Equal(TooOld(version), tooOld)
	}
}

func TestWordsForTmuxStayWords(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	v := opened(t)
	file := filepath.Join(t.TempDir(), "words")
	words := []string{"a b", `"q"`, "$HOME", "#{session_name}", "end;", `back\slash`, "~", "'", "{", "line\nbreak", "%H"}
	say := append([]string{"sh", "-c", `printf '%s\0' "$@" > "$0"`, file}, words...)
	// first: without a session the server ends
	is.NoErr(v.run(t.Context(), "new-session", "-d", "-s", "y", "--", "sleep", "60"))
	is.NoErr(v.run(t.Context(), append([]string{"new-session", "-d", "-s", "x", "--"}, say...)...))
	read := func() string { all, _ := os.ReadFile(file); return string(all) }
	want := strings.Join(words, "\x00") + "\x00"
	expect.Eventually(t, "the words are there", func() bool { return read() == want })
	is.NoErr(os.Remove(file))
	is.NoErr(v.run(t.Context(), "set-option", "-t", "=y:", "@shell",
		tmuxLine(append([]string{"new-window", "--"}, say...))))
	is.NoErr(v.run(t.Context(), "run-shell", "-C", "-t", "=y:", "#{@shell}"))
	expect.Eventually(t, "the words are there again", func() bool { return read() == want })
}

func TestAClientThatWasNotNotedIsNobodys(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	v := opened(t)
	is.NoErr(v.run(t.Context(), "new-session", "-d", "-s", "x", "--", "sleep", "60"))
	_, err := v.clientUser(t.Context(), 4242)
	is.True(err != nil) // and not the operator's
	file := filepath.Join(t.TempDir(), "words")
	var press []string
	for _, k := range tmuxKeys {
		if k.key == "-T prefix c" {
			press = k.command
		}
	}
	is.NoErr(v.run(t.Context(), "set-option", "-t", "=x:", "@shell",
		tmuxLine([]string{"new-window", "--", "sh", "-c", `printf %s "$1" > "$0"`, file})))
	is.NoErr(v.run(t.Context(), press...)) // from no client at all
	expect.Eventually(t, "the shell's window has run", func() bool { text, _ := os.ReadFile(file); return len(text) > 0 })
	text, err := os.ReadFile(file)
	is.NoErr(err)
	is.Equal(string(text), "--client=0")
	_, err = AccountOfClient(t.Context(), client.Address{Data: v.data}, "0")
	is.True(err != nil && strings.Contains(err.Error(), "has not attached"))
	for _, user := range []string{"ann", ""} {
		is.NoErr(v.Enter(t.Context(), 4242, user))
		as, err := v.clientUser(t.Context(), 4242)
		is.NoErr(err)
		is.Equal(as, user)
	}
}

func TestSessionThatReplacesAClosedOneHasAnotherID(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	v := opened(t)
	v.self = filepath.Join(t.TempDir(), "transcript")
	is.NoErr(os.WriteFile(v.self, []byte("#!/bin/sh\nexec sleep 600\n"), 0o700))
	first, err := v.Show(t.Context(), "c1")
	is.NoErr(err)
	same, err := v.Show(t.Context(), "c1")
	is.NoErr(err)
	is.Equal(same, first)
	is.NoErr(End(t.Context(), v.data, "c1")) // the only one of the server
	is.NoErr(End(t.Context(), v.data, "c1")) // it is closed already
	second, err := v.Show(t.Context(), "c1")
	is.NoErr(err)
	is.True(second != first)
	// so a client that wants the first does not get the second
	is.True(v.run(t.Context(), "has-session", "-t", first) != nil)
	is.NoErr(v.run(t.Context(), "has-session", "-t", second))
}
