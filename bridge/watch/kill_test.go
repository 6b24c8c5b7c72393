package watch_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode/bridgetest"
	"pocketcoder/bridge/opencode/client"
	"pocketcoder/bridge/watch"
	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers/delegate"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

// play is a chief with two delegates, one of assign and one of handoff, and a system that is killed in the middle. The
// kill takes everything but the log, the read models and OpenCode's database.
type play struct {
	t     *testing.T
	chief string // its chat
	root  *bridgetest.System
	both  bool // the kill takes OpenCode too

	mu        sync.Mutex
	system    *bridgetest.System // of the process that runs
	delegates *delegate.Delegates
	running   *bridgetest.Running
	stop      func() // ends what runs
	played    map[string]bool
	asked     []string // texts of the prompts, in order
	playing   int      // turns that are played now
}

// newPlay starts the play.
func newPlay(t *testing.T, both bool) *play {
	s := bridgetest.NewSystem(t)
	p := &play{t: t, root: s, system: s, both: both, played: map[string]bool{}}
	s.RefuseWith(func(r bridgetest.Request) int {
		if strings.HasSuffix(r.Path, "/prompt_async") {
			go p.take(r)
		}
		return 0
	})
	p.start()
	return p
}

// start runs what a process runs.
func (p *play) start() {
	s := p.system
	p.delegates = &delegate.Delegates{Log: s.Log, Chats: s.Chats, Records: s.Records,
		In: func(context.Context, string) (delegate.Place, error) {
			return delegate.Place{Workspace: "/"}, nil
		}}
	running := s.Start()
	p.running = running
	ctx, cancel := context.WithCancel(p.t.Context())
	done := make(chan struct{})
	w := watch.Delegates{Delegates: p.delegates, Log: s.Log, Model: s.Model, Logger: handlerstest.Quiet(),
		Pause: time.Millisecond}
	go func() { defer close(done); w.Run(ctx) }()
	p.stop = func() { cancel(); running.Stop(); <-done }
	p.t.Cleanup(p.stop)
}

// kill kills the process, and starts the next.
func (p *play) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.both {
		p.root.Forget()
	}
	p.system = p.system.Killed(p.stop)
	p.start()
}

// now returns the commands of the process that runs.
func (p *play) now() *delegate.Delegates {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.delegates
}

// take plays the turn of a prompt once. The turn ends with the OpenCode process that accepted the prompt.
func (p *play) take(r bridgetest.Request) {
	var body struct {
		MessageID string
		Parts     []struct{ Text string }
	}
	if json.Unmarshal([]byte(r.Body), &body) != nil {
		p.t.Errorf("prompt %s", r.Body)
		return
	}
	p.mu.Lock()
	isKnown := p.played[body.MessageID]
	p.played[body.MessageID] = true
	if isKnown {
		p.mu.Unlock()
		return
	}
	p.asked = append(p.asked, body.Parts[0].Text)
	p.playing++
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.playing--
	}()
	process := p.root.AwaitPrompt(body.MessageID)
	a := answer{p, process, strings.Split(r.Path, "/")[2], client.NewID("msg", time.Now()), body.MessageID}
	a.message("")
	if body.Parts[0].Text == "lead" {
		a.delegate("assign", "one")
		a.delegate("handoff", "two")
	}
	a.part("text", `"text":"said"`)
	a.message(`,"completed":2`)
	a.happen(bridgetest.Plain("session.status", fmt.Sprintf(`{"sessionID":%q,"status":{"type":"idle"}}`, a.session)))
}

// answer is an assistant message of OpenCode.
type answer struct {
	*play
	process             int // the OpenCode process that writes it
	session, id, prompt string
}

// happen makes the frames true, unless OpenCode was killed.
func (a answer) happen(frames ...[]byte) { a.root.HappenIn(a.process, frames...) }

func (a answer) message(completed string) {
	a.happen(a.root.Durably(a.session, "message.updated", fmt.Sprintf(
		`{"sessionID":%q,"info":{"id":%q,"sessionID":%[1]q,"role":"assistant","parentID":%[3]q,"time":{"created":1%[4]s}}}`,
		a.session, a.id, a.prompt, completed))...)
}

func (a answer) part(typ, fields string) {
	a.happen(a.root.Durably(a.session, "message.part.updated", fmt.Sprintf(
		`{"sessionID":%q,"part":{"id":"prt_%s_%s","messageID":%[3]q,"type":%[2]q,%[4]s}}`, a.session, typ, a.id, fields))...)
}

// delegate plays a call of assign or handoff. Its error is that of a connection that ended with our process.
func (a answer) delegate(tool, text string) {
	call := tool + a.id
	part := func(state string) {
		a.happen(a.root.Durably(a.session, "message.part.updated", fmt.Sprintf(
			`{"sessionID":%q,"part":{"id":"prt_%s","messageID":%q,"type":"tool","tool":"pocketcoder_%s","callID":%[2]q,"state":%[5]s}}`,
			a.session, call, a.id, tool, state))...)
	}
	part(`{"status":"running","input":{}}`)
	var out any
	w, wait := a.now(), tool == "handoff"
	started, err := w.Start(a.t.Context(), delegate.Start{Message: text, Wait: wait,
		Parent: delegate.Caller{Chat: a.chief, Session: a.session, Message: a.id, Call: call}})
	if out = started; err == nil && wait {
		out, err = w.Result(a.t.Context(), started.Delegate, started.Message)
	}
	if err != nil {
		part(`{"status":"error","error":"the connection ended"}`)
		return
	}
	output, err := json.Marshal(out)
	a.root.Must(err)
	part(fmt.Sprintf(`{"status":"completed","output":%q}`, output))
}

