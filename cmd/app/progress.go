package app

import (
	"fmt"
	"io"
	"sync"
	"time"

	"pocketcoder/cmd/datadir"
	"pocketcoder/cmd/program"
)

// progress says what happens while the system starts, a line for each thing.
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

// step says what is under way, done what is done, note what a person should know.
func (p *progress) step(part, text string)                { p.line("·", part, "%s", text) }
func (p *progress) done(part, format string, args ...any) { p.line("✓", part, format, args...) }
func (p *progress) note(part, format string, args ...any) { p.line("!", part, format, args...) }

// ready says what runs where, and what to try next.
func (p *progress) ready(r datadir.Running, s *System) {
	model := s.outbox.Configured()
	switch host := s.modelHost(); {
	case s.isDemo:
		model = "the demo model (no key of a provider was found): a script, not an AI"
	case model == "":
		model = "the model that OpenCode recommends"
	case host != "":
		model += " at " + host
	}
	p.done("ready", "pid %d", r.PID)
	fmt.Fprintf(p.w, `
  web         open %[1]s in a browser (API: %[1]s/docs)
  log         %[2]s (for the nats CLI: %[9]s admin nats-context)
  opencode    %[3]s %[4]s
  model       %[5]s
  sandbox     worker pid %[6]d in %[7]s
  data        %[8]s

Try, in another terminal:

  %[9]s chat               talk, and approve what may run
  %[9]s chat -m "hello"    one question
  %[9]s chats
  %[9]s replay CHAT

Ctrl-C stops everything.
`, r.HTTP, r.NATS, s.engine.Tools.OpenCode, s.engine.Tools.Version, model, s.worker.PID(), r.Workspace, s.o.Data, program.Name())
}
