// Package terminal edits a line at the bottom of a terminal and prints output above it. It keeps the history of what
// was typed.
//
// Promises: a typed line has the name of the prompt that was shown when the line was begun. While a request is shown,
// other output waits. Close restores the terminal.
//
// It must not know chats, events or requests.
package terminal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"pocketcoder/handlers/policy/display"
)

// flushPause is how long output is collected before it is printed above the line that is edited.
const flushPause = 30 * time.Millisecond

// Line is a line that was entered at a terminal, or read from a file or pipe.
type Line struct {
	Text  string
	Shown string // name of the prompt when the line was begun; empty for a message
	Typed bool   // typed at a terminal, so Shown is set
}

// Terminal edits a line at the bottom of a terminal and prints output above it. Its lowest rows hold, from the top: the
// unfinished line of output, the status, and the prompt with the edited line. golang.org/x/term edits the line.
type Terminal struct {
	in       *os.File
	oldState *term.State
	edit     *term.Terminal
	History  *History
	arrived  chan keys     // from the keyboard, or typed for the person
	entered  chan struct{} // a line was handled, and the next may be read
	Aborts   chan bool     // Ctrl-C, and whether it cleared a line
	done     context.Context

	mu           sync.Mutex
	queue        []keys // arrived, and not edited yet
	paste        pasteFilter
	width        int
	pending      bytes.Buffer // output that is not printed yet
	holdsOutput  bool         // the prompt is about a request: output waits, so that none stands below the request
	held         bytes.Buffer // that output
	armed        bool         // a timer prints it
	partial      string       // the unfinished line of output
	status       string
	visible      bool // the status is on the screen
	prompt       string
	shown        string // what the prompt asks about
	begun        bool   // a key of the edited line was pressed
	shownAtStart string // what was shown then
	awaitsNext   bool   // a line was entered, and the next is not read yet
	handled      bool   // the entered line was handled
	cleared      bool   // Ctrl-C cleared the edited line
	printed      time.Time
	completions  []string // lines to which Tab can complete the edited one
}

// keys are bytes that were typed together, and what was shown then.
type keys struct {
	bytes []byte
	shown string
}

// Open edits the line of the terminal at stdin. It returns nil if stdin is no terminal.
func Open(ctx context.Context, stdin io.Reader, stdout io.Writer, interactive bool, h *History) *Terminal {
	in, ok := stdin.(*os.File)
	if !ok || !interactive {
		return nil
	}
	cooked, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil
	}
	t := &Terminal{
		in: in, oldState: cooked, History: h, done: ctx, width: 80,
		arrived: make(chan keys, 64), entered: make(chan struct{}, 1), Aborts: make(chan bool, 1),
		awaitsNext: true, handled: true, // the first line is read below the first prompt
	}
	t.edit = term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{keyReader{t}, stdout}, "")
	t.edit.History = h
	t.edit.AutoCompleteCallback = t.complete
	t.edit.SetBracketedPasteMode(true)
	t.resize()
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	go func() {
		defer signal.Stop(resized)
		for {
			select {
			case <-resized:
				t.resize()
			case <-ctx.Done():
				return
			}
		}
	}()
	go t.pump()
	return t
}

// Close prints what is left and restores the terminal.
func (t *Terminal) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.status = ""
	t.held.WriteTo(&t.pending)
	t.edit.SetPrompt("")
	t.print(true)
	t.edit.SetBracketedPasteMode(false)
	term.Restore(int(t.in.Fd()), t.oldState)
}

func (t *Terminal) resize() {
	width, height, err := term.GetSize(int(t.in.Fd()))
	if err != nil || width == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.width, t.partial, t.visible = width, "", false // the terminal has wrapped the rows anew
	t.edit.SetSize(width, height)
}

func (t *Terminal) Columns() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.width
}