// run lets the chief begin, kills the process when the log has n events, and returns how many there are in the end. For
// n = 0 it kills nothing.
func (p *play) run(n int) (total int) {
	observer := p.root.Observer()
	p.chief = p.root.Chat()
	p.root.Submit(p.chief, "lead")
	if n > 0 {
		left := n
		p.root.Must(observer.Read(p.t.Context(), 0, nil, func(b log.Batch) error {
			if left -= len(b.Events); left <= 0 {
				return events.ErrStop
			}
			return nil
		}))
		p.kill()
	}
	p.running.Connected() // else a marker of Drained has no reader
	expect.Eventually(p.t, fmt.Sprint("everything ends, after a kill at ", n), func() bool {
		if !p.hasEnded() {
			return false
		}
		p.system.Drained()
		return p.hasEnded()
	})
	p.check(n)
	return len(p.system.Events(events.AllEvents))
}

// hasEnded reports whether the chief's turn is over and every delegate has a result that reached the chief.
func (p *play) hasEnded() bool {
	last, err := p.system.Log.Last(p.t.Context())
	p.root.Must(err)
	p.root.Must(p.system.Model.Wait(p.t.Context(), last))
	chief, _, err := p.system.Model.Chat(p.t.Context(), p.chief)
	p.root.Must(err)
	if chief.Turn != projections.TurnUser || !p.hasPlayed("lead") {
		return false
	}
	results, carried, received := p.count()
	for _, w := range p.started() {
		m := events.FirstMessageOf(w)
		if results[m] == 0 || carried[m]+received[m] == 0 {
			return false
		}
	}
	return true
}

// hasPlayed reports whether OpenCode was asked a text, and plays nothing.
func (p *play) hasPlayed(text string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.playing == 0 && slices.Contains(p.asked, text)
}

// started lists the delegates of the log.
func (p *play) started() (ids []string) {
	for _, e := range p.system.Events(events.ChatSubject("*", events.ChatCreated{}.Kind())) {
		if d, _ := events.Decode(e); d.(events.ChatCreated).Parent != nil {
			ids = append(ids, e.Subject.ID)
		}
	}
	return ids
}

// count counts by delegated message: the results, the messages that carried one to the chief, and the outputs of calls
// that did.
func (p *play) count() (results, carried, received map[string]int) {
	results, carried, received = map[string]int{}, map[string]int{}, map[string]int{}
	for _, e := range p.system.Events(events.AllEvents) {
		switch d, _ := events.Decode(e); d := d.(type) {
		case events.DelegateFinished:
			results[d.Message]++
		case events.MessageSubmitted:
			for _, id := range d.Results {
				carried[id]++
			}
		}
	}
	for _, e := range p.system.OpenCodeEvents(p.chief, "message.part.updated") {
		var b struct {
			Part struct {
				State struct{ Status, Output string }
			}
		}
		p.root.Must(json.Unmarshal(e.Data, &b))
		for _, r := range events.ReceiptsIn(b.Part.State.Output) {
			received[r.Message]++
		}
	}
	return results, carried, received
}

func sum(counts map[string]int) (all int) {
	for _, n := range counts {
		all += n
	}
	return all
}

// check says that no delegate and no result is lost or doubled, and that OpenCode was asked each message once.
func (p *play) check(n int) {
	p.t.Helper()
	is := is.New(p.t)
	started := p.started()
	results, carried, received := p.count()
	if n == 0 {
		is.Equal(len(started), 2)
	}
	is.Equal(len(results), len(started))
	for _, w := range started {
		m := events.FirstMessageOf(w)
		is.Equal([]int{n, results[m], carried[m] + received[m]}, []int{n, 1, 1}) // killed at, results, that reached the chief
	}
	sent, times := map[string]int{}, map[string]int{}
	for _, e := range p.system.Events(events.ChatSubject("*", events.MessageSending{}.Kind())) {
		d, _ := events.Decode(e)
		sent[d.(events.MessageSending).Message]++
	}
	for id, count := range sent {
		is.Equal([]any{n, id, count}, []any{n, id, 1})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	is.Equal([]int{n, len(p.asked)}, []int{n, len(sent)})
	for _, text := range p.asked {
		times[text]++
		is.Equal([]any{n, text, times[text]}, []any{n, text, 1})
	}
}

// killStep is the number of events between the kills of one kind.
const killStep = 10

var (
	killAlone = flag.Int("kill.alone", 1+rand.IntN(killStep),
		"the first `event` at which PocketCoder alone is killed, up to 10")
	killAll = flag.Bool("kill.all", false, "kill both ways at each event")
)

// A kill at any event loses no result of a delegate and repeats none, in the middle of a handoff too. An ordinary run
// kills PocketCoder alone at every tenth event, from a random one on, and with OpenCode in the middle between them.
func TestAKillAtAnyEventLosesAndRepeatsNoResult(t *testing.T) {
	t.Parallel()
	alone, both, step := *killAlone, 1+(*killAlone-1+killStep/2)%killStep, killStep
	if *killAll {
		alone, both, step = 1, 1, 1
	}
	t.Logf("repeat with -kill.alone=%d", *killAlone)
	fault := expect.CountFault(t, "results", "deliveries of them")
	for name, c := range map[string]struct {
		both  bool
		first int
	}{"PocketCoder": {false, alone}, "PocketCoder and OpenCode": {true, both}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			total := 0
			t.Run("no kill", func(t *testing.T) { total = newPlay(t, c.both).run(0) })
			for n := c.first; n <= total; n += step {
				t.Run(fmt.Sprint(n), func(t *testing.T) {
					p := newPlay(t, c.both)
					p.run(n)
					fault.Tried()
					results, carried, received := p.count()
					fault.Saw(sum(results), sum(carried)+sum(received))
				})
			}
		})
	}
}
