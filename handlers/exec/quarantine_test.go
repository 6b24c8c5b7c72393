package exec

import (
	"context"
	"encoding/json"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/handlers"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/permission"
	"pocketcoder/ops/expect"
	"pocketcoder/ops/natsconf"
	"pocketcoder/sandbox/wire"
)

// quarantine is a worker whose commands create protected names.
type quarantine struct {
	creates      []wire.Quarantined // in the result of Run
	whileRunning []wire.Quarantined // returned by Report
	end          chan struct{}      // when closed, the commands end; if nil, they end at once
	answer       wire.Result        // to each operation on a name

	mu  sync.Mutex
	ops []string
}

func (q *quarantine) handle(_ context.Context, r wire.Request, _, _ io.Writer) wire.Result {
	if r.Op == wire.Run {
		if q.end != nil {
			<-q.end
		}
		return wire.Result{Quarantined: q.creates}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if r.Op == wire.Report {
		return wire.Result{Quarantined: q.whileRunning}
	}
	if r.Op == wire.Expect {
		q.ops = append(q.ops, "expect "+r.Path)
		return wire.Result{}
	}
	if r.Op == wire.Keep || r.Op == wire.Dismiss {
		q.ops = append(q.ops, string(r.Op)+" "+r.Item)
		return q.answer
	}
	return wire.Result{}
}

func (q *quarantine) done() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return append([]string{}, q.ops...)
}

func (q *quarantine) serve(s *system) (stop func()) {
	nc := s.connect(natsconf.Worker)
	return s.run(nc, func(ctx context.Context) error {
		return wire.Serve(ctx, nc, wire.RunSubject("local"), wire.Server{
			Info: wire.WorkerInfo{Name: "here", Isolation: "bwrap", Workspace: s.workspace}, Handle: q.handle})
	})
}

func file(id, name string) wire.Quarantined {
	return wire.Quarantined{ID: id, Name: name, Kind: wire.FileKind, Bytes: 6, Text: "ls -l\n"}
}

// decideKeep decides the request for a name as a person.
func (s *system) decideKeep(name string, d events.Decision) events.PermissionRequested {
	s.t.Helper()
	_, asked := handlerstest.Await(s.t, s.Log, func(d events.PermissionRequested) bool {
		return d.Type == events.KindKeep && d.Patterns[0] == name
	})
	_, err := s.Permissions.Decide(s.t.Context(), permission.Decide{Command: handlers.Command{Actor: handlerstest.Alice},
		Chat: "c1", Permission: asked.Permission, Decision: d})
	is.New(s.t).NoErr(err)
	return asked
}

func (s *system) applied(permissionID string) events.PermissionApplied {
	s.t.Helper()
	_, d := handlerstest.Await(s.t, s.Log, func(d events.PermissionApplied) bool { return d.Permission == permissionID })
	return d
}

func TestProtectedNameThatACommandCreatesBecomesARequest(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	q := &quarantine{creates: []wire.Quarantined{
		{ID: "q1", Name: ".envrc", Kind: wire.FileKind, Bytes: 40 << 10, Text: "export KEY=" + handlerstest.Canary + "\n", Cut: true},
		{ID: "q2", Name: ".vscode", Kind: wire.FolderKind, Bytes: 12, Files: 2, Text: "tasks.json 12\n"},
	}}
	q.serve(s)
	_, _, _ = s.shell(t.Context(), s.authorized("./configure"))
	finished := s.finished()
	_, data := handlerstest.History(t, s.Log, "c1")
	asked := handlerstest.Of[events.PermissionRequested](data)
	is.Equal(len(asked), 2)
	is.Equal(finished.Quarantined, []events.Quarantined{
		{Item: "q1", Name: ".envrc", Kind: "file", Bytes: 40 << 10, Permission: asked[0].Permission},
		{Item: "q2", Name: ".vscode", Kind: "folder", Bytes: 12, Files: 2, Permission: asked[1].Permission},
	})
	is.Equal(asked[0].Type, events.KindKeep)
	is.Equal(asked[0].Patterns, []string{".envrc"})
	is.Equal(asked[0].Message, "A command created .envrc. Keep it?")
	var about events.KeepMetadata
	is.NoErr(json.Unmarshal(asked[0].Metadata, &about))
	is.Equal(about, events.KeepMetadata{
		Quarantined: events.Quarantined{Item: "q1", Name: ".envrc", Kind: "file", Bytes: 40 << 10},
		Exec:        finished.Exec, Command: "./configure", Text: "export KEY=" + events.Redacted + "\n", Cut: true,
	})
}