// pump reads the keyboard. It notes at once what was shown when a key was pressed.
func (t *Terminal) pump() {
	defer close(t.arrived)
	buffer := make([]byte, 4096)
	for {
		n, err := t.in.Read(buffer)
		t.mu.Lock()
		k := keys{bytes.Clone(buffer[:n]), t.shown}
		t.mu.Unlock()
		for i := bytes.IndexAny(k.bytes, "\x03\x1a"); i >= 0; i = bytes.IndexAny(k.bytes, "\x03\x1a") {
			k.bytes = t.control(k.bytes, i)
		}
		select {
		case t.arrived <- k:
		case <-t.done.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// The keys that golang.org/x/term has no use for.
const (
	ctrlC     = 0x03
	ctrlZ     = 0x1a
	clearLine = "\x05\x15" // to its end, and erase up to its beginning
)

// control handles Ctrl-C or Ctrl-Z at typed[i] and returns the remaining keys.
func (t *Terminal) control(typed []byte, i int) []byte {
	if typed[i] == ctrlZ {
		t.suspend()
		return append(typed[:i:i], typed[i+1:]...)
	}
	t.mu.Lock()
	cleared := t.begun || i > 0
	t.begun, t.cleared = false, true
	t.mu.Unlock()
	select {
	case t.Aborts <- cleared:
	default: // one signal is enough
	}
	return append([]byte(clearLine), typed[i+1:]...)
}

// suspend stops the program as Ctrl-Z does, until the shell continues it.
func (t *Terminal) suspend() {
	term.Restore(int(t.in.Fd()), t.oldState)
	syscall.Kill(syscall.Getpid(), syscall.SIGTSTP)
	term.MakeRaw(int(t.in.Fd()))
	t.edit.Write(nil)
}

// keyReader is where the line editor reads keys.
type keyReader struct{ *Terminal }

// Read returns keys up to the end of a line at most: the next line's begin only when that is read.
func (r keyReader) Read(p []byte) (int, error) {
	for {
		r.mu.Lock()
		if len(r.queue) > 0 {
			n := r.takeKeys(p)
			r.mu.Unlock()
			if n > 0 {
				return n, nil
			}
			continue
		}
		r.mu.Unlock()
		select {
		case k, ok := <-r.arrived:
			if !ok {
				return 0, io.EOF
			}
			r.mu.Lock()
			r.queue = append(r.queue, k)
			r.mu.Unlock()
		case <-r.done.Done():
			return 0, io.EOF
		}
	}
}

// takeKeys moves keys to p. The first of a line decides what the line is about.
func (t *Terminal) takeKeys(p []byte) int {
	k := &t.queue[0]
	n, size, end := t.paste.take(p, k.bytes)
	if n > 0 && !t.begun && !bytes.Equal(k.bytes[:n], []byte(clearLine)) {
		t.begun, t.shownAtStart = true, k.shown
		if t.visible {
			t.print(true) // without the status
		}
	}
	t.awaitsNext = t.awaitsNext || end
	if k.bytes = k.bytes[n:]; len(k.bytes) == 0 {
		t.queue = t.queue[1:]
	}
	return size
}

// pasteFilter replaces the line ends of a paste that follows typed text by symbols: golang.org/x/term takes them for
// Enter. The line ends of a paste into an empty line stay, because golang.org/x/term reports those as pasted.
type pasteFilter struct {
	last   []byte // the end of what was taken, as long as a mark
	line   int    // bytes of the line so far
	inside bool   // a paste that follows typed text
	cr     bool   // a carriage return was replaced just now
}

// The marks around pasted text.
const (
	pasteStart = "\x1b[200~"
	pasteEnd   = "\x1b[201~"
)

// take moves keys to p, up to the end of a line at most. It returns how many bytes it took and wrote, and whether a
// line ends.
func (f *pasteFilter) take(p, keys []byte) (taken, written int, end bool) {
	symbol := toSymbols.Replace("\n")
	for taken < len(keys) && written+len(symbol) <= len(p) {
		b := keys[taken]
		taken++
		isEnd := b == '\r' || b == '\n'
		if cr := f.cr; f.inside && isEnd {
			if f.cr = b == '\r'; b == '\r' || !cr {
				written += copy(p[written:], symbol)
			}
			continue
		}
		p[written], f.cr = b, false
		written++
		if isEnd {
			f.line, f.last = 0, nil
			return taken, written, true
		}
		f.line++
		f.last = append(f.last, b)
		f.last = f.last[max(0, len(f.last)-len(pasteStart)):]
		switch string(f.last) {
		case pasteStart:
			f.inside = f.line > len(pasteStart)
		case pasteEnd:
			f.inside = false
		}
	}
	return taken, written, false
}

// Write prints text above the edited line after a short delay.
func (t *Terminal) Write(text []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.holdsOutput {
		t.held.Write(text)
		return len(text), nil
	}
	t.pending.Write(text)
	t.startFlushTimer()
	return len(text), nil
}

// startFlushTimer lets a timer print what is pending.
func (t *Terminal) startFlushTimer() {
	if !t.armed {
		t.armed = true
		time.AfterFunc(flushPause, t.flush)
	}
}

// Release prints the held output. Output is not held again until the next request is shown. Release reports whether
// any output was held.
func (t *Terminal) Release() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.holdsOutput = false
	if t.held.Len() == 0 {
		return false
	}
	whole := bytes.HasSuffix(t.held.Bytes(), []byte("\n"))
	t.held.WriteTo(&t.pending)
	if !whole { // what is printed next must not go on in that line
		t.pending.WriteByte('\n')
	}
	t.startFlushTimer()
	return true
}

// HeldLines returns the number of lines that are held.
func (t *Terminal) HeldLines() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return bytes.Count(t.held.Bytes(), []byte("\n"))
}

func (t *Terminal) flush() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.print(false)
}

