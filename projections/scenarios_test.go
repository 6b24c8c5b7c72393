package projections_test

import (
	"strings"
	"testing"

	"github.com/matryer/is"
)

// What clients are shown after each recorded scenario. A message sent by us is one row, from its submission to its
// answer.
var scenarios = map[string][]string{
	"01-simple-text": {
		`turn user`,
		`user delivered "@@say Hello from the fak"`,
		`assistant completed step-start "Hello from the fake mode" step-finish`,
	},
	"03-reasoning": {
		`turn user`,
		`user delivered "@@reason n=4 delay=30 @@"`,
		`assistant completed step-start reasoning "t0 t1 t2" step-finish`,
	},
	"04-bash-auto": {
		`turn user`,
		`user delivered "@@say Running it. @@call"`,
		`assistant completed step-start "Running it." bash:completed step-finish`,
		`assistant completed step-start "done" step-finish`,
	},
	"05-perm-bash-once": {
		`turn user`,
		`user delivered "@@call bash {\"command\":\""`,
		`assistant completed step-start bash:completed step-finish`,
		`assistant completed step-start "done" step-finish`,
		`ask "bash: echo permitted" authorized by engine:oc1 replied=true`,
	},
	"06-perm-bash-reject": {
		`turn user`,
		`user delivered "@@call bash {\"command\":\""`,
		`assistant completed step-start bash:error step-finish`,
		`ask "bash: echo permitted" denied by engine:oc1 replied=true`,
	},
	"07-perm-bash-reject-message": {
		`turn user`,
		`user delivered "@@call bash {\"command\":\""`,
		`assistant completed step-start bash:error step-finish`,
		`assistant completed step-start "done" step-finish`,
		`ask "bash: echo permitted" denied by engine:oc1 replied=true`,
	},
	"10-perm-edit": {
		`turn user`,
		`user delivered "@@call read {\"filePath\":"`,
		`assistant completed step-start read:completed step-finish`,
		`assistant completed step-start edit:completed step-finish patch`,
		`assistant completed step-start "done" step-finish`,
		`ask "edit: /workspace/hello.txt" authorized by engine:oc1 replied=true`,
	},
	"14-question": {
		`turn user`,
		`user delivered "@@call question {\"questi"`,
		`assistant completed step-start question:completed step-finish`,
		`assistant completed step-start "done" step-finish`,
		`question "Which colour?" ["Red","Blue"] replied ["Red"]`,
		`question "Letters?" ["A","B"] replied ["A","custom text"]`,
	},
	"16-todo": {
		`turn user`,
		`user delivered "@@call todowrite {\"todos"`,
		`assistant completed step-start todowrite:completed step-finish`,
		`assistant completed step-start "done" step-finish`,
	},
	"18-abort-text": {
		`turn user`,
		`user delivered "@@text n=200 delay=50"`,
		`assistant aborted step-start "t0 t1 t2 t3 t4 t5 t6 t7 " !provider:MessageAbortedError`,
	},
	"19-abort-bash": {
		`turn user`,
		`user delivered "@@call bash {\"command\":\""`,
		`assistant aborted step-start bash:completed !provider:MessageAbortedError`,
	},
	"21-error-500-retry": {
		`turn user`,
		`user delivered "@@failfirst 2 500 upstre"`,
		`assistant completed step-start "recovered" step-finish`,
	},
	"22-error-401": {
		`turn user`,
		`user delivered "@@status 401 bad key"`,
		`assistant failed !provider:APIError`,
	},
	"23-error-400": {
		`turn user`,
		`user delivered "@@status 400 this is a p"`,
		`assistant failed !provider:APIError`,
	},
	"25-error-cut": {
		`turn user`,
		`user delivered "@@text n=3 delay=20 @@cu"`,
		`assistant completed step-start "" step-start "" step-start "" step-start "t0 t1 t2"`,
	},
	"26-error-refused": {
		`turn user`,
		`user delivered "@@say hi"`,
		`assistant completed`,
	},
	"27-error-nomodel": {
		`turn user`,
		`user failed "@@say hi" !provider:UnknownError`,
	},
	"27b-error-noagent": {
		`turn user`,
		`user failed "what I wrote" !provider:UnknownError`,
	},
	"28-compaction": {
		`turn user`,
		`user delivered "@@say first answer"`,
		`assistant completed step-start "first answer" step-finish`,
		`user delivered "@@say second answer"`,
		`assistant completed step-start "second answer" step-finish`,
		`user delivered compaction`,
		`assistant completed step-start step-finish`,
	},
	"29-auto-compaction": {
		`turn user`,
		`user delivered "@@usage in=190000 out=50"`,
		`assistant completed step-start "big" step-finish`,
		`user delivered compaction`,
		`assistant completed step-start "big" step-finish`,
		`user delivered "Continue if you have nex"`,
		`assistant completed step-start "OK. Nothing more to do." step-finish`,
		`user delivered "@@say after big"`,
		`assistant completed step-start "after big" step-finish`,
	},
	"31-delete": {
		`turn user`,
		`user delivered "@@say to be deleted"`,
		`user delivered "@@say to be deleted"`,
	},
	"32-session-shell": {
		`turn user`,
		`user delivered "@@say hi"`,
		`assistant completed step-start "hi" step-finish`,
		`user delivered "The following tool was e"`,
		`assistant completed bash:completed`,
	},
	"80-restart-a": {
		`turn assistant`,
		`user delivered "@@call bash {\"command\":\""`,
		`assistant processing step-start bash:running`,
		`user delivered "@@text n=400 delay=50"`,
		`assistant processing step-start ""`,
		`user delivered "@@call question {\"questi"`,
		`assistant processing step-start question:running`,
		`ask "bash: date" draft by  replied=false`,
		`question "Q?" ["Y"] asked []`,
	},
	"85-abort-parent": {
		`turn user`,
		`user delivered "@@call task {\"descriptio"`,
		`assistant completed step-start task:error step-finish`,
		`(sub) user delivered "@@call bash {\"command\":\""`,
		`(sub) assistant aborted step-start bash:completed !provider:MessageAbortedError`,
		`assistant aborted !provider:MessageAbortedError`,
		`ask "bash: sleep 20" authorized by engine:oc1 replied=true`,
		`subagent general "sub (@general subagent)" aborted`,
	},
	"97-prompt-while-busy": {
		`turn user`,
		`user delivered "@@text n=40 delay=50"`,
		`assistant completed step-start "t0 t1 t2 t3 t4 t5 t6 t7 " step-finish`,
		`user delivered "@@say second prompt"`,
		`user delivered "@@say third sync"`,
		`assistant completed step-start "third sync" step-finish`,
	},
	"9c-always-pending": {
		`turn user`,
		`user delivered "@@call bash {\"command\":\""`,
		`assistant completed step-start bash:completed bash:completed step-finish`,
		`assistant completed step-start "done" step-finish`,
		`ask "bash: uname -a" authorized by engine:oc1 replied=true`,
		`ask "bash: uname -r" authorized by engine:oc1 replied=true`,
	},
	"9i-perm-task": {
		`turn user`,
		`user delivered "@@call task {\"descriptio"`,
		`assistant completed step-start task:completed step-finish`,
		`(sub) user delivered "@@call bash {\"command\":\""`,
		`(sub) assistant completed step-start bash:completed step-finish`,
		`(sub) assistant completed step-start "r" step-finish`,
		`assistant completed step-start "done" step-finish`,
		`ask "task: s" authorized by engine:oc1 replied=true`,
		`ask "bash: date" authorized by engine:oc1 replied=true`,
		`subagent general "s (@general subagent)" completed`,
	},
	"9l-child-shell": {
		`turn user`,
		`user delivered "@@call task {\"descriptio"`,
		`assistant completed step-start task:completed step-finish`,
		`(sub) user delivered "@@call bash {\"command\":\""`,
		`(sub) assistant completed step-start bash:completed step-finish`,
		`(sub) assistant completed step-start "child result" step-finish`,
		`assistant completed step-start "parent done" step-finish`,
		`subagent general "sub (@general subagent)" completed`,
	},
}

func TestReadModelsShowWhatOpenCodeDid(t *testing.T) {
	t.Parallel()
	for _, name := range recordings(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			got := transcript(t, model(t, conversation(t, name)))
			is.Equal(strings.Join(got, "\n"), strings.Join(scenarios[name], "\n"))
		})
	}
}
