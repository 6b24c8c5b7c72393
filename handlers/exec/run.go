package exec

import (
	"cmp"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"pocketcoder/events"
	"pocketcoder/sandbox/wire"
)

// run is an execution on its way from exec.requested to exec.finished.
type run struct {
	chat      string
	owner     string    // account of the chat, empty if it has none
	at        time.Time // when it was requested
	requested events.ExecRequested
	request   wire.Request
	input     chan wire.Input
	closed    chan struct{}      // closed when it takes no more input
	end       context.CancelFunc // ends it
	onStart   func(wire.Start)   // called when a worker has taken it; nil for nothing

	started chan struct{} // closed when a worker has taken it: from then on there are
	start   wire.Start    // who has
	since   time.Time     // and when

	signalling sync.Mutex
	signals    map[string]recordedSignal // by command id
}

// pendingInput is how many signals, or pieces of what a person types, wait for the worker to take them.
const pendingInput = 16

func (x *Executions) newRun(chat, owner string, d events.ExecRequested) *run {
	u := &run{
		chat: chat, owner: owner, at: time.Now(), requested: d, input: make(chan wire.Input, pendingInput), closed: make(chan struct{}), started: make(chan struct{}),
		signals: map[string]recordedSignal{},
	}
	u.request = wire.Request{
		Exec: d.Exec, Session: d.Session, Call: d.Call, Command: d.Command, Cwd: d.Cwd, Workspace: x.Workspace, Input: u.input,
		Started: func(s wire.Start) { x.started(u, s) },
	}
	if u.isLasting() {
		u.request.TimeoutMS, u.request.Ports = noTimeout, true
	}
	return u
}

// noTimeout is the longest time there is: 292 years in milliseconds. A request without one gets the worker's own.
const noTimeout = int64(1<<63-1) / int64(time.Millisecond)

// isLasting says whether it may take days: nobody waits for it, or it is a person's shell.
func (u *run) isLasting() bool { return u.requested.Detached || u.requested.Terminal }

// startInfo says whether a worker has taken it, and which one.
func (u *run) startInfo() (wire.Start, bool) {
	select {
	case <-u.started:
		return u.start, true
	default:
		return wire.Start{}, false
	}
}

// started is told by the worker that has taken a command.
func (x *Executions) started(u *run, s wire.Start) {
	u.start, u.since = s, time.Now()
	close(u.started)
	if u.isLasting() {
		x.recordStart(u)
	}
	if u.onStart != nil {
		u.onStart(s)
	}
}

func (x *Executions) recordStart(u *run) {
	d := events.ExecStarted{Exec: u.requested.Exec, Worker: u.start.Worker, Isolation: u.start.Isolation}
	if err := x.record(context.Background(), u.chat, d); err != nil {
		x.Logger.Error("record the start of an exec", "exec", d.Exec, "err", err)
	}
}

// startDelay is how long a command that is waited for runs before its start is recorded, unless Exec says another. Of
// those that are over before, and they are most, the result says who has run them: a synced append for each would slow
// down every command.
const startDelay = time.Second

// announce records the start of a command that lasts, so that who looks while it runs sees where. Of one that is over
// it records nothing.
func (x *Executions) announce(u *run) {
	select {
	case <-u.started:
	case <-u.closed:
		return
	}
	select {
	case <-time.After(cmp.Or(x.startDelay, startDelay)):
		x.recordStart(u)
	case <-u.closed:
	}
}

// runRecorded has a command run that was recorded as requested, and records what comes of it. It ends with ctx, or when
// it is ended.
func (x *Executions) runRecorded(ctx context.Context, u *run, stdout, stderr io.Writer) wire.Result {
	ctx, u.end = context.WithCancel(ctx)
	defer u.end()
	x.running.add(u)
	network, err := x.Network.For(ctx, u.chat, u.requested) // first: the recorder learns what not to record
	defer x.Network.Done(u.requested.Exec)
	out := x.newRecorder(u.chat, u.requested)
	out.most = cmp.Or(x.output, out.most)
	model := stdout
	stdout, stderr = out.tee("stdout", stdout), out.tee("stderr", stderr)
	var announcing sync.WaitGroup
	if !u.isLasting() {
		announcing.Go(func() { x.announce(u) })
	}
	result := refused("the command was not run: %v", err)
	if u.request.Network = network; err == nil {
		result = u.withDuration(out.withOutputLimit(x.runWithinShare(ctx, u, stdout, stderr)))
	}
	ended, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	if notes := x.Network.End(ended, u.requested); !u.requested.Terminal {
		writeNotes(model, notes, out)
	}
	x.running.remove(u)
	announcing.Wait() // it comes before the end in the log, or not at all
	d := out.finish(result)
	start, _ := u.startInfo()
	d.Worker, d.Isolation = start.Worker, start.Isolation
	if err := x.record(ctx, u.chat, d); err != nil {
		x.Logger.Error("record exec", "exec", d.Exec, "err", err)
	}
	x.queueChanges(u, result)
	return result
}