// A background command can run for days.
func TestProtectedNameOfARunningCommandBecomesARequest(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.exec.reportEvery = time.Millisecond
	q := &quarantine{whileRunning: []wire.Quarantined{file("q1", ".envrc")},
		creates: []wire.Quarantined{file("q1", ".envrc"), file("q2", ".npmrc")}, end: make(chan struct{})}
	q.serve(s)
	_, _, _ = s.shell(t.Context(), s.authorized("detach ./serve"))
	s.applied(s.decideKeep(".envrc", events.Authorized).Permission)
	_, data := handlerstest.History(t, s.Log, "c1")
	is.Equal(len(handlerstest.Of[events.ExecFinished](data)), 0)
	close(q.end)
	var names []string
	for _, n := range s.finished().Quarantined {
		names = append(names, n.Name)
	}
	is.Equal(names, []string{".envrc", ".npmrc"})
	_, data = handlerstest.History(t, s.Log, "c1")
	is.Equal(len(handlerstest.Of[events.PermissionRequested](data)), 2)
}

func TestDecisionAboutACreatedNameIsCarriedOutInTheWorker(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	q := &quarantine{creates: []wire.Quarantined{file("q1", ".envrc"), file("q2", ".npmrc")}}
	q.serve(s)
	_, _, _ = s.shell(t.Context(), s.authorized("./configure"))
	kept := s.decideKeep(".envrc", events.Authorized)
	is.Equal(s.applied(kept.Permission), events.PermissionApplied{Permission: kept.Permission})
	deleted := s.decideKeep(".npmrc", events.Denied)
	is.Equal(s.applied(deleted.Permission), events.PermissionApplied{Permission: deleted.Permission})
	is.Equal(q.done(), []string{"keep q1", "dismiss q2"})
}

func TestRefusalOfTheWorkerIsRecorded(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	q := &quarantine{creates: []wire.Quarantined{file("q1", ".envrc")},
		answer: wire.Result{ExitCode: wire.ExitRefused, Reason: wire.Refused, Error: ".envrc exists now"}}
	q.serve(s)
	_, _, _ = s.shell(t.Context(), s.authorized("./configure"))
	kept := s.decideKeep(".envrc", events.Authorized)
	is.New(t).Equal(s.applied(kept.Permission).Error, ".envrc exists now")
}

// A decision that is made while no worker runs reaches the worker once it is back, also through another process.
func TestDecisionAboutACreatedNameWaitsForTheWorker(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	q := &quarantine{creates: []wire.Quarantined{file("q1", ".envrc"), file("q2", ".npmrc")}}
	stop := q.serve(s)
	_, _, _ = s.shell(t.Context(), s.authorized("./configure"))
	s.applied(s.decideKeep(".npmrc", events.Denied).Permission)
	stop()
	kept := s.decideKeep(".envrc", events.Authorized)
	s.stop()
	again := &Executions{Permissions: &permission.Permissions{Log: s.Log}, Log: s.Log, Conn: s.connect(natsconf.Core),
		Engine: "local", Pool: "local", Workspace: s.workspace, Logger: handlerstest.Quiet()}
	s.background(again.Run)
	q.serve(s)
	is.Equal(s.applied(kept.Permission).Error, "")
	is.Equal(q.done(), []string{"dismiss q2", "keep q1"}) // and no decision a second time
}

func TestAProcessWithoutProgressSkipsDecisionsThatWereCarriedOut(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	q := &quarantine{creates: []wire.Quarantined{file("q1", ".envrc"), file("q2", ".npmrc")}}
	stop := q.serve(s)
	_, _, _ = s.shell(t.Context(), s.authorized("./configure"))
	stop()
	s.stop()
	s.decideKeep(".envrc", events.Authorized)
	applied, err := s.Log.Last(t.Context())
	is.NoErr(err)
	open := s.decideKeep(".npmrc", events.Denied)
	again := &Executions{Permissions: &permission.Permissions{Log: s.Log}, Log: s.Log, Conn: s.connect(natsconf.Core),
		Engine: "local", Pool: "local", Workspace: s.workspace, Logger: handlerstest.Quiet(),
		Applied: func(context.Context) (uint64, error) { return applied, nil }}
	eventstest.DeleteConsumer(t, again.Conn, keepConsumer)
	s.background(again.Run)
	q.serve(s)
	is.Equal(s.applied(open.Permission).Error, "")
	is.Equal(q.done(), []string{"dismiss q2"})
}

