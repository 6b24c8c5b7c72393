package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"

	"pocketcoder/events"
	"pocketcoder/events/log"
)

// transcriptOptions says whose commands are followed.
type transcriptOptions struct {
	chat    string
	session string  // empty for all
	windows bool    // open one in tmux for each subagent at work
	data    dataDir // of the tmux server
}

// followCommands shows what a chat's commands print, as they run, until ctx or the chat ends.
func followCommands(ctx context.Context, s *system, show *renderer, o transcriptOptions) error {
	if err := inLog(ctx, s.log, o.chat); err != nil {
		return err
	}
	t := newTranscript(show, s, o)
	if o.windows {
		var err error
		if t.viewer, err = openViewer(ctx, o.data); err != nil {
			return err
		}
	}
	return t.run(ctx)
}

// transcript shows a chat's commands. One goroutine does everything, so what happens and what is shown keep their order.
type transcript struct {
	transcriptOptions
	*system
	show   *renderer
	out    io.Writer // where it shows what is not too long ago
	viewer viewer    // with windows

	from     uint64               // sequence of the first command that is shown
	joined   time.Time            // when the newest event of all was stored before we came
	patience time.Duration        // fragmentsWait
	allowed  map[string]string    // permission -> who allowed it
	hidden   map[string]bool      // executions that are not shown
	running  map[string]time.Time // executions without an end, and when they began
	agents   map[string]string    // subagents' sessions -> their agents
	busy     map[string]bool      // sessions at work
	opened   map[string]bool      // subagents' sessions with a window
	caughtUp bool

	arrived   chan log.Batch
	fragments chan log.Delta
	failed    chan error
}

func newTranscript(show *renderer, s *system, o transcriptOptions) *transcript {
	t := &transcript{
		transcriptOptions: o, system: s, show: show, out: show.w, patience: fragmentsWait,
		allowed: map[string]string{}, hidden: map[string]bool{}, running: map[string]time.Time{},
		agents: map[string]string{}, busy: map[string]bool{}, opened: map[string]bool{},
		arrived: make(chan log.Batch), fragments: make(chan log.Delta, 256), failed: make(chan error, 2),
	}
	t.show.most, t.show.email = math.MaxInt64, s.emailOf(context.Background())
	return t
}

// transcriptBefore is how many commands that began earlier are shown.
const transcriptBefore = 50

// join finds out where to begin to show.
func (t *transcript) join(ctx context.Context) error {
	last, err := t.log.Last(ctx)
	if err != nil {
		return err
	}
	if t.joined, err = t.log.Stored(ctx, last); err != nil {
		return err
	}
	var begun []uint64
	note := func(e events.Event) error { begun = append(begun, e.Seq); return nil }
	if _, err := t.log.Fold(ctx, events.ChatSubject(t.chat, events.ExecRequested{}.Kind()), 0, note); err != nil {
		return err
	}
	if len(begun) > transcriptBefore {
		t.from = begun[len(begun)-transcriptBefore]
	}
	return nil
}

// run shows the chat's commands until ctx or the chat ends, or the system has been away for too long.
func (t *transcript) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := t.join(ctx); err != nil {
		return err
	}
	t.show.note("", dim, "the commands of chat %s, as they run", t.chat)
	go func() {
		t.failed <- t.log.Read(ctx, 0, t.filters(), func(b log.Batch) error { return handOn(ctx, t.arrived, b) })
	}()
	connection := t.connection()
	var lost <-chan time.Time
	for t.show.err == nil {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-t.failed:
			return err
		case d := <-t.fragments:
			t.fragment(d)
		case b := <-t.arrived:
			if over, err := t.take(ctx, b); over || err != nil {
				return err
			}
		case up := <-connection:
			if lost = nil; !up {
				lost = time.After(reconnectTime)
			}
		case <-lost:
			return fmt.Errorf("the system has been away for %s; look again with: %s attach %s", reconnectTime, commandName(), t.chat)
		}
	}
	return t.show.err
}

// filters are the events that say something about commands, who allowed them, and the sessions that run them.
func (t *transcript) filters() []string {
	return []string{
		events.ChatSubject(t.chat, "exec.*"), events.ChatSubject(t.chat, events.PermissionDecided{}.Kind()),
		events.ChatSubject(t.chat, events.SessionBound{}.Kind()), events.ChatSubject(t.chat, events.TurnLost{}.Kind()),
		events.ChatOpenCodeSubject(t.chat, "session.created"), events.ChatOpenCodeSubject(t.chat, "session.status"),
		events.ChatSubject(t.chat, events.Deleted{}.Kind()),
	}
}

// take shows events. Once it has caught up with them, it follows what the commands print that run by then.
func (t *transcript) take(ctx context.Context, b log.Batch) (over bool, err error) {
	t.drain()
	for _, e := range b.Events {
		if t.show.w = t.out; e.Seq < t.from {
			t.show.w = io.Discard
		}
		if over = t.event(ctx, e); over {
			t.show.note("", dim, "the chat was deleted")
			if t.windows {
				err = t.viewer.end(ctx, t.chat)
			}
			return true, err
		}
	}
	if b.Behind == 0 && !t.caughtUp {
		t.caughtUp = true
		since := t.joined
		for _, began := range t.running {
			if began.Before(since) {
				since = began
			}
		}
		go func() {
			t.failed <- t.log.ReadDeltas(ctx, since, []string{events.ExecDeltaSubject(t.chat, "*")}, func(d log.Delta) { _ = handOn(ctx, t.fragments, d) })
		}()
	}
	if !t.caughtUp {
		return false, nil
	}
	return t.session != "" && !t.busy[t.session], t.openWindows(ctx)
}

// drain shows the fragments that are here: what they show came before the events that are here.
func (t *transcript) drain() {
	for {
		select {
		case d := <-t.fragments:
			t.fragment(d)
		default:
			return
		}
	}
}

// openWindows opens a window for each subagent at work that has none. It closes with the end of its turn.
func (t *transcript) openWindows(ctx context.Context) error {
	for session, agent := range t.agents {
		if !t.busy[session] {
			delete(t.opened, session)
			continue
		}
		if !t.windows || t.opened[session] {
			continue
		}
		t.opened[session] = true
		names, err := t.viewer.windows(ctx, t.chat)
		if err != nil {
			return err
		}
		name := windowName(agent, session)
		if slices.Contains(names, name) { // a transcript that ended has opened it
			continue
		}
		if err := t.viewer.follow(ctx, t.chat, name, session); err != nil {
			return err
		}
	}
	return nil
}

// windowName is short, and has nothing in it that tmux or a terminal would understand.
func windowName(agent, session string) string {
	plain := func(s string) string {
		return strings.Map(func(r rune) rune {
			if r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-') {
				return r
			}
			return -1
		}, s)
	}
	agent, session = plain(agent), plain(session)
	return agent[:min(len(agent), 20)] + "-" + session[max(0, len(session)-4):]
}