// maxPartialRows bounds what is printed anew for each piece of an unfinished line.
const maxPartialRows = 8

// print prints what is pending below the last finished line, and the status and the edited line below that. The caller
// holds t.mu, so no Enter is handled meanwhile.
func (t *Terminal) print(always bool) {
	t.armed = false
	if t.pending.Len() == 0 && !always {
		return
	}
	if t.pending.Len() > 0 {
		t.printed = time.Now()
	}
	if t.awaitsNext { // the entered line stands below what was unfinished
		t.partial, t.visible = "", false
	}
	var b strings.Builder
	up := rowsOf(t.partial, t.width)
	if t.visible {
		up++
	}
	if up > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", up)
	}
	b.WriteString("\r\x1b[J")
	text := t.partial + t.pending.String()
	t.pending.Reset()
	b.WriteString(text)
	if t.partial = text[strings.LastIndexByte(text, '\n')+1:]; t.partial != "" {
		b.WriteByte('\n')
	}
	if rowsOf(t.partial, t.width) > maxPartialRows {
		t.partial = ""
	}
	if t.visible = t.status != "" && !t.begun && !t.awaitsNext; t.visible {
		b.WriteString(t.status + "\n")
	}
	t.edit.Write([]byte(b.String()))
}

// rowsOf is how many rows an unfinished line takes.
func rowsOf(text string, width int) int {
	if text == "" {
		return 0
	}
	return max(1, (displayWidth(text)+width-1)/width)
}

// displayWidth is how many columns a line takes, without the sequences of its styles.
func displayWidth(text string) int {
	for {
		before, rest, found := strings.Cut(text, "\x1b[")
		if !found {
			return display.TextWidth(text)
		}
		_, rest, _ = strings.Cut(rest, "m")
		text = before + rest
	}
}

// SetStatus shows a line above the prompt, or none. It is hidden while a line is edited.
func (t *Terminal) SetStatus(status string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if status == t.status {
		return
	}
	t.status = status
	if status != "" || t.visible {
		t.print(true)
	}
}

func (t *Terminal) PrintedAt() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.printed
}

// Prompt shows a prompt and says what an answer is about. It prints first what belongs above it. If the prompt is
// about a request, output is held from now on: text of a model could look like another request. A line that was begun
// keeps the prompt it was begun with.
func (t *Terminal) Prompt(prompt, shown string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pending.Len() > 0 {
		t.print(false)
	}
	t.shown, t.holdsOutput = shown, shown != ""
	if prompt != t.prompt && !t.begun {
		t.prompt = prompt
		t.edit.SetPrompt(prompt)
		if !t.awaitsNext {
			t.print(true)
		}
	}
	if t.handled {
		t.awaitsNext, t.handled, t.partial, t.visible = false, false, "", false
		t.entered <- struct{}{}
	}
}

