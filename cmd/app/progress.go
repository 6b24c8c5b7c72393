package app

import (
	"fmt"
	"io"
	"sync"
	"time"

	"pocketcoder/cmd/datadir"
	"pocketcoder/cmd/program"
)

// progress prints the progress of a start, one line for each part. Then it prints what runs, and the link that creates
// the first administrator. It is safe for concurrent use: lines of several goroutines do not mix.
type progress struct {
	mu    sync.Mutex
	w     io.Writer
	began time.Time
}

func newProgress(w io.Writer) *progress { return &progress{w: w, began: time.Now()} }

func (p *progress) line(mark, part, format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.w, "%5.1fs %s %-10s %s\n", time.Since(p.began).Seconds(), mark, part, fmt.Sprintf(format, args...))
}

// Step prints what has begun, Done what has ended, and Note what a person should know.
func (p *progress) Step(part, text string)                { p.line("·", part, "%s", text) }
func (p *progress) Done(part, format string, args ...any) { p.line("✓", part, format, args...) }
func (p *progress) Note(part, format string, args ...any) { p.line("!", part, format, args...) }

type startedSystem struct {
	datadir.Running
	URL       string // under which people reach the web server
	Data      datadir.Dir
	OpenCode  string // path and version
	Model     string // what answers, for a person
	WorkerPID int
}

// Ready prints what runs where, and what to try next.
func (p *progress) Ready(s startedSystem) {
	p.Done("ready", "pid %d", s.PID)
	fmt.Fprintf(p.w, `
  web         open %[1]s in a browser (API: %[1]s/docs)
  log         %[2]s (for the nats CLI: %[8]s admin nats-context)
  opencode    %[3]s
  model       %[4]s
  sandbox     worker pid %[5]d in %[6]s
  data        %[7]s

Try, in another terminal:

  %[8]s chat               talk, and approve what may run
  %[8]s chat -m "hello"    one question
  %[8]s chats
  %[8]s replay CHAT

Ctrl-C stops everything.
`, s.URL, s.NATS, s.OpenCode, s.Model, s.WorkerPID, s.Workspace, s.Data, program.Name())
}
