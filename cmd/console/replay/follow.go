package replay

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/console/render"
	"pocketcoder/cmd/program"
	"pocketcoder/cmd/viewer"
	"pocketcoder/events"
	"pocketcoder/events/log"
)

// FollowOptions selects the commands that are followed.
type FollowOptions struct {
	Chat    string
	Session string // empty for all
	Windows bool   // open one in tmux for each subagent at work
	At      client.Address
}

// Follow shows the output of a chat's commands while they run, until ctx or the chat ends.
func Follow(ctx context.Context, s *client.System, show *render.Renderer, o FollowOptions) error {
	t := newTranscript(show, s, o)
	if o.Windows {
		var err error
		if t.viewer, err = viewer.Open(ctx, o.At); err != nil {
			return err
		}
	}
	return t.run(ctx)
}

// transcript shows a chat's commands. One goroutine handles everything, so events and output keep their order.
type transcript struct {
	FollowOptions
	*client.System
	show   *render.Renderer
	out    io.Writer     // sequence from which it shows commands
	viewer viewer.Viewer // with windows

	from          uint64               // sequence of the first command that is shown
	joinedAt      time.Time            // time of the newest event before the transcript began
	outputTimeout time.Duration        // how long it waits for the fragments of an ended command
	allowed       map[string]string    // permission -> who allowed it
	hidden        map[string]bool      // executions that are not shown
	running       map[string]time.Time // executions without an end, and when they began
	agents        map[string]string    // subagents' sessions -> their agents
	busy          map[string]bool      // sessions at work
	opened        map[string]bool      // subagents' sessions with a window; nil until the first updateWindows
	caughtUp      bool

	arrived   chan log.Batch
	fragments chan log.Delta
	failed    chan error
}

func newTranscript(show *render.Renderer, s *client.System, o FollowOptions) *transcript {
	t := &transcript{
		FollowOptions: o, System: s, show: show, out: show.Out, outputTimeout: outputTimeout,
		allowed: map[string]string{}, hidden: map[string]bool{}, running: map[string]time.Time{},
		agents: map[string]string{}, busy: map[string]bool{},
		arrived: make(chan log.Batch), fragments: make(chan log.Delta, 256), failed: make(chan error, 2),
	}
	t.show.MaxLive, t.show.Email = math.MaxInt64, s.EmailOf(context.Background())
	return t
}

// transcriptBefore is how many commands that began earlier are shown.
const transcriptBefore = 50

// join finds out where to begin to show.
func (t *transcript) join(ctx context.Context) error {
	var begun []uint64
	_, err := t.Fold(ctx, t.Chat, 0, func(e events.Event, _ []byte) error {
		if t.joinedAt = e.Time; e.Subject.Kind == (events.ExecRequested{}).Kind() {
			begun = append(begun, e.Seq)
		}
		return nil
	}, append(slices.Clone(shownKinds), events.ChatCreated{}.Kind())...)
	if len(begun) > transcriptBefore {
		t.from = begun[len(begun)-transcriptBefore]
	}
	return err
}

// run shows the chat's commands until ctx or the chat ends, or the connection has been lost for too long.
func (t *transcript) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := t.join(ctx); err != nil {
		return err
	}
	t.show.Note("", render.Dim, "the commands of chat %s, as they run", t.Chat)
	go func() {
		t.failed <- t.Read(ctx, t.Chat, 0, func(b log.Batch) error { return client.Send(ctx, t.arrived, b) },
			shownKinds...)
	}()
	connection := t.Connected()
	var lost <-chan time.Time
	for t.show.Err == nil {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-t.failed:
			return err
		case d := <-t.fragments:
			t.fragment(d)
		case b := <-t.arrived:
			if over, err := t.applyBatch(ctx, b); over || err != nil {
				return err
			}
		case up := <-connection:
			if lost = nil; !up {
				lost = time.After(client.ReconnectTime)
			}
		case <-lost:
			return fmt.Errorf("the system has been away for %s; look again with: %s attach %s", client.ReconnectTime,
				program.Name(), t.Chat)
		}
	}
	return t.show.Err
}

// shownKinds are the kinds of events about commands, their approvals, the sessions that run them, and the end of the
// chat.
var shownKinds = []string{"exec.>", events.PermissionDecided{}.Kind(), events.SessionBound{}.Kind(),
	events.TurnLost{}.Kind(), events.Deleted{}.Kind(), "opencode.session.created", "opencode.session.status"}

// applyBatch shows events. Once it has caught up, it follows the output of the commands that run then.
func (t *transcript) applyBatch(ctx context.Context, b log.Batch) (over bool, err error) {
	t.showFragments()
	for _, e := range b.Events {
		if t.show.Out = t.out; e.Seq < t.from {
			t.show.Out = io.Discard
		}
		if over = t.event(ctx, e); over {
			t.show.Note("", render.Dim, "the chat was deleted")
			return true, t.endWindows(ctx)
		}
	}
	if b.Behind == 0 && !t.caughtUp {
		t.caughtUp = true
		since := t.joinedAt
		for _, began := range t.running {
			if began.Before(since) {
				since = began
			}
		}
		go func() {
			t.failed <- t.ReadDeltas(ctx, t.Chat, since, func(d log.Delta) {
				if d.Type == log.ExecOutput {
					_ = client.Send(ctx, t.fragments, d)
				}
			})
		}()
	}
	if !t.caughtUp {
		return false, nil
	}
	return t.Session != "" && !t.busy[t.Session], t.updateWindows(ctx)
}

// showFragments shows the fragments that have arrived. They precede the events that have arrived.
func (t *transcript) showFragments() {
	for {
		select {
		case d := <-t.fragments:
			t.fragment(d)
		default:
			return
		}
	}
}

// updateWindows opens a window for each subagent at work, and closes it with the end of its turn. The program in the
// window ends then too, but tmux does not always notice that (see viewer.CloseWindow).
func (t *transcript) updateWindows(ctx context.Context) error {
	if !t.Windows {
		return nil
	}
	if t.opened == nil {
		names, err := t.viewer.Windows(ctx, t.Chat)
		if err != nil {
			return err
		}
		t.opened = map[string]bool{}
		for session, agent := range t.agents { // a transcript that ended may have opened some
			t.opened[session] = slices.Contains(names, windowName(agent, session))
		}
	}
	for session, agent := range t.agents {
		if t.busy[session] == t.opened[session] {
			continue
		}
		name := windowName(agent, session)
		if t.opened[session] = t.busy[session]; !t.opened[session] {
			t.viewer.CloseWindow(ctx, t.Chat, name)
		} else if err := t.viewer.Follow(ctx, t.Chat, name, session); err != nil {
			return err
		}
	}
	return nil
}

// endWindows closes the windows of a deleted chat, and with them this program. Its own window would stay if tmux has
// not noticed that the program has ended. A server elsewhere cannot close them.
func (t *transcript) endWindows(ctx context.Context) error {
	if !t.Windows {
		return nil
	}
	return t.viewer.End(ctx, t.Chat)
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