// SetCompletions sets the lines to which Tab can complete the edited one.
func (t *Terminal) SetCompletions(completions []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.completions = completions
}

// complete is golang.org/x/term's callback for a key. At Tab it adds to the line what all completions that begin with
// it have in common. If they have nothing more in common, it prints them.
func (t *Terminal) complete(line string, at int, key rune) (string, int, bool) {
	if key != '\t' {
		return "", 0, false
	}
	t.mu.Lock()
	var fit []string
	for _, c := range t.completions {
		if at == len(line) && strings.HasPrefix(c, line) {
			fit = append(fit, c)
		}
	}
	t.mu.Unlock()
	if len(fit) == 0 {
		return line, at, true
	}
	shared := fit[0]
	for _, c := range fit[1:] {
		for !strings.HasPrefix(c, shared) {
			shared = shared[:len(shared)-1]
		}
	}
	if shared == line && len(fit) > 1 {
		fmt.Fprintln(t, strings.Join(fit, "  "))
	}
	return shared, len(shared), true
}

// Handled notes that the entered line was handled: the next is read below the next prompt.
func (t *Terminal) Handled() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.handled = true
}

// Suggest puts a text into the edited line, for the person to change.
func (t *Terminal) Suggest(text string) {
	t.mu.Lock()
	shown := t.shown
	t.mu.Unlock()
	select {
	case t.arrived <- keys{[]byte("\x1b[200~" + text + "\x1b[201~"), shown}:
	default: // the person has typed much meanwhile
	}
}

// maxTypedLine is the longest line, in characters, that golang.org/x/term takes from a keyboard.
const maxTypedLine = 4096

// Lines reads lines until the terminal ends. A line that ends with a backslash goes on in the next, and so does a
// pasted one: no pasted text is sent before Enter is pressed.
func (t *Terminal) Lines() <-chan Line {
	out := make(chan Line)
	go func() {
		defer close(out)
		select {
		case <-t.entered:
		case <-t.done.Done():
			return
		}
		whole := ""
		for {
			line, err := t.edit.ReadLine()
			if t.wasCleared() {
				whole = ""
			}
			pasted := errors.Is(err, term.ErrPasteIndicator)
			if err != nil && !pasted {
				return
			}
			more, continued := strings.CutSuffix(line, `\`)
			if pasted || continued {
				if pasted {
					more = line
				}
				whole += more + "\n"
				t.continueLine()
				continue
			}
			if !t.enter(out, Line{Text: fromSymbols.Replace(whole + line), Typed: true}) {
				return
			}
			whole = ""
		}
	}()
	return out
}

// wasCleared reports whether Ctrl-C cleared what was typed since the last line.
func (t *Terminal) wasCleared() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.cleared
	t.cleared = false
	return was
}

// continueLine lets the next line belong to the one before.
func (t *Terminal) continueLine() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.awaitsNext, t.partial, t.visible = false, "", false
	t.prompt = "… "
	t.edit.SetPrompt(t.prompt)
}

// enter hands a line on and waits until it was handled.
func (t *Terminal) enter(out chan<- Line, line Line) bool {
	t.mu.Lock()
	line.Shown, t.begun, t.prompt = t.shownAtStart, false, ""
	t.edit.SetPrompt("")
	t.mu.Unlock()
	if utf8.RuneCountInString(line.Text) == maxTypedLine {
		fmt.Fprintf(t, "The line has %d characters, which is the most that can be typed: its end may be missing. Paste it, or use -m.\n", maxTypedLine)
		line.Text = ""
	}
	select {
	case out <- line:
	case <-t.done.Done():
		return false
	}
	select {
	case <-t.entered:
		return true
	case <-t.done.Done():
		return false
	}
}

// A line that is edited shows line ends and tabs as symbols.
var (
	toSymbols   = strings.NewReplacer("\n", "␤", "\t", "␉")
	fromSymbols = strings.NewReplacer("␤", "\n", "␉", "\t")
)

// Editable returns a text as one line that can be edited. ok is false when it has characters that would not survive
// that.
func Editable(text string) (line string, ok bool) {
	if strings.ContainsAny(text, "␤␉") || display.Exact(text) != text {
		return "", false
	}
	return toSymbols.Replace(text), true
}
