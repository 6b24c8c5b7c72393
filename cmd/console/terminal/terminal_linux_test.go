package terminal

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"
	"golang.org/x/sys/unix"

	"pocketcoder/cmd/cmdtest"
	"pocketcoder/ops/expect"
)

// sitting is a person at a terminal whose line is edited in this process.
type sitting struct {
	*Terminal
	person *os.File
	file   *os.File // the terminal itself
	seen   expect.Buffer
	lines  <-chan Line
}

func sitDown(t *testing.T) *sitting {
	t.Helper()
	is := is.New(t)
	file, person := cmdtest.Terminal(t)
	is.NoErr(unix.IoctlSetWinsize(int(file.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 40}))
	s := &sitting{person: person, file: file}
	go func() {
		piece := make([]byte, 4096)
		for {
			n, err := person.Read(piece)
			if err != nil {
				return
			}
			s.seen.Write(piece[:n])
		}
	}()
	h, err := LoadHistory(filepath.Join(t.TempDir(), "history"))
	is.NoErr(err)
	s.Terminal = Open(t.Context(), file, file, true, h)
	is.True(s.Terminal != nil)
	s.lines = s.Terminal.Lines()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the terminal was given %q", s.seen.String())
		}
	})
	return s
}

func (s *sitting) sees(t *testing.T, text string) {
	t.Helper()
	expect.Eventually(t, "the person sees "+text, func() bool { return strings.Contains(s.seen.String(), text) })
}

// enters types keys and returns the line that they enter.
func (s *sitting) enters(t *testing.T, keys string) Line {
	t.Helper()
	fmt.Fprint(s.person, keys)
	line, ok := <-s.lines
	is.New(t).True(ok)
	s.Handled()
	return line
}

func TestLineAnswersThePromptShownAtItsStart(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := sitDown(t)
	s.Prompt("first? ", "per_1")
	s.sees(t, "first? ")
	is.Equal(s.enters(t, "y\r"), Line{"y", "per_1", true})
	s.Prompt("second? ", "per_2")
	fmt.Fprint(s.person, "n")
	s.sees(t, "second? n")
	s.Prompt("third? ", "per_3")
	is.Equal(s.enters(t, "o\r"), Line{"no", "per_2", true}) // the prompt has changed meanwhile
	s.Prompt("third? ", "per_3")
	s.sees(t, "third? ")
	is.Equal(s.enters(t, "\r"), Line{"", "per_3", true})
	s.Prompt("third? ", "per_3")
	fmt.Fprint(s.person, "a\rb\r") // typed ahead: both while the third was shown
	is.Equal(<-s.lines, Line{"a", "per_3", true})
	s.Handled()
	s.Prompt("fourth? ", "per_4")
	is.Equal(<-s.lines, Line{"b", "per_3", true})
	s.Handled()
	s.Prompt("fourth? ", "per_4")
	fmt.Fprint(s.person, "\x04")
	_, ok := <-s.lines
	is.True(!ok)
}

func TestControlCClearsTheLine(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := sitDown(t)
	s.Prompt("first? ", "per_1")
	fmt.Fprint(s.person, "y")
	s.sees(t, "first? y")
	s.Prompt("second? ", "per_2")
	fmt.Fprint(s.person, "\x03")
	is.True(<-s.Aborts) // and it cleared a line
	s.Prompt("second? ", "per_2")
	s.sees(t, "second? ")
	is.Equal(s.enters(t, "n\r"), Line{"n", "per_2", true})
}

func TestSuggestedTextCanBeEdited(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := sitDown(t)
	s.Prompt("run instead: ", "per_1/edit")
	line, ok := Editable("make\n\ttest")
	is.True(ok)
	s.Suggest(line)
	s.sees(t, "make␤␉test")
	is.Equal(s.enters(t, "s\r"), Line{"make\n\ttests", "per_1/edit", true})
	for _, text := range []string{"a\x1b[2Jb", "a␤b", "a\rb"} {
		_, ok := Editable(text)
		is.True(!ok) // text
	}
}

func TestTabAddsWhatAllCompletionsHaveInCommon(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := sitDown(t)
	s.SetCompletions([]string{"/requests", "/redo ", "/redo keep", "/redo overwrite", "/stop"})
	s.Prompt("> ", "")
	s.sees(t, "> ")
	is.Equal(s.enters(t, "/s\t\r").Text, "/stop")
	s.Prompt("> ", "")
	is.Equal(s.enters(t, "/red\tk\t\r").Text, "/redo keep")
	s.Prompt("> ", "")
	fmt.Fprint(s.person, "/r\t\t")
	s.sees(t, "/requests  /redo   /redo keep")
	is.Equal(s.enters(t, "\r").Text, "/re")
	s.Prompt("> ", "")
	is.Equal(s.enters(t, "what\t?\r").Text, "what?")
}