// A worker reports a name again after a restart, to the command of any chat.
func TestNameThatIsReportedAgainHasOneRequest(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	_, _, err := s.Chats.Create(t.Context(), chat.Create{Chat: "c2"})
	is.NoErr(err)
	q := &quarantine{creates: []wire.Quarantined{file("q1", ".envrc")}}
	q.serve(s)
	shell := func(x *Executions, chat string) {
		t.Helper()
		r := wire.Request{Session: chat, Terminal: &wire.Terminal{Rows: 24, Cols: 80}}
		is.Equal(x.shell(t.Context(), handlerstest.Alice, nil, r, io.Discard, io.Discard).Reason, wire.Exited)
	}
	again := &Executions{Log: s.Log, Conn: s.connect(natsconf.Core), Pool: "local", Workspace: s.workspace,
		Logger: handlerstest.Quiet()}
	shell(s.exec, "c1")
	q.creates = append(q.creates, file("q2", ".npmrc"), file("q2", ".npmrc"))
	shell(again, "c2") // of another process
	shell(s.exec, "c1")
	shell(again, "c2")
	for chat, name := range map[string]string{"c1": ".envrc", "c2": ".npmrc"} {
		_, data := handlerstest.History(t, s.Log, chat)
		var listed []string
		for _, d := range handlerstest.Of[events.ExecFinished](data) {
			for _, q := range d.Quarantined {
				listed = append(listed, q.Name)
			}
		}
		is.Equal(listed, []string{name})
		asked := handlerstest.Of[events.PermissionRequested](data)
		is.Equal(len(asked), 1)
		is.Equal(asked[0].Patterns, []string{name})
		is.Equal(asked[0].Permission, events.KeepRequestID(asked[0].Request().Keep().Item))
	}
}

// The consumer that delivers decisions may be lost, so that all of them come again.
func TestDecisionThatWasCarriedOutIsNotRepeated(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	q := &quarantine{creates: []wire.Quarantined{file("q1", ".envrc")}}
	q.serve(s)
	_, _, _ = s.shell(t.Context(), s.authorized("./configure"))
	kept := s.decideKeep(".envrc", events.Authorized)
	s.applied(kept.Permission)
	all, _ := handlerstest.History(t, s.Log, "c1")
	for _, e := range all {
		is.NoErr(s.exec.applyDecision(t.Context(), e))
	}
	is.Equal(q.done(), []string{"keep q1"})
}

// Only the sandbox makes requests that lead to an operation, and only a person's decision does.
func TestForeignRequestToKeepANameDoesNothing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	q := &quarantine{creates: []wire.Quarantined{file("q1", ".envrc")}}
	q.serve(s)
	metadata := events.MustEncode(events.KeepMetadata{Quarantined: events.Quarantined{Item: "q7", Name: ".envrc"}})
	_, _, err := s.Permissions.Submit(t.Context(), permission.Submit{Chat: "c1", Type: events.KindKeep,
		Metadata: metadata})
	is.Equal(handlerstest.Refusal(t, err), handlers.Invalid)
	handlerstest.Happened(t, s.Log, "c1", handlerstest.Fact{By: handlerstest.Alice, Data: events.PermissionRequested{
		Permission: "forged", Type: events.KindKeep, Patterns: []string{".npmrc"}, Metadata: metadata}})
	s.decideKeep(".npmrc", events.Authorized)
	_, _, _ = s.shell(t.Context(), s.authorized("./configure"))
	_, asked := handlerstest.Await(t, s.Log, func(d events.PermissionRequested) bool { return d.Patterns[0] == ".envrc" })
	_, err = s.Permissions.Decide(t.Context(), permission.Decide{Command: handlers.Command{Actor: events.ActorPolicy},
		Chat: "c1", Permission: asked.Permission, Decision: events.Authorized})
	expect.Contains(t, err.Error(), "Only a person")
	s.applied(s.decideKeep(".envrc", events.Denied).Permission) // decisions of a chat are carried out in order
	is.Equal(q.done(), []string{"dismiss q1"})
}

func TestWorkerExpectsTheNamesThatAnEditCreates(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	q := &quarantine{}
	q.serve(s)
	edit := func(metadata string) {
		s.exec.ExpectEdit(t.Context(), events.PermissionRequest{Permission: "edit", Metadata: json.RawMessage(metadata)},
			s.workspace)
	}
	edit(`{"filepath":"` + s.workspace + `/AGENTS.md"}`)
	edit(`{"filepath":"` + s.workspace + `/README.md"}`) // is not protected
	edit(`{"filepath":"/elsewhere/.envrc"}`)
	edit(`{"files":[{"filePath":"` + s.workspace + `/.vscode/tasks.json"},{"filePath":"` + s.workspace +
		`/README.md","movePath":"` + s.workspace + `/.idea/b/c"}]}`)
	is.Equal(q.done(), []string{"expect AGENTS.md", "expect .vscode", "expect .idea"})
}
