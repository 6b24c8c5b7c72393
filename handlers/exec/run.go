package exec

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"pocketcoder/events"
	"pocketcoder/sandbox/wire"
)

// run is an execution between exec.requested and exec.finished.
type run struct {
	chat      string
	owner     string    // account of the chat, empty if it has none
	at        time.Time // when it was requested
	requested events.ExecRequested
	request   wire.Request
	input     chan wire.Input
	closed    chan struct{}      // closed when the execution accepts no more input
	end       context.CancelFunc // cancels the execution
	onStart   func(wire.Start)   // called when a worker has started it; may be nil

	started chan struct{} // closed when a worker has started it; the next fields are set before
	start   wire.Start    // the worker
	since   time.Time     // when it started

	reported    []wire.Quarantined   // names of its worker that have no request yet
	quarantined []events.Quarantined // names with a request from this execution

	used         atomic.Int64 // when it was requested, wrote output or had a connection last, in nanoseconds
	connections  atomic.Int64
	endedBecause atomic.Pointer[string] // why PocketCoder ended it; nil if it did not

	signalling sync.Mutex
	signals    map[string]sentSignal // by command id
	unrecorded []events.Event        // of signals that were sent while the log stored nothing
}

// pendingInput is the size of the buffer for signals and typed input.
const pendingInput = 16

func (x *Executions) newRun(chat, owner string, d events.ExecRequested) *run {
	u := &run{
		chat: chat, owner: owner, at: time.Now(), requested: d, input: make(chan wire.Input, pendingInput), closed: make(chan struct{}), started: make(chan struct{}),
		signals: map[string]sentSignal{},
	}
	u.request = wire.Request{
		Exec: d.Exec, Session: d.Session, Call: d.Call, Command: d.Command, Cwd: d.Cwd, Workspace: x.Workspace, Input: u.input, Loopback: chat,
		Started: func(s wire.Start) { x.started(u, s) },
	}
	u.use()
	if u.isLasting() {
		u.request.TimeoutMS, u.request.Ports = noTimeout, true
	}
	return u
}

// noTimeout is the longest possible time: 292 years in milliseconds. A request without a timeout gets that of the
// worker.
const noTimeout = int64(1<<63-1) / int64(time.Millisecond)

// isLasting reports whether the execution may run for days: it is detached, or a person's shell.
func (u *run) isLasting() bool { return u.requested.Detached || u.requested.Terminal }

// startInfo returns the worker of the execution, and reports whether it has started.
func (u *run) startInfo() (wire.Start, bool) {
	select {
	case <-u.started:
		return u.start, true
	default:
		return wire.Start{}, false
	}
}

// started handles the start of an execution by a worker.
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

// startDelay is how long a foreground command runs before its start is recorded. Most commands end earlier, and their
// result names the worker. A synced append for each start would slow down every command.
const startDelay = time.Second

// announce records the start of a command that is still running after startDelay, so that clients see where it runs.
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

// runRecorded runs a command whose exec.requested is recorded, and records the result. Both ctx and u.end cancel it.
func (x *Executions) runRecorded(ctx context.Context, u *run, stdout, stderr io.Writer) wire.Result {
	ctx, u.end = context.WithCancel(ctx)
	defer u.end()
	x.running.add(u)
	network, err := x.Network.For(ctx, u.chat, u.requested) // first, so that the recorder redacts the credentials
	defer x.Network.Done(u.requested.Exec)
	out := x.newRecorder(u.chat, u.requested)
	out.most = cmp.Or(x.output, out.most)
	model := stdout
	stdout, stderr = u.noting(out.tee("stdout", stdout)), u.noting(out.tee("stderr", stderr))
	var recording sync.WaitGroup
	if u.isLasting() {
		recording.Go(func() { x.requestWhileRunning(u) })
	} else {
		recording.Go(func() { x.announce(u) })
	}
	result := refused("the command was not run: %v", err)
	if u.request.Network = network; err == nil {
		result = u.withDuration(u.withEnd(out.withOutputLimit(x.runWithinShare(ctx, u, stdout, stderr))))
	}
	ended, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	notes := x.Network.End(ended, u.requested)
	if left := (*events.LeftProcesses)(result.Left); left != nil {
		notes = append(notes, left.Sentence())
	}
	if !u.requested.Terminal {
		writeNotes(model, notes, out)
	}
	x.running.remove(u)
	recording.Wait() // its events come before exec.finished
	d := out.finish(result)
	start, _ := u.startInfo()
	d.Worker, d.Isolation = start.Worker, start.Isolation
	err = x.recordRequests(ctx, u, result.Quarantined)
	d.Quarantined = u.quarantined
	u.signalling.Lock()
	signals := u.unrecorded
	u.signalling.Unlock()
	if err = errors.Join(err, x.recordAfter(ctx, signals, u.chat, d)); err != nil {
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
		_, _ = io.WriteString(model, line)
	}
}