func TestOutputIsPrintedAboveTheEditedLine(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := sitDown(t)
	s.Prompt("› ", "")
	fmt.Fprint(s.person, "half a message")
	s.sees(t, "› half a message")
	fmt.Fprint(s.Terminal, "one\ntwo")
	s.sees(t, "two")
	fmt.Fprint(s.Terminal, " and more\nthree\n")
	s.sees(t, "two and more\r\nthree\r\n› half a message")
	is.Equal(s.enters(t, " is whole\r"), Line{"half a message is whole", "", true})
}

func TestOutputIsHeldBelowARequest(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := sitDown(t)
	fmt.Fprint(s.Terminal, "? bash  touch x\n")
	s.Prompt("allow it? ", "per_1")
	s.sees(t, "touch x\r\nallow it? ")
	fmt.Fprint(s.Terminal, "? bash  ls\n? bash  go test # ")
	is.Equal(s.HeldLines(), 1)
	s.Prompt("allow it? ", "per_1")
	is.Equal(s.enters(t, "y\r"), Line{"y", "per_1", true})
	expect.Lacks(t, s.seen.String(), "bash  ls")
	is.True(s.Release())
	s.Prompt("› ", "")
	s.sees(t, "? bash  go test # \r\n› ") // on a line of its own
	is.True(!s.Release())                 // nothing is left
	fmt.Fprint(s.Terminal, "more\n")
	s.sees(t, "more\r\n› ")
}

func TestBurstOfOutputRedrawsTheLineOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := sitDown(t)
	s.Prompt("› ", "")
	fmt.Fprint(s.person, "typed")
	s.sees(t, "› typed")
	before := strings.Count(s.seen.String(), "› typed")
	s.Terminal.mu.Lock() // so that all lines are there before any is printed
	go func() {
		for i := range 1000 {
			fmt.Fprintf(s.Terminal, "line %d\n", i)
		}
		fmt.Fprint(s.Terminal, "end\n")
	}()
	s.Terminal.mu.Unlock()
	s.sees(t, "end\r\n")
	s.sees(t, "end\r\n› typed")
	is.True(strings.Count(s.seen.String(), "› typed")-before < 100) // and not for each of the lines
}

func TestPastedLinesAreOneMessage(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := sitDown(t)
	s.Prompt("› ", "")
	is.Equal(s.enters(t, "\x1b[200~one\rtwo\r\x1b[201~three\r"), Line{"one\ntwo\nthree", "", true})
	s.Prompt("› ", "")
	is.Equal(s.enters(t, "one\\\rtwo\r"), Line{"one\ntwo", "", true})
}

func TestCloseRestoresTheTerminal(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := sitDown(t)
	is.True(!cmdtest.Echoes(t, s.file))
	s.Prompt("› ", "")
	s.Close()
	is.True(cmdtest.Echoes(t, s.file))
}

func TestHistoryHoldsMessagesAndIsPrivate(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := sitDown(t)
	s.Prompt("› ", "")
	is.NoErr(s.History.Remember(s.enters(t, "first\r").Text))
	s.Prompt("allow it? ", "per_1")
	is.Equal(s.enters(t, "y\r").Text, "y") // an answer: it is not remembered
	s.Prompt("› ", "")
	is.NoErr(s.History.Remember("two\nlines"))
	is.Equal(s.enters(t, "\x1b[A\r").Text, "two\nlines")
	s.Prompt("› ", "")
	is.Equal(s.enters(t, "\x1b[A\x1b[A!\r").Text, "first!")
	info, err := os.Stat(s.History.path)
	is.NoErr(err)
	is.Equal(info.Mode().Perm(), os.FileMode(0o600))
	reloaded, err := LoadHistory(s.History.path)
	is.NoErr(err)
	is.Equal(reloaded.lines, []string{"first", "two␤lines"})
}

func TestHistoryIsLimited(t *testing.T) {
	is := is.New(t)
	path := filepath.Join(t.TempDir(), "history")
	h, err := LoadHistory(path)
	is.NoErr(err)
	for i := range 2*maxHistory + 1 {
		is.NoErr(h.Remember(fmt.Sprint("line ", i)))
	}
	text, err := os.ReadFile(path)
	is.NoErr(err)
	is.NoErr(os.WriteFile(path, append(text, "\"half"...), 0o600))
	h, err = LoadHistory(path)
	is.NoErr(err)
	is.Equal([]any{h.Len(), h.At(0)}, []any{maxHistory, fmt.Sprint("line ", 2*maxHistory)})
	h, err = LoadHistory(path) // it was written anew
	is.NoErr(err)
	is.Equal(h.Len(), maxHistory)
}