// writeNotes writes notes for the model after the command's output. The notes are not recorded.
func writeNotes(model io.Writer, notes []string, printed *recorder) {
	for i, note := range notes {
		line := "[PocketCoder] " + note + "\n"
		if i == 0 && printed.taken.Load() > 0 {
			line = "\n" + line
		}
		_, _ = io.WriteString(model, line) // a caller that is gone is handled elsewhere
	}
}

// withDuration gives a lost execution, whose result no worker has measured, the time that it is known to have run.
func (u *run) withDuration(result wire.Result) wire.Result {
	if _, ok := u.startInfo(); ok && result.Reason == wire.Lost {
		result.DurationMS = time.Since(u.since).Milliseconds()
	}
	return result
}

// runWithinShare waits until the chat and its account may run another command, and runs the command.
func (x *Executions) runWithinShare(ctx context.Context, u *run, stdout, stderr io.Writer) wire.Result {
	leave, err := x.shares.take(ctx, u.chat, u.owner, u.isLasting())
	if err != nil {
		return refused("%v", err)
	}
	defer leave()
	return x.forward(ctx, u.request, stdout, stderr)
}

// Tries to find a worker: one that is being restarted is back within that time. Nothing has run before it answers.
const (
	workerTries = 6
	workerPause = 100 * time.Millisecond // doubled each time: 3 s in all
)

func (x *Executions) forward(ctx context.Context, r wire.Request, stdout, stderr io.Writer) wire.Result {
	subject, pause := wire.RunSubject(x.Pool), workerPause
	for try := 1; ; try++ {
		result, err := wire.Call(ctx, x.Conn, subject, r, stdout, stderr)
		switch {
		case err == nil:
			return result
		case !errors.Is(err, wire.ErrNoWorker): // and it certainly was not run
			x.Logger.Error("exec", "exec", r.Exec, "err", err)
			return refused("the command was not run: %v", err)
		case try == workerTries || ctx.Err() != nil:
			x.Logger.Warn("exec", "exec", r.Exec, "err", err)
			if why := wire.DeclinedError(""); errors.As(err, &why) {
				return refused("no sandbox worker of pool %q takes the command: %s", x.Pool, string(why))
			}
			return refused("no sandbox worker answers in pool %q", x.Pool)
		}
		select {
		case <-time.After(pause):
			pause *= 2
		case <-ctx.Done():
		}
	}
}

// record appends a fact of the sandbox's, whoever still waits for it.
func (x *Executions) record(ctx context.Context, chat string, d events.Data) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	e, err := events.New(chat, events.ActorSandbox, d)
	if err != nil {
		return err
	}
	_, err = x.Log.Append(ctx, e)
	return err
}

// RecordLost records that the result of an execution is unknown, because its handler died while it ran.
func (x *Executions) RecordLost(ctx context.Context, chat, exec string) error {
	err := x.record(ctx, chat, events.ExecFinished{
		Exec: exec, ExitCode: wire.ExitLost, Reason: string(wire.Lost), Error: "the system stopped while the command was running",
	})
	return errors.Join(err, x.Network.Expire(ctx, chat))
}

// runningExecutions is what runs now. The zero value is empty.
type runningExecutions struct {
	mu         sync.Mutex
	byExec     map[string]*run // by exec
	deleted    map[string]bool // chats that were deleted meanwhile
	stopping   bool
	background sync.WaitGroup // those nobody waits for
}

// add lets an execution be found. One that must not run any more is ended at once.
func (r *runningExecutions) add(u *run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byExec == nil {
		r.byExec = map[string]*run{}
	}
	r.byExec[u.requested.Exec] = u
	if r.deleted[u.chat] || r.stopping && u.requested.Detached {
		u.end()
	}
}

func (r *runningExecutions) remove(u *run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byExec, u.requested.Exec)
	close(u.closed)
}

func (r *runningExecutions) get(exec string) (*run, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	u, ok := r.byExec[exec]
	return u, ok
}

// endChat ends what runs in a chat, and what is about to.
func (r *runningExecutions) endChat(chat string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.deleted == nil {
		r.deleted = map[string]bool{}
	}
	r.deleted[chat] = true
	for _, u := range r.byExec {
		if u.chat == chat {
			u.end()
		}
	}
}

// stop ends what nobody waits for; the others end with who waits.
func (r *runningExecutions) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopping = true
	for _, u := range r.byExec {
		if u.requested.Detached {
			u.end()
		}
	}
}

func (r *runningExecutions) wait() { r.background.Wait() }