// withDuration sets the duration of a lost execution, which no worker has measured.
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

// Tries to find a worker. A worker that restarts is back within 3 s. Before a worker answers, nothing has run.
const (
	workerTries = 6
	workerPause = 100 * time.Millisecond // doubled after each try: 3 s in all
)

func (x *Executions) forward(ctx context.Context, r wire.Request, stdout, stderr io.Writer) wire.Result {
	subject, pause := wire.RunSubject(x.Pool), workerPause
	for try := 1; ; try++ {
		result, err := wire.Call(ctx, x.Conn, subject, r, stdout, stderr)
		switch {
		case err == nil:
			return result
		case !errors.Is(err, wire.ErrNoWorker): // the command did not run
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

// record appends events of the sandbox, even if ctx has ended.
func (x *Executions) record(ctx context.Context, chat string, all ...events.Data) error {
	return x.recordAfter(ctx, nil, chat, all...)
}

// recordAfter appends the events before, and then all, in one batch.
func (x *Executions) recordAfter(ctx context.Context, before []events.Event, chat string, all ...events.Data) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	list := slices.Clone(before)
	for _, d := range all {
		e, err := events.New(chat, events.ActorSandbox, d)
		if err != nil {
			return err
		}
		list = append(list, e)
	}
	_, err := x.Log.AppendAll(ctx, list)
	return err
}

// RecordLost records that the result of an execution is unknown, because its process died while the command ran.
func (x *Executions) RecordLost(ctx context.Context, chat, exec string) error {
	err := x.record(ctx, chat, events.ExecFinished{
		Exec: exec, ExitCode: wire.ExitLost, Reason: string(wire.Lost), Error: "the system stopped while the command was running",
	})
	return errors.Join(err, x.Network.Expire(ctx, chat))
}

// runningExecutions holds the running executions. The zero value is empty.
type runningExecutions struct {
	mu       sync.Mutex
	byExec   map[string]*run
	deleted  map[string]bool // chats that were deleted since the start
	opened   chan struct{}   // closed by open; nil until it is needed
	stopping bool
	group    sync.WaitGroup // calls of Exec, and detached executions
}

// open lets calls of Exec begin.
func (r *runningExecutions) open() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.opening())
}

func (r *runningExecutions) opening() chan struct{} {
	if r.opened == nil {
		r.opened = make(chan struct{})
	}
	return r.opened
}

// begin adds a call of Exec to the group, once open was called. It reports false if ctx has ended or the process is
// stopping.
func (r *runningExecutions) begin(ctx context.Context) bool {
	r.mu.Lock()
	opened := r.opening()
	r.mu.Unlock()
	select {
	case <-opened:
	case <-ctx.Done():
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.stopping {
		r.group.Add(1)
	}
	return !r.stopping
}

// add adds an execution. It cancels the execution if its chat was deleted or the process is stopping.
func (r *runningExecutions) add(u *run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byExec == nil {
		r.byExec = map[string]*run{}
	}
	r.byExec[u.requested.Exec] = u
	if r.deleted[u.chat] || r.stopping {
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

// endChat cancels the executions of a deleted chat, also those that are added later.
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

// stop cancels the executions, also those that are added later.
func (r *runningExecutions) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopping = true
	for _, u := range r.byExec {
		u.end()
	}
}
